"""The Transformer of the paper: the files of this room travel with published checkpoints.

In: token ids. Out: logits, a loss, or generated ids. The files import nothing of the package but each other.
"""

from .configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .modeling_seq2seq_transformer import (
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerModel,
    Seq2SeqTransformerPreTrainedModel,
)


__all__ = [
    "Seq2SeqTransformerConfig",
    "Seq2SeqTransformerForConditionalGeneration",
    "Seq2SeqTransformerModel",
    "Seq2SeqTransformerPreTrainedModel",
]
