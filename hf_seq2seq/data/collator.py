"""Make a batch of tensors from tokenized pairs."""

from dataclasses import dataclass
from typing import Any

from transformers import DataCollatorForSeq2Seq


@dataclass
class Seq2SeqCollator(DataCollatorForSeq2Seq):
    """Pad sources, targets and, given the model, the decoder's inputs.

    Takes the arguments of `DataCollatorForSeq2Seq` and pads as it does (labels with -100, `decoder_input_ids` from
    `model.prepare_decoder_input_ids_from_labels`). What differs is what other columns do: those that the tokenizer
    doesn't name as model inputs (`length`, texts) are left out instead of failing, and a batch without labels has no
    entry for them instead of a None. The features stay as they are.
    """

    def __call__(self, features: list[dict[str, Any]], return_tensors: str | None = None) -> Any:
        """Return a `BatchEncoding` of `input_ids`, `attention_mask`, `labels` and `decoder_input_ids`."""
        wanted = {*self.tokenizer.model_input_names, "labels"}
        batch = super().__call__(
            [{name: value for name, value in feature.items() if name in wanted} for feature in features],
            return_tensors,
        )
        if batch["labels"] is None:
            del batch["labels"]
        return batch
