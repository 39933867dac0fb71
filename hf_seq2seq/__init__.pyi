from .inference.translator import Translator
from .model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .model.generation_seq2seq_transformer import PAPER_SEARCH
from .model.modeling_seq2seq_transformer import (
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerModel,
    Seq2SeqTransformerPreTrainedModel,
)
from .tokenization import train_tokenizer

__version__: str
__all__ = [
    "PAPER_SEARCH",
    "Seq2SeqTransformerConfig",
    "Seq2SeqTransformerForConditionalGeneration",
    "Seq2SeqTransformerModel",
    "Seq2SeqTransformerPreTrainedModel",
    "Translator",
    "train_tokenizer",
]
