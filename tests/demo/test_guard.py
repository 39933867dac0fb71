"""What is sent to the page's server by anything but the page is refused, or answered with a message."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.demo import make_demo
from hf_seq2seq.demo.guard import MOST_BYTES


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder where gradio keeps what is sent to it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("uploads")
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def url(letter_tokenizer: PreTrainedTokenizerFast, uploads: Path) -> Iterator[str]:
    page = make_demo(tiny_model(vocab_size=len(letter_tokenizer)), letter_tokenizer)
    yield page.launch(prevent_thread_lock=True, quiet=True)[1].rstrip("/")
    page.close(verbose=False)


def send(url: str, event: int, values: list[Any], **headers: str) -> Any:
    """Sends an event as the page does, and returns the answer to it."""
    body = {"data": values, "fn_index": event, "session_hash": "me"}
    response = httpx.post(f"{url}/gradio_api/queue/join", json=body, headers=headers)
    if response.is_error:
        return response
    with httpx.stream("GET", f"{url}/gradio_api/queue/data?session_hash=me", headers=headers, timeout=60) as stream:
        messages = (json.loads(line.removeprefix("data:")) for line in stream.iter_lines() if line)
        return next(message for message in messages if message["msg"] == "process_completed")


def test_the_page_and_its_events_are_answered(url: str) -> None:
    for headers in (
        {},
        {"Origin": url},
        {"Origin": "https://me-space.hf.space", "X-Forwarded-Host": "me-space.hf.space"},
    ):
        assert "Look inside a Transformer" in httpx.get(url, headers=headers).text
        assert send(url, 0, ["a b", 2, 0.6], **headers)["success"]


@pytest.mark.parametrize("path", ["upload", "upload/", "process_recording", "component_server", "run/translate"])
def test_what_the_page_never_sends_is_refused_and_not_stored(path: str, url: str, uploads: Path) -> None:
    before = set(uploads.rglob("*"))
    response = httpx.post(f"{url}/gradio_api/{path}", files={"files": b"x" * 100_000})
    assert (response.status_code, response.text) == (403, "This page takes nothing here.")
    assert set(uploads.rglob("*")) == before


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://127.0.0.1", "http://localhost:1"])
def test_scripts_of_other_pages_are_refused(origin: str, url: str) -> None:
    headers = {"Origin": origin}
    for response in (
        httpx.get(url, headers=headers),
        httpx.post(f"{url}/gradio_api/upload", files={"files": b"x"}, headers=headers),
        send(url, 0, ["a b", 2, 0.6], **headers),
    ):
        assert (response.status_code, response.text) == (403, "This page answers no requests of other pages.")


def test_more_data_than_the_page_sends_is_refused_unread(url: str) -> None:
    assert send(url, 0, ["a" * MOST_BYTES, 2, 0.6]).status_code == 413
    unnumbered = httpx.post(f"{url}/gradio_api/queue/join", content=iter([b"{}"]))
    assert unnumbered.status_code == 413


@pytest.mark.parametrize(
    ("event", "values", "message"),
    [
        (0, ["a b", "4", 0.6], "`beam size` must be a whole number from 1 to 10, but is &#x27;4&#x27; instead"),
        (0, ["a b", [4], 0.6], "`beam size` must be a whole number from 1 to 10, but is [4] instead"),
        (0, ["a b", 2, "x"], "`length penalty` must be a number from -5 to 5, but is &#x27;x&#x27; instead"),
        (0, ["a b", 2, 10**400], "`length penalty` must be a number from -5 to 5, but is 1000"),
        (0, ["a b"], "didn't receive enough input values (needed: 3, got: 1)"),
        (1, [None, "x", 1, 1], "Value: 'x' (type: <class 'str'>) is not in the list of choices"),
        (1, [None, ["cross"], [4], {}], "is not in the list of choices"),
        (3, [None, "cross", "x", None], "Value: 'x' (type: <class 'str'>) is not in the list of choices"),
    ],
)
def test_wrong_types_are_a_message_to_the_client_and_nothing_in_the_log(
    event: int,
    values: list[Any],
    message: str,
    url: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = send(url, event, values)
    assert message in json.dumps(answer["output"], ensure_ascii=False)
    assert "Traceback" not in capfd.readouterr().err
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_event_that_the_page_has_not_is_told(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    response = send(url, 99, [])
    assert (response.status_code, response.text) == (404, "This page has no 99.")
    assert "Traceback" not in capfd.readouterr().err
