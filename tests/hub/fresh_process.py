"""Runs Python in processes that know nothing of this one, with this package or without it."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping


# Without `site`, no .pth file is read, and an editable installation is one: only what lies in site-packages is found.
WITHOUT_PACKAGE = f"""
import sys
sys.path.append({sysconfig.get_paths()["purelib"]!r})
from importlib.util import find_spec
assert find_spec("hf_seq2seq") is None
assert find_spec("transformers") is not None
"""


def run_python(
    code: str, *arguments: object, package: bool, environment: Mapping[str, str] | None = None, fails: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Runs code, with `import hf_seq2seq` before it or where that cannot be imported; checks how it ends."""
    options, first = ([], "import hf_seq2seq\n") if package else (["-I", "-S"], WITHOUT_PACKAGE)
    finished = subprocess.run(
        [sys.executable, *options, "-c", first + code, *map(str, arguments)],
        env=dict(os.environ if environment is None else environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode != 0) == fails, finished.stderr
    return finished
