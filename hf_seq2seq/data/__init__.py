"""From pairs of texts to batches: read, filter, mix, tokenize, batch by a token budget, collate."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .batching import TokenBudgetBatchSampler, TokenBudgetStream
    from .collator import Seq2SeqCollator
    from .filtering import filter_pairs
    from .mixing import mix_corpora
    from .reading import load_parallel, read_lines
    from .tokenizing import tokenize_pairs


# Imported when first asked for: reading lines needs nothing heavy, while datasets alone costs seconds.
_LAZY = {
    "Seq2SeqCollator": ".collator",
    "TokenBudgetBatchSampler": ".batching",
    "TokenBudgetStream": ".batching",
    "filter_pairs": ".filtering",
    "load_parallel": ".reading",
    "mix_corpora": ".mixing",
    "read_lines": ".reading",
    "tokenize_pairs": ".tokenizing",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)


__all__ = [
    "Seq2SeqCollator",
    "TokenBudgetBatchSampler",
    "TokenBudgetStream",
    "filter_pairs",
    "load_parallel",
    "mix_corpora",
    "read_lines",
    "tokenize_pairs",
]
