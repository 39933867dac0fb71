"""The Transformer of the paper: the files of this room travel with published checkpoints.

In: token ids. Out: logits, a loss, or generated ids. The files import nothing of the package but each other.
Importing this room registers its classes with transformers' Auto classes.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .generation_seq2seq_transformer import PAPER_SEARCH
from .modeling_seq2seq_transformer import (
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerModel,
    Seq2SeqTransformerPreTrainedModel,
)


AutoConfig.register(Seq2SeqTransformerConfig.model_type, Seq2SeqTransformerConfig)
AutoModel.register(Seq2SeqTransformerConfig, Seq2SeqTransformerModel)
AutoModelForSeq2SeqLM.register(Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration)

__all__ = [
    "PAPER_SEARCH",
    "Seq2SeqTransformerConfig",
    "Seq2SeqTransformerForConditionalGeneration",
    "Seq2SeqTransformerModel",
    "Seq2SeqTransformerPreTrainedModel",
]
