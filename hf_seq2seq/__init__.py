"""The original encoder-decoder Transformer (Vaswani et al. 2017) as a part of the Hugging Face ecosystem.

Importing this package registers its classes with transformers' AutoConfig, AutoModel and AutoModelForSeq2SeqLM.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .model.modeling_seq2seq_transformer import (
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerModel,
    Seq2SeqTransformerPreTrainedModel,
)


if TYPE_CHECKING:
    from .inference.translator import Translator
    from .tokenization import train_tokenizer


__version__ = "0.1.0.dev0"

AutoConfig.register(Seq2SeqTransformerConfig.model_type, Seq2SeqTransformerConfig)
AutoModel.register(Seq2SeqTransformerConfig, Seq2SeqTransformerModel)
AutoModelForSeq2SeqLM.register(Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration)


def _make_card(model: Seq2SeqTransformerPreTrainedModel, repo_id: str, tags: list[str]) -> str:
    from .hub.card import CardFacts, make_card

    card = make_card(CardFacts(), model.config, repo_id=repo_id)
    card.data["tags"] = list(dict.fromkeys([*card.data["tags"], *tags]))
    return str(card)


# The modeling file travels without the package, so it is told how a card is made.
Seq2SeqTransformerPreTrainedModel.make_card = _make_card

# Names that are imported when first asked for, since what they need (datasets, tokenizers' trainers) costs seconds.
_LAZY = {"Translator": ".inference.translator", "train_tokenizer": ".tokenization"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)


__all__ = [
    "Seq2SeqTransformerConfig",
    "Seq2SeqTransformerForConditionalGeneration",
    "Seq2SeqTransformerModel",
    "Seq2SeqTransformerPreTrainedModel",
    "Translator",
    "train_tokenizer",
]
