"""Share a model on the Hugging Face Hub: its files, the code that loads it, and its card."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .card import CardFacts, make_card
    from .publishing import Publication, push, save_for_hub
    from .stock_trainer import prepare_trainer


# Imported when first asked for: a card needs no tokenizer, and training without the Hub needs neither.
_LAZY = {
    "CardFacts": ".card",
    "Publication": ".publishing",
    "make_card": ".card",
    "prepare_trainer": ".stock_trainer",
    "push": ".publishing",
    "save_for_hub": ".publishing",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)


__all__ = ["CardFacts", "Publication", "make_card", "prepare_trainer", "push", "save_for_hub"]
