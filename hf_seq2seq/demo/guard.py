"""Lets through only what the demo page itself sends to its server, which has more doors than the page needs."""

from typing import Any

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hf_seq2seq.serving.guard import is_foreign, is_too_large


# Where the page's own scripts send data. The other doors of a gradio server store what they get, or run its functions.
DATA_PATHS = ("/queue/join", "/cancel", "/reset", "/login")
MOST_BYTES = 1_000_000  # so that a person who pastes a book is told by the page that it is too long


class PageRequestsOnly:
    """Refuses data that the page does not send, and all requests that scripts of other pages make.

    Args:
        app: The server's application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it before anything of its body is read."""
        refusal = _refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)


def app_options() -> dict[str, Any]:
    """Returns the arguments of FastAPI with which a server answers only its own page."""
    return {"middleware": [Middleware(PageRequestsOnly)], "exception_handlers": {KeyError: _say_unknown}}


def _refusal(scope: Scope) -> PlainTextResponse | None:
    headers = Headers(scope=scope)
    if is_foreign(headers):
        return PlainTextResponse("This page answers no requests of other pages.", 403)
    if scope["method"] in ("GET", "HEAD"):
        return None
    if scope["method"] != "POST" or not scope["path"].rstrip("/").endswith(DATA_PATHS):
        return PlainTextResponse("This page takes nothing here.", 403)
    if is_too_large(headers, MOST_BYTES):
        return PlainTextResponse(f"This page takes at most {MOST_BYTES} bytes, and wants to know their number.", 413)
    return None


def _say_unknown(request: Request, error: Exception) -> PlainTextResponse:
    """Answers what gradio takes for a fault of its own: a number that no event of the page has."""
    return PlainTextResponse(f"This page has no {error}.", 404)
