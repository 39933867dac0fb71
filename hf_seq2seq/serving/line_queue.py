"""The lines of all requests on their way to the workers: in turn, in batches, and no more than there is room for.

Everything here runs in the server's event loop; only a worker is waited for in a thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from .messages import Failure, Result, Search
from .metrics import Metrics
from .worker import Worker, WorkerDiedError, Workers


logger = logging.getLogger(__name__)

WAIT_SECONDS = 0.005  # for lines of other requests to share a batch
_CHARACTERS_PER_TOKEN = 4  # of most European languages; where it is fewer, a batch is translated in several parts
_SECONDS_BEFORE_RETRY = 5.0

_DIED = Failure(500, "The text could not be translated: the process that did so ended. Try again.")


class QueueFullError(RuntimeError):
    """There is no room for the lines of a request now."""


@dataclass(eq=False)
class Job:
    """The lines of a request that are still to be translated.

    Attributes:
        search: How to translate them.
        results: What will have become of each line, in their order.
        arrived: When they came, in the event loop's time.
        waiting: The lines that no worker has, the shortest first, each with its place in `results`.
    """

    search: Search
    results: "list[asyncio.Future[Result]]"
    arrived: float
    waiting: "deque[tuple[str, asyncio.Future[Result]]]" = field(default_factory=deque)


class LineQueue:
    """Hands lines to workers, each request having its turn.

    Args:
        workers: Who translates.
        limit: The most lines that wait.
        metrics: What counts them.
    """

    def __init__(self, workers: Workers, limit: int, metrics: Metrics) -> None:
        self._workers, self._limit, self._metrics = workers, limit, metrics
        self._most_characters = workers.batch_tokens * _CHARACTERS_PER_TOKEN
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._gathering = asyncio.Lock()
        metrics.waiting.set_function(lambda: self.num_waiting)

    @property
    def num_waiting(self) -> int:
        """The number of lines that no worker has yet."""
        return sum(len(job.waiting) for job in self._jobs)

    def put(self, search: Search, lines: Sequence[str]) -> Job:
        """Takes the lines of a request.

        Raises:
            QueueFullError: If too many lines wait.
        """
        if self.num_waiting + len(lines) > self._limit:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        job = Job(search, [loop.create_future() for _ in lines], loop.time())
        job.waiting.extend(sorted(zip(lines, job.results, strict=True), key=lambda pair: len(pair[0])))
        if lines:
            self._jobs.append(job)
            self._arrived.set()
        return job

    def withdraw(self, job: Job) -> None:
        """Takes back the lines that no worker has yet, if nobody waits for them any more."""
        job.waiting.clear()
        if job in self._jobs:
            self._jobs.remove(job)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Lets the workers translate as long as the `with` lasts."""
        with ThreadPoolExecutor(len(self._workers)) as self._threads:
            tasks = [asyncio.create_task(self._feed(worker)) for worker in self._workers]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                self._workers.stop()  # ends what nobody waits for, and with it the threads
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, worker: Worker) -> None:
        """Gives a worker one batch after the other."""
        loop = asyncio.get_running_loop()
        while True:
            search, batch = await self._next_batch()
            lines = [line for line, _ in batch]
            try:
                results = await loop.run_in_executor(self._threads, worker.translate, search, lines)
            except WorkerDiedError:
                logger.error("A worker process ended; its batch is answered with an error, and it is started anew.")
                results = [_DIED] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)
            if results[0] is _DIED:
                await self._start_anew(worker)

    async def _start_anew(self, worker: Worker) -> None:
        def start() -> None:
            worker.stop()
            worker.start()
            worker.wait_loaded()

        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, start)
            except (ValueError, OSError, WorkerDiedError) as error:
                logger.error("A worker process could not be started (%s); it is tried again.", error)
                await asyncio.sleep(_SECONDS_BEFORE_RETRY)

    async def _next_batch(self) -> "tuple[Search, list[tuple[str, asyncio.Future[Result]]]]":
        """Waits for lines, and a moment longer for those that may share a batch with them."""
        async with self._gathering:
            while True:
                while not self._jobs:
                    self._arrived.clear()
                    await self._arrived.wait()
                await asyncio.sleep(self._jobs[0].arrived + WAIT_SECONDS - asyncio.get_running_loop().time())
                if self._jobs:
                    return self._take_batch()

    def _take_batch(self) -> "tuple[Search, list[tuple[str, asyncio.Future[Result]]]]":
        """Takes lines with the search of the job that waits longest, one of each such job in turn."""
        search = self._jobs[0].search
        batch, num_characters = [], 0
        for line, future in self._in_turn([job for job in self._jobs if job.search == search]):
            batch.append((line, future))
            num_characters += len(line)
            if num_characters >= self._most_characters:
                break
        self._jobs.rotate(-1)
        self._jobs = deque(job for job in self._jobs if job.waiting)
        self._metrics.batch_lines.observe(len(batch))
        self._metrics.lines.labels(self._workers.models[search.model].name).inc(len(batch))
        return search, batch

    @staticmethod
    def _in_turn(jobs: Sequence[Job]) -> "Iterator[tuple[str, asyncio.Future[Result]]]":
        left = deque(jobs)
        while left:
            job = left.popleft()
            yield job.waiting.popleft()
            if job.waiting:
                left.append(job)
