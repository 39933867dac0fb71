"""A translator goes to other processes: pickled, copied, spawned and forked."""

import copy
import multiprocessing
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from inference.test_translator import letters_model, random_texts
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.interop import to_ctranslate2


TEXTS = ["", *random_texts(3, 8, 5)]


@pytest.fixture(params=["torch", "ctranslate2"])
def translator(
    request: pytest.FixtureRequest, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> Translator:
    """A translator of a model whose products are large enough for several threads."""
    model = letters_model(end_bias=5.0, d_model=512)
    if request.param == "torch":
        return Translator(model, letter_tokenizer)
    to_ctranslate2(model, letter_tokenizer, tmp_path / "exported")
    return Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """PyTorch has two threads, whatever the machine has and OMP_NUM_THREADS says."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_pickled_and_a_copied_translator_translate_as_before(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/argosopentech/argos-translate/issues/41, https://github.com/OpenNMT/CTranslate2/issues/932"""
    expected = translator(TEXTS)
    pickled = pickle.dumps(translator)
    monkeypatch.chdir("/")
    for other in (pickle.loads(pickled), copy.deepcopy(translator)):
        assert other(TEXTS) == expected
        assert other.batch_tokens == translator.batch_tokens


def translate(translator: Translator) -> list[str]:
    return translator(TEXTS)


@pytest.mark.slow
def test_spawned_workers_give_the_same_lines(translator: Translator) -> None:
    expected = translator(TEXTS)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert [job.result() for job in [pool.submit(translate, translator) for _ in range(3)]] == [expected] * 3


def check(translator: Translator, expected: list[str]) -> None:
    sys.exit(translate(translator) != expected)


def end_of_a_fork(translator: Translator, expected: list[str]) -> int | None:
    """Returns the exit status of a forked process that translates, or None if it hangs."""
    process = multiprocessing.get_context("fork").Process(target=check, args=(translator, expected))
    process.start()
    process.join(60)
    status = process.exitcode
    process.kill()
    return status


@pytest.mark.usefixtures("two_threads")
def test_a_forked_process_translates_also_while_another_thread_does(translator: Translator) -> None:
    expected = translator(TEXTS)
    assert end_of_a_fork(translator, expected) == 0

    has_ended = threading.Event()

    failures: list[Exception] = []

    def translate_on() -> None:
        try:
            while not has_ended.is_set():
                translator(TEXTS)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=translate_on)
    thread.start()
    try:
        assert [end_of_a_fork(translator, expected) for _ in range(2)] == [0, 0]
    finally:
        has_ended.set()
        thread.join()
    assert failures == []
    assert torch.get_num_threads() == 2
