"""Runs `hf-seq2seq train` and kills itself at a chosen point: see test_exact_resume.py.

python killed_run.py POINT --field=value ...
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from transformers import Trainer, TrainerState

from hf_seq2seq.commands.main import main
from hf_seq2seq.training.trainer import Seq2SeqTransformerTrainer


def kill_at(owner: type, method: str, count: int, *, before: bool = True) -> None:
    """Makes the `count`-th call of a method the last thing this process does."""
    original: Callable[..., Any] = getattr(owner, method)
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, call)


# A checkpoint is saved after every third update, of nine; an epoch has three or four.
POINTS: dict[str, tuple[type, str, int]] = {
    "in the second epoch": (Seq2SeqTransformerTrainer, "training_step", 5),
    "in the third epoch": (Seq2SeqTransformerTrainer, "training_step", 8),
    "before the weights of the second checkpoint": (Trainer, "save_model", 2),
    "before the optimizer of the second checkpoint": (Trainer, "_save_optimizer_and_scheduler", 2),
    "before the random numbers of the second checkpoint": (Trainer, "_save_rng_state", 2),
    "before the trainer's state of the second checkpoint": (TrainerState, "save_to_json", 2),
    "in an evaluation": (Seq2SeqTransformerTrainer, "prediction_step", 2),
    "before the final model": (Trainer, "save_model", 4),
}

if __name__ == "__main__":
    point = sys.argv.pop(1)
    if point in POINTS:
        kill_at(*POINTS[point])
    sys.argv.insert(1, "train")
    main()
