"""The command as a whole: its verbs, what it imports, and how it ends."""

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import StrictDataclassError

from hf_seq2seq import Seq2SeqTransformerConfig, __version__
from hf_seq2seq.commands.main import VERBS


Command = Callable[..., tuple[int, str, str]]


def fail_with(error: BaseException) -> SimpleNamespace:
    def tokenizer() -> None:
        raise error

    return SimpleNamespace(tokenizer=tokenizer)


def test_help_lists_every_verb(command: Command) -> None:
    status, out, _ = command("--help")
    assert status == 0
    for verb, summary in VERBS.items():
        assert verb in out
        assert summary in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_help(verb: str, command: Command) -> None:
    status, out, err = command(verb, "--help")
    assert status == 0
    assert f"hf-seq2seq {verb}" in out
    assert not err


def test_an_unknown_verb_is_named(command: Command) -> None:
    status, _, err = command("trian")
    assert status == 2
    assert "No such command 'trian'" in err


def test_the_version_is_told(command: Command) -> None:
    assert command("--version") == (0, f"hf-seq2seq {__version__}\n", "")


def test_help_and_usage_errors_import_nothing_that_takes_seconds() -> None:
    code = (
        "import sys; from hf_seq2seq.commands.main import VERBS, main\n"
        "calls = [['--help'], ['--version'], ['trian'], ['train', '--help'], ['train', '--d_modle', '8']]\n"
        "calls += [['train', '--d_model', 'wide'], ['translate', '--beams', '4']]\n"
        "calls += [[verb, '--help'] for verb in VERBS]\n"
        "for call in calls:\n"
        "    try: main(call)\n"
        "    except SystemExit: pass\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'pandas', 'rich') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.count("Usage: hf-seq2seq") == len(VERBS)
    assert "Nearest: d_model" in result.stderr
    assert result.stdout.endswith("[]\n")


def test_the_module_runs_the_command() -> None:
    result = subprocess.run([sys.executable, "-m", "hf_seq2seq", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: hf-seq2seq" in result.stdout


@pytest.mark.parametrize("kind", [ValueError, FileNotFoundError, ImportError])
def test_an_error_that_a_user_can_mend_is_one_line(
    kind: type[Exception], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hf_seq2seq.commands.tokenizer", fail_with(kind("`x` must\n  be y.")))
    assert command("tokenizer") == (1, "", "Error: `x` must be y.\n")


def test_a_config_s_error_is_told_in_its_own_words(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StrictDataclassError) as caught:
        Seq2SeqTransformerConfig(d_model=10, encoder_attention_heads=3)
    monkeypatch.setitem(sys.modules, "hf_seq2seq.commands.tokenizer", fail_with(caught.value))
    _, _, err = command("tokenizer")
    assert err == "Error: `d_model` must be a multiple of `encoder_attention_heads` (3), but is 10 instead.\n"


def test_ctrl_c_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_seq2seq.commands.translate.check_output", interrupt)
    assert command("translate", "model") == (130, "", "\nInterrupted.\n")


def test_ctrl_c_while_a_verb_is_imported_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_seq2seq.commands.main.import_module", interrupt)
    assert command("translate", "model") == (130, "", "\nInterrupted.\n")


def test_a_fault_of_ours_keeps_its_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hf_seq2seq.commands.tokenizer", fail_with(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        command("tokenizer")


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    """The reader is gone before the output, which is small enough to wait in Python's buffer, is written."""
    code = (
        "import sys; from types import SimpleNamespace; from hf_seq2seq.commands import main\n"
        "def tokenizer(): print('after', input())\n"
        "sys.modules['hf_seq2seq.commands.tokenizer'] = SimpleNamespace(tokenizer=tokenizer)\n"
        "sys.argv = ['hf-seq2seq', 'tokenizer']; main.main()"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], env=buffered, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdin.write(b"this\n")
        process.stdin.close()
        assert process.wait(100) == 0
        assert process.stderr.read() == b""
