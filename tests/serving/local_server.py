"""A server in this process, whose workers are no processes of their own: that saves the seconds of their imports."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Semaphore, Thread
from typing import Any

import uvicorn
from inference.test_translator import letters_model

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.serving import Limits, Loading, ModelSpec, make_app
from hf_seq2seq.serving.messages import Result, Search
from hf_seq2seq.serving.worker import WorkerDiedError, _answer


_MANY = 1_000_000


def varied_model() -> Seq2SeqTransformerForConditionalGeneration:
    """A random model of letters that translates most texts differently, by which mixed-up answers are found out."""
    return letters_model(end_bias=2.0, seed=4)


@dataclass
class LocalWorker:
    """Translates in a thread of the server. It can be told to wait, and to die."""

    translators: Sequence[Translator]
    loading: Loading
    allowed: Semaphore = field(default_factory=lambda: Semaphore(_MANY))  # how many batches it may translate
    batches: list[list[str]] = field(default_factory=list)
    starts: int = 1
    dies: bool = False

    def translate(self, search: Search, lines: Sequence[str]) -> list[Result]:
        self.batches.append(list(lines))
        assert self.allowed.acquire(timeout=60)
        if self.dies:
            raise WorkerDiedError("dead")
        return _answer(self.translators[search.model], search, lines, self.loading)

    def start(self) -> None:
        self.starts, self.dies = self.starts + 1, False

    def wait_loaded(self) -> list[ModelSpec]:
        return []

    def hold(self) -> None:
        """Lets it wait before each batch from now on."""
        self.allowed = Semaphore(0)

    def go_on(self, num_batches: int = _MANY) -> None:
        self.allowed.release(num_batches)

    def stop(self) -> None:
        self.go_on()


class LocalWorkers:
    """One worker in place of `Workers`."""

    def __init__(self, models: Sequence[ModelSpec], translators: Sequence[Translator], loading: Loading) -> None:
        self.models, self.batch_tokens = models, loading.batch_tokens
        self.worker = LocalWorker(translators, loading)

    def __iter__(self) -> Iterator[LocalWorker]:
        return iter([self.worker])

    def __len__(self) -> int:
        return 1

    def stop(self) -> None:
        self.worker.stop()


@dataclass
class LocalServer:
    """A running server."""

    url: str
    worker: LocalWorker
    server: uvicorn.Server


@contextmanager
def serving(
    translators: Sequence[Translator],
    models: Sequence[ModelSpec] = (ModelSpec("out", (("en", "de"),)),),
    limits: Limits | None = None,
    loading: Loading | None = None,
) -> Iterator[LocalServer]:
    """Yields a server that listens on a free port."""
    workers: Any = LocalWorkers(models, translators, loading or Loading())
    config = uvicorn.Config(make_app(workers, limits), log_level="warning", access_log=False, lifespan="on")
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield LocalServer(f"http://127.0.0.1:{listener.getsockname()[1]}", workers.worker, server)
        finally:
            server.should_exit = True
            thread.join()
