"""Ctrl-C at any moment ends the command with one line and the status of an interrupted process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from inference.test_translator import letters_model
from transformers import PreTrainedTokenizerFast


ONE_LINE = "\nInterrupted.\n"

# What a verb does in place of its own work: {0} is done while it is imported, {1} when it runs. `interrupt` is Ctrl-C.
VERB = """\
import atexit, os, signal, sys, types
from hf_seq2seq.commands import start

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("hf_seq2seq.commands.tokenizer", "slow_library"):
            from importlib.machinery import ModuleSpec
            return ModuleSpec(name, self)
    def create_module(self, spec): return None
    def exec_module(self, module):
        if module.__name__ == "slow_library": swallow()
        else: {0}; module.tokenizer = verb

def interrupt(): os.kill(os.getpid(), signal.SIGINT)
def swallow():
    try: interrupt()
    except BaseException: print("swallowed")
def verb(): {1}

sys.meta_path.insert(0, Finder())
sys.argv = ["hf-seq2seq", "tokenizer"]
{2}
start.main()
"""


def run(code: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(("swallow()", "pass", ""), id="while the verb is imported, which loses it"),
        pytest.param(("pass", "import slow_library", ""), id="while the verb imports a library, which loses it"),
        pytest.param(("pass", "interrupt()", ""), id="while the verb works"),
        pytest.param(("pass", "pass", "atexit.register(swallow)"), id="while the process ends"),
    ],
)
def test_it_is_one_line(moments: tuple[str, str, str]) -> None:
    assert run(VERB.format(*moments)) == (130, "", ONE_LINE)


def test_a_verb_at_work_can_tidy_up_and_say_more() -> None:
    code = VERB.format("pass", "\n    try: interrupt()\n    finally: print('tidied')", "")
    assert run(code) == (130, "tidied\n", ONE_LINE)
    code = VERB.format(
        "pass", "\n    try: interrupt()\n    except KeyboardInterrupt: raise KeyboardInterrupt('It goes on.')", ""
    )
    assert run(code) == (130, "", "\nIt goes on.\n")


def test_a_forked_process_says_nothing() -> None:
    code = VERB.format("pass", "\n    if os.fork() == 0: import slow_library\n    print(os.wait()[1] >> 8)", "")
    assert run(code) == (0, "130\n", "")


def test_a_shell_s_background_job_ignores_it() -> None:
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    assert run(VERB.format("pass", "interrupt(); print(1)", ignore)) == (0, "1\n", "")


SMALL = [
    "--use_cpu",
    "--vocab_size",
    "40",
    "--tokenizer_kind",
    "char",
    "--d_model",
    "16",
    "--encoder_layers",
    "1",
    "--decoder_layers",
    "1",
]

# Tells when Ctrl-C is provided for: Python's own start, and the import of the package itself, come before.
TOLD_START = """\
import signal
from hf_seq2seq.commands.start import main

def set_and_tell(*arguments):
    signal.signal = set_handler
    set_handler(*arguments)
    print("starts", flush=True)

set_handler, signal.signal = signal.signal, set_and_tell
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["translate", "demo", "serve", "inspect", "evaluate", "train"])
def test_it_is_one_line_at_each_moment_of_a_verb(
    verb: str, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    letters_model().save_pretrained(tmp_path / "model")
    letter_tokenizer.save_pretrained(tmp_path / "model")
    lines = "".join("a b c d e f\n" for _ in range(20_000))
    for name in ("source", "target"):
        (tmp_path / name).write_text(lines)
    arguments = {
        "translate": ["model", "--input", "source", "--output", "output"],
        "demo": ["model"],
        "serve": ["model"],
        "inspect": ["model", "attention", "--text", "a b"],
        "evaluate": ["model", "--source", "source", "--reference", "target"],
        "train": ["--train_source", "source", "--train_target", "target", "--output_dir", "out", *SMALL],
    }[verb]
    for delay in (0.0, 0.1, 0.2, 0.4, 0.8, 1.2, 1.8, 2.5, 4.0, 6.0):
        process = subprocess.Popen(
            [sys.executable, "-c", TOLD_START, verb, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "starts\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert "Traceback" not in err, delay
        assert "Exception ignored" not in err, delay
        if process.returncode in (0, -signal.SIGINT):  # it was ready, or Python was putting itself away
            assert "\n" not in err.strip(), delay
            break
        assert process.returncode == 130, (delay, err)
        assert err.splitlines()[-1].startswith(("Interrupted.", "Stopped after update")), (delay, err)
