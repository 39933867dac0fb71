"""What every exporter asks of a model."""

from typing import Any

from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


def check_model(model: Any) -> None:
    """Raises TypeError unless the model is ours and has an output projection."""
    if not isinstance(model, Seq2SeqTransformerForConditionalGeneration):
        raise TypeError(
            f"`model` must be a Seq2SeqTransformerForConditionalGeneration, but is a {type(model).__name__} instead. "
            "Merge adapters into the model, and export that."
        )
