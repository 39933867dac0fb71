"""Worker processes: each holds all models and translates one batch after the other.

A process of its own leaves the server free to answer while a model computes, and one that dies, as for want of memory,
takes no other request with it.
"""

import contextlib
import logging
import math
import multiprocessing
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .messages import Failure, Result, Search, Translation
from .models import Loading, ModelSpec, pairs_of_card


if TYPE_CHECKING:
    from hf_seq2seq.inference import Hypothesis, Translator
    from hf_seq2seq.inference.settings import DecodingSettings


_NOT_TRANSLATED = Failure(500, "The text could not be translated. The server's log tells why.")


class WorkerDiedError(RuntimeError):
    """A worker ended before it answered."""


class Worker:
    """One process with the models. Its methods wait, so that the server calls them in threads.

    Args:
        models: The models.
        loading: How to load them.
        number_of_workers: How many workers share the machine's cores.
    """

    def __init__(self, models: Sequence[ModelSpec], loading: Loading, number_of_workers: int) -> None:
        self._arguments = (tuple(models), loading, number_of_workers)
        self.start()

    def start(self) -> None:
        """Starts the process, or starts it anew."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        with _interrupts_held_back():
            self._process.start()
        theirs.close()

    def wait_loaded(self) -> list[ModelSpec]:
        """Waits until the models are loaded, and returns them with their languages.

        Raises:
            ValueError: If they cannot be.
            WorkerDiedError: If the process ended.
        """
        answer = self._receive()
        if isinstance(answer, str):
            raise ValueError(answer)
        return answer  # type: ignore[no-any-return]

    def translate(self, search: Search, lines: Sequence[str]) -> list[Result]:
        """Returns what became of each line.

        Raises:
            WorkerDiedError: If the process ended.
        """
        try:
            self._connection.send((search, list(lines)))
        except OSError as error:
            raise WorkerDiedError("The worker process ended.") from error
        return self._receive()  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._process.terminate()
        self._process.join()
        self._connection.close()

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError("The worker process ended before it answered.") from error


class Workers:
    """The worker processes of a server; a context manager that ends them.

    Args:
        models: The models that each of them loads.
        number: How many there are.
        loading: How to load the models.

    Attributes:
        models: The models with their languages.
        batch_tokens: The most source tokens that a worker translates at once.

    Raises:
        ValueError: If a model cannot be loaded.
    """

    def __init__(self, models: Sequence[ModelSpec], *, number: int = 1, loading: Loading | None = None) -> None:
        loading = loading or Loading()
        self.batch_tokens = loading.batch_tokens
        self._workers: list[Worker] = []
        try:
            for _ in range(number):
                self._workers.append(Worker(models, loading, number))
            loaded = [worker.wait_loaded() for worker in self._workers]
            self.models = loaded[0]
        except BaseException:
            self.stop()
            raise

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all processes."""
        for worker in self._workers:
            worker.stop()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Lets what is started inside inherit that Ctrl-C does not reach it: the server ends its workers itself."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which lets interrupts through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, models: Sequence[ModelSpec], loading: Loading, number_of_workers: int) -> None:
    """Loads models and translates until the server closes its end or is gone. The main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(format="%(message)s")
    with contextlib.suppress(EOFError, OSError):
        try:
            translators = _load(models, loading, number_of_workers)
            answer: Any = [replace(model, pairs=model.pairs or pairs_of_card(model.place)) for model in models]
        except (ValueError, OSError, ImportError) as error:
            connection.send(str(error))
            return
        connection.send(answer)
        while True:
            search, lines = connection.recv()
            connection.send(_answer(translators[search.model], search, lines, loading))


def _load(models: Sequence[ModelSpec], loading: Loading, number_of_workers: int) -> "list[Translator]":
    import torch
    from transformers.utils import logging as transformers_logging

    from hf_seq2seq.inference import Translator

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
    torch.set_num_threads(max(1, torch.get_num_threads() // number_of_workers))
    options: Any = {name: getattr(loading, name) for name in ("backend", "device", "dtype", "batch_tokens")}
    return [Translator.from_pretrained(model.place, **options) for model in models]


def _answer(translator: "Translator", search: Search, lines: Sequence[str], loading: Loading) -> list[Result]:
    """Returns what became of each line. A line that fails does not take the others of its batch with it."""
    if search.alignments and loading.backend == "ctranslate2":
        return [Failure(400, "`alignments` must be left out: the backend of this server has none.")] * len(lines)
    options: dict[str, Any] = dict(search.options)
    is_one_part = search.alignments or options.get("n_best", 1) > 1
    options["over_long"] = "cut" if is_one_part else "split"
    if loading.beam_size is not None and not options.get("do_sample"):
        options.setdefault("beam_size", max(loading.beam_size, options.get("n_best", 1)))
    try:
        settings = translator.settings(scores=search.scores, attention=search.alignments, **options)
    except ValueError as error:
        return [Failure(400, str(error))] * len(lines)
    results = dict(_too_long(translator, lines, settings)) if is_one_part else {}
    left = [number for number in range(len(lines)) if number not in results]
    results |= zip(left, _translate(translator, [lines[number] for number in left], settings), strict=True)
    return [results[number] for number in range(len(lines))]


def _too_long(
    translator: "Translator", lines: Sequence[str], settings: "DecodingSettings"
) -> Iterator[tuple[int, Result]]:
    """Yields the numbers of lines that could only be translated in parts, with what their clients are told."""
    from hf_seq2seq.token_lookup import encode_sources

    limit = int(min(settings.max_source_tokens, translator.num_positions))
    for number, ids in enumerate(encode_sources(translator.tokenizer, list(lines))):
        if len(ids) > limit:
            yield (
                number,
                Failure(
                    413,
                    f"A line must have at most {limit:,} tokens where `alternatives` or `alignments` are asked for, "
                    f"but has {len(ids):,} instead.",
                ),
            )


def _translate(translator: "Translator", lines: Sequence[str], settings: "DecodingSettings") -> list[Result]:
    from hf_seq2seq.inference.segment import number_lines

    try:
        segments = translator.translate_lines(list(number_lines(lines, repeat(None))), settings)
    except Exception:
        if len(lines) > 1:
            return [result for line in lines for result in _translate(translator, [line], settings)]
        traceback.print_exc()
        return [_NOT_TRANSLATED]
    return [_translation(segment.hypotheses, settings) for segment in segments]


def _translation(hypotheses: "Sequence[Hypothesis]", settings: "DecodingSettings") -> Translation:
    """Returns what a client is told of the hypotheses of a line."""
    return Translation(
        tuple(hypothesis.text for hypothesis in hypotheses),
        tuple(_number(hypothesis.score) for hypothesis in hypotheses) if settings.scores else None,
        tuple(tuple(hypothesis.alignment or ()) for hypothesis in hypotheses) if settings.attention else None,
    )


def _number(value: float | None) -> float | None:
    """Returns a number that JSON has: none for what is not finite, as the scores of a damaged model are."""
    return value if value is not None and math.isfinite(value) else None
