"""Runs `hf-seq2seq` inside the test's process, which saves seconds of imports."""

import logging
import sys
from collections.abc import Callable

import pytest

from hf_seq2seq.commands.main import main


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function of the command's arguments that returns its exit status, standard output and standard error."""
    # What the command sets for its process must not reach other tests.
    monkeypatch.setattr(logging.getLogger("hf_seq2seq"), "setLevel", lambda level: None)
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hf-seq2seq", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capsys.readouterr()

    return run
