"""Refuses requests before anything of their body is read: those of other sites' pages, and too large ones."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers


ANY_ORIGIN = "*"


def is_foreign(headers: Headers, allowed: Collection[str] = ()) -> bool:
    """Returns whether a request was made by a script of a page from elsewhere.

    Args:
        headers: The request's headers.
        allowed: Origins of other pages that may ask, such as "https://example.org", or `ANY_ORIGIN`.
    """
    origin = headers.get("origin")  # browsers name it in all requests but those for a whole page
    if origin is None or origin in allowed or ANY_ORIGIN in allowed:
        return False
    # A proxy, such as that of a Space, tells the address that the browser asked for.
    return urlsplit(origin).netloc not in (headers.get("host"), headers.get("x-forwarded-host"))


def is_too_large(headers: Headers, most_bytes: int) -> bool:
    """Returns whether a request's body is larger than some bytes, or of unknown size."""
    length = headers.get("content-length", "")
    return not length.isdecimal() or int(length) > most_bytes
