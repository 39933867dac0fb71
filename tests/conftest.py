"""What all tests share: no network, caches of their own, a tokenizer whose ids can be told by eye, the command."""

import gc
import logging
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


# Set before any library is imported, and inherited by the processes that tests start.
_CACHE = tempfile.TemporaryDirectory(prefix="hf_seq2seq_tests_")
os.environ["HF_HOME"] = _CACHE.name
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def open_standard_error() -> None:
    """Keeps absl, which rouge-score imports, from closing pytest's standard error when uvicorn sets up its logging."""
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture(scope="module", autouse=True)
def few_objects_to_look_through() -> None:
    """Exempts what imports made from garbage collection: each trainer collects, which takes 0.2 s otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def letter_tokenizer() -> "PreTrainedTokenizerFast":
    """Each letter is a word: "a b" is [4, 5, 2], the 2 being `</s>`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    words = [*special, *"abcdefghijklmnopqrstuvwxyz"]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=["input_ids", "attention_mask"], **names
    )


@pytest.fixture
def little_room() -> Callable[[int], AbstractContextManager[None]]:
    """Makes files of more than some bytes fail inside a `with` block, as on a disk that becomes full."""

    @contextmanager
    def limit(num_bytes: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return limit


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `hf-seq2seq` in this process, which saves seconds of imports.

    A function of the command's arguments that returns its exit status, standard output and standard error.
    """
    from hf_seq2seq.commands.main import main

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
