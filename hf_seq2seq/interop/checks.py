"""The check of a model that all exporters share."""

from typing import Any

from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


def check_model(model: Any) -> None:
    """Checks the class of a model.

    Raises:
        TypeError: If it is not a model of this package with an output projection.
    """
    if not isinstance(model, Seq2SeqTransformerForConditionalGeneration):
        raise TypeError(
            f"`model` must be a Seq2SeqTransformerForConditionalGeneration, but is a {type(model).__name__} instead. "
            "Merge adapters into the model, and export that."
        )
