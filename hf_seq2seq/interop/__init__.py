"""Turns models of other packages into ours, and ours into theirs.

In: a folder or a repository in a foreign format, or a model of this package. Out: the other. Each format is one file,
which `formats` finds by its name.
"""

from typing import TYPE_CHECKING, Any

from .formats import converters, format_function


if TYPE_CHECKING:  # their types; a name that is not here is found all the same
    from .ctranslate2 import to_ctranslate2 as to_ctranslate2
    from .fsmt import from_fsmt as from_fsmt
    from .marian import from_marian as from_marian
    from .marian import to_marian as to_marian
    from .onnx import to_onnx as to_onnx


_CONVERTERS = converters()

__all__ = list(_CONVERTERS)


def __getattr__(name: str) -> Any:
    if name not in _CONVERTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return format_function(_CONVERTERS[name], name)
