"""The verb `demo`: it serves a page, writes a Space, and tells in one line what is wrong."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    tiny_model(vocab_size=len(letter_tokenizer)).save_pretrained(path)
    letter_tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_it_serves_the_page_until_ctrl_c_and_says_where(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, pages = free_port(), []

    class Interrupted:
        def wait(self) -> None:
            pages.append(httpx.get(f"http://127.0.0.1:{port}/").text)
            raise KeyboardInterrupt

    monkeypatch.setattr("hf_seq2seq.commands.demo.Event", Interrupted)
    status, out, err = command("demo", folder, "--port", port, "--example", "x y z")
    assert (status, err) == (130, "\nInterrupted.\n")
    assert out == f"The page is at http://127.0.0.1:{port}/ (Ctrl-C ends it)\n"
    assert '"x y z"' in pages[0]
    assert "Look inside a Transformer" in pages[0]
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/")


@pytest.mark.slow
def test_ctrl_c_ends_its_process_with_one_line_and_nothing_is_left_behind(folder: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "hf_seq2seq", "demo", str(folder), "--port", str(free_port())],
        cwd=here,
        env=os.environ | {"GRADIO_SHARE": "True", "GRADIO_ANALYTICS_ENABLED": "True"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets what it starts in the background ignore the signal, and that is handed down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("The page is at http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "\nInterrupted.\n")
    assert not list(here.iterdir())


def test_a_busy_port_is_named_before_a_model_is_looked_for(busy_port: int, command: Command) -> None:
    status, out, err = command("demo", "nowhere", "--port", busy_port)
    assert (status, out) == (1, "")
    assert err == (
        "Error: `--host` and `--port` must be a free address of this machine, but nothing can listen on "
        f"127.0.0.1:{busy_port} (Address already in use). Name another with `--port`, or leave it out.\n"
    )


def test_a_host_that_is_not_this_machine_is_named(command: Command) -> None:
    status, _, err = command("demo", "nowhere", "--host", "192.0.2.1")
    assert status == 1
    assert err.startswith(
        "Error: `--host` and `--port` must be a free address of this machine, but nothing can listen"
    )
    assert err.endswith("Name one with `--host`.\n")


def test_a_model_that_is_not_there_is_named(command: Command) -> None:
    status, out, err = command("demo", "nowhere")
    assert (status, out) == (1, "")
    assert err.startswith("Error: `nowhere` must be the folder of a model")


def test_a_missing_library_is_named_before_a_model_is_looked_for(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert command("demo", "nowhere") == (
        *(1, ""),
        "Error: The demo needs the library gradio, which is not installed: pip install 'hf-seq2seq[inspect]'\n",
    )


def test_a_space_is_written_and_nothing_is_started(command: Command, tmp_path: Path) -> None:
    space = tmp_path / "space"
    status, out, err = command("demo", "me/en-de", "--space", space)
    assert (status, err) == (0, "")
    assert out == "".join(f"Written: {space / name}\n" for name in ("README.md", "app.py", "requirements.txt"))
    before = {path.name: path.read_text(encoding="utf-8") for path in space.iterdir()}
    status, out, err = command("demo", "me/other", "--space", space)
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: `{space}` must be a new or empty folder, but holds")
    assert {path.name: path.read_text(encoding="utf-8") for path in space.iterdir()} == before


def test_help_imports_neither_gradio_nor_the_views() -> None:
    code = (
        "import sys, runpy; sys.argv = ['hf_seq2seq', 'demo', '--help']\n"
        "try: runpy.run_module('hf_seq2seq', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in ('gradio', 'hf_seq2seq.inspection') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")
