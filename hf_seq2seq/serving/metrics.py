"""What a server counts, in the format of Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Metrics:
    """The counts of one server.

    Attributes:
        requests: Answered requests by path and status.
        seconds: How long the answers took, by path.
        lines: Lines that were given to workers, by model.
        batch_lines: Lines of a batch.
        waiting: Lines that wait for a worker.
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("hf_seq2seq_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.seconds = Histogram("hf_seq2seq_request_seconds", "Time to an answer.", ["path"], registry=registry)
        self.lines = Counter("hf_seq2seq_lines", "Lines given to workers.", ["model"], registry=registry)
        self.batch_lines = Histogram(
            "hf_seq2seq_batch_lines", "Lines of a batch.", buckets=[2**power for power in range(11)], registry=registry
        )
        self.waiting = Gauge("hf_seq2seq_lines_waiting", "Lines that wait for a worker.", registry=registry)

    def answer(self) -> Response:
        """Returns all counts as Prometheus reads them."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class CountRequests:
    """Counts requests, and measures how long they take.

    Args:
        app: The server's application.
        metrics: Where they are counted.
        paths: The server's own paths; others are counted together, since anyone can invent them.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, and counts it when it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = "none", time.perf_counter()

        async def count_and_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        try:
            await self._app(scope, receive, count_and_send)
        finally:
            self._metrics.requests.labels(path, status).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - start)
