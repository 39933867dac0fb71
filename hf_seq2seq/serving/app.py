"""The paths of the server."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from pydantic.json_schema import models_json_schema
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hf_seq2seq import __version__

from .answers import Text, answer, describe
from .guard import is_foreign, is_too_large
from .line_queue import Job, LineQueue, QueueFullError
from .messages import Failure, Result, Search, Translation
from .metrics import CountRequests, Metrics
from .models import ServedModels, UnknownLanguageError
from .requests import Asked, HuggingFaceRequest, LibreTranslateRequest, RefusedError, read
from .worker import Workers


NDJSON = "application/x-ndjson"
_PATHS = ("/translate", "/languages", "/health", "/v1/models", "/metrics", "/docs", "/openapi.json")
_SCHEMAS = "#/components/schemas/{model}"


@dataclass(frozen=True)
class Limits:
    """What a server takes.

    Attributes:
        characters: The most characters of a request.
        texts: The most texts of a request.
        queue: The most lines that wait for their translation.
        api_key: What a request for translations must come with; None for nothing.
        origins: Other sites whose pages may ask, such as "https://example.org"; "*" for all.
    """

    characters: int = 100_000
    texts: int = 1_000
    queue: int = 10_000
    api_key: str | None = None
    origins: Collection[str] = ()

    @property
    def bytes(self) -> int:
        """The most bytes of a request. A character may take twelve, as a pair of escapes."""
        return 65_536 + 12 * self.characters + 16 * self.texts


class GuardedRequests:
    """Refuses what other sites' pages ask for, and what is too large to be read.

    Args:
        app: The server's application.
        limits: What is allowed.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it before anything of its body is read."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if is_foreign(headers, self._limits.origins):
            return _error(403, "This server answers no requests of other sites' pages.")
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and is_too_large(headers, self._limits.bytes):
            return _error(
                413, f"This server takes at most {self._limits.bytes:,} bytes, and wants to know their number."
            )
        return None


class TranslationService:
    """Answers requests by the workers of a server.

    Args:
        workers: Who translates.
        limits: What is taken.
        metrics: What counts.

    Attributes:
        models: The models, and the languages they translate.
        queue: The lines of all requests.
    """

    def __init__(self, workers: Workers, limits: Limits, metrics: Metrics) -> None:
        self.models = ServedModels(workers.models)
        self.queue = LineQueue(workers, limits.queue, metrics)
        self._limits = limits

    async def translate(self, request: Request) -> Response:
        """Translates texts."""
        asked = await read(request)
        self._check(asked)
        search = self._search(asked)
        texts = [Text.split(text) for text in asked.texts]
        job = self._put(search, [line for text in texts for line in text.to_translate])
        whole = _whole_texts(asked, texts, job)
        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(self._stream(asked, whole, job), media_type=NDJSON)
        try:
            results = await _unless_gone(request, whole)
        finally:
            self.queue.withdraw(job)
        for result in results:
            if isinstance(result, Failure):
                raise RefusedError(result.status, result.message)
        return JSONResponse(answer(asked, [found for found in results if isinstance(found, Translation)]))

    def _check(self, asked: Asked) -> None:
        key = self._limits.api_key
        if key is not None and not hmac.compare_digest((asked.key or "").encode(), key.encode()):
            raise RefusedError(
                403, "The request must come with the server's key, as `api_key` or as a bearer token, but does not."
            )
        num_characters = sum(len(text) for text in asked.texts)
        if len(asked.texts) > self._limits.texts:
            raise RefusedError(
                413, f"A request must have at most {self._limits.texts:,} texts, but has {len(asked.texts):,} instead."
            )
        if num_characters > self._limits.characters:
            raise RefusedError(
                413,
                f"The texts of a request must have at most {self._limits.characters:,} characters, but have "
                f"{num_characters:,} instead.",
            )

    def _search(self, asked: Asked) -> Search:
        try:
            number = self.models.find(asked.source, asked.target)
        except UnknownLanguageError as error:
            raise RefusedError(400, str(error)) from error
        return Search(number, tuple(sorted(asked.options.items())), asked.scores, asked.alignments)

    def _put(self, search: Search, lines: Sequence[str]) -> Job:
        if len(lines) > self._limits.queue:
            raise RefusedError(
                413, f"A request must have at most {self._limits.queue:,} lines, but has {len(lines):,} instead."
            )
        try:
            return self.queue.put(search, lines)
        except QueueFullError as error:
            raise RefusedError(429, "Too many texts wait for their translation. Try again later.") from error

    async def _stream(self, asked: Asked, whole: "Sequence[asyncio.Future[Result]]", job: Job) -> AsyncIterator[str]:
        """Yields a line of JSON for each text as soon as it is translated."""
        numbers = {future: number for number, future in enumerate(whole)}
        left = set(whole)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for future in sorted(done, key=lambda future: numbers[future]):
                    result = future.result()
                    row = {"error": result.message} if isinstance(result, Failure) else describe(asked, result)
                    yield json.dumps({"index": numbers[future], **row}, ensure_ascii=False) + "\n"
        finally:  # the client may have gone
            self.queue.withdraw(job)
            for future in left:
                future.cancel()

    async def languages(self) -> list[dict[str, Any]]:
        """Names the languages that are translated."""
        return self.models.languages()

    async def health(self) -> dict[str, str]:
        """Says that the server answers."""
        return {"status": "ok"}

    async def list_models(self) -> dict[str, Any]:
        """Lists the models, as clients of OpenAI's servers ask for it."""
        data = [
            {
                "id": model.name,
                "object": "model",
                "created": self._started,
                "owned_by": "hf_seq2seq",
                "languages": [{"source": source, "target": target} for source, target in model.pairs],
            }
            for model in self.models.models
        ]
        return {"object": "list", "data": data}

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """Lets the workers translate while the server runs."""
        self._started = int(time.time())
        async with self.queue.running():
            yield


