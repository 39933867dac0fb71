"""Runs `hf-seq2seq` and kills the process that writes at a chosen point: see test_long_job.py.

python killed_translation.py POINT translate ...
"""

import os
import signal
import sys
from pathlib import Path

from training.killed_run import kill_at

from hf_seq2seq.commands.long_job import LongJob
from hf_seq2seq.commands.main import main


if __name__ == "__main__":
    point = sys.argv.pop(1)
    if point == "before the last name":
        replace = Path.replace

        def replace_others(self: Path, target: Path) -> Path:
            if self.name == "new.de.unfinished":
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(self, target)

        Path.replace = replace_others  # type: ignore[method-assign, assignment]
    elif point != "nowhere":
        kill_at(LongJob, "save", 3, before=point == "before a record")
    main()
