"""Turns models of other packages into ours, and ours into theirs.

In: a folder or a repository in a foreign format, or a model of this package. Out: the other. Each format is one file,
which `formats` finds by its name. Imports `model/` and the files above the rooms.
"""

from typing import TYPE_CHECKING

import lazy_loader

from .formats import converters


if TYPE_CHECKING:  # their types; a name that is not here is found all the same
    from .argos import to_argos as to_argos
    from .ctranslate2 import to_ctranslate2 as to_ctranslate2
    from .fsmt import from_fsmt as from_fsmt
    from .marian import from_marian as from_marian
    from .marian import to_marian as to_marian
    from .marian_cpp import from_marian_cpp as from_marian_cpp
    from .marian_cpp import to_marian_cpp as to_marian_cpp
    from .onnx import to_onnx as to_onnx
    from .web import to_web as to_web


__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=converters())