def make_app(workers: Workers, limits: Limits | None = None) -> FastAPI:
    """Returns a server's application, for uvicorn or another ASGI server.

    Its paths are POST /translate, GET /languages, /health, /v1/models, /metrics, /docs and /openapi.json.

    Args:
        workers: Who translates. They end with the application.
        limits: What it takes.

    Raises:
        ValueError: If one of several models has no languages, or two have the same.
    """
    limits, metrics = limits or Limits(), Metrics()
    service = TranslationService(workers, limits, metrics)
    app = FastAPIOffline(
        redoc_url=None,
        swagger_ui_parameters={"validatorUrl": None},  # the page would send the description to another server
        title="hf-seq2seq",
        version=__version__,
        lifespan=service.running,
        middleware=[
            Middleware(CountRequests, metrics=metrics, paths=frozenset(_PATHS)),
            Middleware(GuardedRequests, limits=limits),
            Middleware(CORSMiddleware, allow_origins=list(limits.origins), allow_headers=["*"]),
        ],
        exception_handlers={RefusedError: _say_refused, HTTPException: _say_http, Exception: _say_failed},
    )
    app.post("/translate", openapi_extra={"requestBody": _body()})(service.translate)
    app.get("/languages")(service.languages)
    app.get("/health")(service.health)
    app.get("/v1/models")(service.list_models)
    app.get("/metrics", response_class=Response)(metrics.answer)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _whole_texts(asked: Asked, texts: Sequence[Text], job: Job) -> "Sequence[asyncio.Future[Result]]":
    """Returns for each text what will have become of it."""

    async def join(text: Text, results: "Sequence[asyncio.Future[Result]]") -> Result:
        return text.join([await result for result in results], asked.num_hypotheses)

    left = iter(job.results)
    return [asyncio.ensure_future(join(text, [next(left) for _ in text.to_translate])) for text in texts]


async def _unless_gone(request: Request, results: "Sequence[asyncio.Future[Result]]") -> list[Result]:
    """Waits for results, but not longer than the client does."""
    everything = asyncio.gather(*results)
    gone = asyncio.ensure_future(_disconnection(request))
    gone.add_done_callback(lambda _: everything.cancel())
    try:
        return await everything
    except asyncio.CancelledError as error:
        if not gone.done():  # it is the server that ends
            raise
        raise RefusedError(499, "The client has gone.") from error
    finally:
        gone.cancel()


async def _disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status, {"Retry-After": "1"} if status == 429 else None)


def _say_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _error(error.status, error.message)


def _say_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail)


def _say_failed(request: Request, error: Exception) -> Response:
    return _error(500, "The server failed. Its log tells why.")


def _body() -> dict[str, Any]:
    """Returns how the documentation describes the body of a request for translations."""
    names = [schema.__name__ for schema in (LibreTranslateRequest, HuggingFaceRequest)]
    libretranslate, hugging_face = ({"$ref": _SCHEMAS.format(model=name)} for name in names)
    return {
        "required": True,
        "content": {
            "application/json": {"schema": {"anyOf": [libretranslate, hugging_face]}},
            "application/x-www-form-urlencoded": {"schema": libretranslate},
        },
    }


def _describe(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI description, with the schemas of bodies that FastAPI does not read itself."""
    description = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, schemas = models_json_schema(
        [(LibreTranslateRequest, "validation"), (HuggingFaceRequest, "validation")], ref_template=_SCHEMAS
    )
    description.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
    return description
