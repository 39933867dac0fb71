from .card import CardFacts, make_card
from .publishing import Publication, push
from .saving import save_for_hub
from .stock_trainer import prepare_trainer

__all__ = [
    "CardFacts",
    "Publication",
    "make_card",
    "prepare_trainer",
    "push",
    "save_for_hub",
]
