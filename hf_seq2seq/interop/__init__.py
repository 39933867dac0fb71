"""Models of other packages become ours, and ours theirs: one file for each foreign format."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .ctranslate2 import to_ctranslate2
    from .fsmt import from_fsmt
    from .marian import from_marian, to_marian
    from .onnx import to_onnx


# Imported when first asked for: each format needs libraries that the others do not.
_LAZY = {
    "from_fsmt": ".fsmt",
    "from_marian": ".marian",
    "to_ctranslate2": ".ctranslate2",
    "to_marian": ".marian",
    "to_onnx": ".onnx",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)


__all__ = [
    "from_fsmt",
    "from_marian",
    "to_ctranslate2",
    "to_marian",
    "to_onnx",
]
