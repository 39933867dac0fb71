"""The verb `serve`: it tells in one line what is wrong, and its processes lose no answer, whatever happens to them."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from inference.test_translator import random_texts
from serving.local_server import varied_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.interop import to_ctranslate2
from hf_seq2seq.serving.models import ModelSpec, ServedModels, pairs_of_card


Command = Callable[..., tuple[int, str, str]]

TEXTS = [f"{a} {b}" for a in random_texts(3, 5, 2, 8) for b in random_texts(1, 2, 4, 3, 6, 9, 1, 2)]


@pytest.fixture
def folder(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    varied_model().save_pretrained(path)
    letter_tokenizer.save_pretrained(path)
    return path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serve(*arguments: object) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Runs the verb in a process of its own, and yields its address when it listens."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "hf_seq2seq", "serve", *map(str, arguments), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell may have it ignore
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"Serving at http://127.0.0.1:{port} (Ctrl-C ends it)\n"
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.communicate()


def children(process: "subprocess.Popen[str]") -> list[int]:
    """The worker processes of a server; the one without a model tracks what they share."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/children")  # each may have started some
    found = [pid for thread in threads for pid in thread.read_text().split()]
    return [int(pid) for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_missing_library_is_named_before_a_model_is_looked_for(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert command("serve", "nowhere") == (
        *(1, ""),
        "Error: The server needs the library uvicorn, which is not installed: pip install 'hf-seq2seq[serve]'\n",
    )


def test_a_busy_port_is_named_before_a_model_is_looked_for(command: Command) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        status, out, err = command("serve", "nowhere", "--port", listener.getsockname()[1])
    assert (status, out) == (1, "")
    assert err.startswith("Error: `--host` and `--port` must be a free address of this machine")


def test_languages_are_read_from_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ModelSpec.parse("en-de=out/") == ModelSpec("out/", (("en", "de"),))
    assert ModelSpec.parse("me/model") == ModelSpec("me/model")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "en-de=out").mkdir()
    assert ModelSpec.parse("en-de=out") == ModelSpec("en-de=out")
    assert ModelSpec.parse("en-de=out").name == "en-de=out"
    assert ModelSpec(".").name == tmp_path.name


def test_languages_are_read_from_the_card(tmp_path: Path) -> None:
    assert pairs_of_card(str(tmp_path)) == ()
    assert pairs_of_card("me/model") == ()
    card = tmp_path / "model_card.yaml"
    card.write_text("source_languages: [en, fr]\ntarget_languages: [de]\n")
    assert pairs_of_card(str(tmp_path)) == (("en", "de"), ("fr", "de"))
    card.write_text("source_languages: [en]\ntarget_languages: [de, fr]\n")
    with pytest.raises(ValueError, match=r"must name one target language for a server, but names de, fr\. Say which"):
        pairs_of_card(str(tmp_path))


def test_several_models_need_languages_of_their_own() -> None:
    with pytest.raises(ValueError, match=r"must have its languages, but `b` names none\. Write them .* en-de=b\."):
        ServedModels([ModelSpec("a", (("en", "de"),)), ModelSpec("b")])
    with pytest.raises(ValueError, match=r"but `b` and `a` both translate en-de\. Leave one out\."):
        ServedModels([ModelSpec("a", (("en", "de"),)), ModelSpec("b", (("en", "de"),))])


def test_one_model_without_known_languages_takes_any() -> None:
    models = ServedModels([ModelSpec("a")])
    assert (models.find(None, None), models.find("auto", "xx"), models.languages()) == (0, 0, [])


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_one_line(command: Command, tmp_path: Path) -> None:
    status, out, err = command("serve", tmp_path / "nowhere" / "", "--port", free_port(), "--workers", 2)
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: `{tmp_path / 'nowhere'}")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_ctranslate2_s_answers_are_those_of_its_translator(
    folder: Path, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    exported = tmp_path / "exported"
    to_ctranslate2(varied_model(), letter_tokenizer, exported)
    expected = Translator.from_pretrained(exported, backend="ctranslate2")(TEXTS)
    with serve(f"en-de={exported}", "--backend", "ctranslate2") as (url, _):
        found = httpx.post(f"{url}/translate", json={"q": TEXTS}, timeout=60).json()
        assert found == {"translatedText": expected}
        refused = httpx.post(f"{url}/translate", json={"q": TEXTS, "alignments": True}, timeout=60)
        assert refused.status_code == 400


class Client(threading.Thread):
    """Asks for the translation of random texts, alone or in lists, until it is told to end."""

    def __init__(self, url: str, expected: dict[str, str], seed: int, has_ended: threading.Event) -> None:
        super().__init__()
        self._url, self._expected, self._has_ended = url, expected, has_ended
        self._random = random.Random(seed)
        self.num_answers, self.wrong = 0, list[Any]()

    def run(self) -> None:
        with httpx.Client(timeout=120) as client:
            while not self._has_ended.is_set():
                texts = self._random.choices(TEXTS, k=self._random.choice([1, 1, 1, 1, 2, 30]))
                q = texts if len(texts) > 1 else texts[0]
                try:
                    answer: Any = client.post(f"{self._url}/translate", json={"q": q}).json()
                except (httpx.HTTPError, json.JSONDecodeError) as error:
                    answer = repr(error)
                expected = [self._expected[text] for text in texts]
                if answer != {"translatedText": expected if len(texts) > 1 else expected[0]}:
                    self.wrong.append((q, answer))
                self.num_answers += 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_answer_is_lost_or_mixed_up_at_64_clients(folder: Path) -> None:
    expected = dict(zip(TEXTS, Translator.from_pretrained(folder, device="cpu")(TEXTS), strict=True))
    assert len(set(expected.values())) > len(expected) / 2
    with serve(f"en-de={folder}", "--workers", 2, "--device", "cpu") as (url, process):
        has_ended = threading.Event()
        clients = [Client(url, expected, seed, has_ended) for seed in range(64)]
        for client in clients:
            client.start()
        has_ended.wait(120)
        has_ended.set()
        for client in clients:
            client.join()
        assert [wrong for client in clients for wrong in client.wrong] == []
        assert min(client.num_answers for client in clients) > 1
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "err"), [(signal.SIGINT, 130, "\nInterrupted.\n"), (signal.SIGTERM, -15, "")]
)
def test_a_signal_ends_it_when_what_it_took_is_answered(
    number: signal.Signals, status: int, err: str, folder: Path
) -> None:
    with serve(folder) as (url, process):
        workers, answers = children(process), list[Any]()
        texts = TEXTS * 30

        def ask() -> None:
            answers.append(httpx.post(f"{url}/translate", json={"q": texts}, timeout=120).json())

        client = threading.Thread(target=ask)
        client.start()
        while "hf_seq2seq_batch_lines_count 0.0" in httpx.get(f"{url}/metrics").text:
            time.sleep(0.01)
        process.send_signal(number)
        for worker in workers if number == signal.SIGINT else ():
            os.kill(worker, number)  # as a terminal does
        client.join()
        assert len(answers[0]["translatedText"]) == len(texts)
        assert process.communicate(timeout=60) == ("", err)
        assert process.returncode == status
    assert not any(map(is_running, workers))


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_a_killed_server_leaves_no_worker(folder: Path) -> None:
    with serve(folder) as (url, process):
        (worker,) = children(process)
        os.kill(worker, signal.SIGKILL)
        first, second = (httpx.post(f"{url}/translate", json={"q": "a b"}, timeout=120) for _ in range(2))
        assert (first.status_code, second.status_code) == (500, 200)
        (worker,) = children(process)
        process.kill()
        process.wait()
        end = time.monotonic() + 60
        while is_running(worker):
            assert time.monotonic() < end
            time.sleep(0.05)
