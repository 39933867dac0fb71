"""Makes batches of tensors from tokenized pairs."""

import copy
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from tokenizers.models import BPE
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase

from hf_seq2seq.token_lookup import Side, encode_sources, encode_targets, side_tokenizer, without_start


@dataclass
class Seq2SeqCollator(DataCollatorForSeq2Seq):
    """Pads sources, targets and, if it has the model, the decoder's inputs; optionally with BPE-dropout.

    It takes the arguments of `DataCollatorForSeq2Seq` and pads as that does: labels with -100, and `decoder_input_ids`
    by `model.prepare_decoder_input_ids_from_labels`. It differs in three points. Columns that are no inputs of the
    model (`length`, texts) are left out, where the stock collator fails. A batch without labels has no entry `labels`,
    where the stock one has None. A `bos_token` before the labels is left out: the model puts its start token there.
    The features are not changed.

    With `bpe_dropout`, each side is tokenized again, and each merge of two pieces is left out with that probability
    (Provilkov et al. 2020, https://arxiv.org/abs/1910.13267, who mostly use 0.1), so that the model sees each word in
    many forms:

    - It is only for training data. For evaluation use `dataclasses.replace(collator, bpe_dropout=0.0)`.
    - A side keeps its tokens if its decoded text does not tokenize to the same tokens (a truncated side, for example),
      or if it would become longer than `tokenizer.model_max_length`.
    - Sides become longer, so a batch made by a token budget may exceed the budget.
    - The tokenizers library draws without a seed, so two runs are not bit-identical. Workers that are forked from a
      process that has already drawn continue from its state, and all draw the same.

    Args:
        bpe_dropout: The probability that a merge is left out, at least 0 and below 1; 0 turns it off.

    Raises:
        ValueError: If `bpe_dropout` is out of range, or is not 0 for a tokenizer that is slow or not BPE.
    """

    bpe_dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(f"`bpe_dropout` must be at least 0 and below 1, but is {self.bpe_dropout} instead.")
        # Not a field, so that `dataclasses.replace` makes a new one.
        self._resegmenter = _Resegmenter(self.tokenizer, self.bpe_dropout) if self.bpe_dropout else None

    def __call__(self, features: list[dict[str, Any]], return_tensors: str | None = None) -> Any:
        """Returns a `BatchEncoding` of `input_ids`, `attention_mask`, `labels` and `decoder_input_ids`.

        Raises:
            ValueError: If there is no feature, or one has no "input_ids".
        """
        if not features:
            raise ValueError("`features` must be at least one pair, but there is none.")
        for feature in features:
            if "input_ids" not in feature:
                raise ValueError(f"Each of `features` must have `input_ids`, but one has only {sorted(feature)}.")
        wanted = {*self.tokenizer.model_input_names, "labels"}
        features = [{name: value for name, value in feature.items() if name in wanted} for feature in features]
        for feature in features:
            if feature.get("labels") is not None:
                feature["labels"] = without_start(self.tokenizer, feature["labels"])
        if self._resegmenter is not None:
            features = self._resegmenter(features)
        batch = super().__call__(features, return_tensors)
        if batch["labels"] is None:
            del batch["labels"]
        return batch


class _Resegmenter:
    """Tokenizes the texts of token ids again, with BPE-dropout, by copies of the tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, dropout: float) -> None:
        for side in get_args(Side):
            one = side_tokenizer(tokenizer, side)
            model = one.backend_tokenizer.model if one.is_fast else None
            if not isinstance(model, BPE):
                kind = "slow" if model is None else type(model).__name__
                raise ValueError(
                    f"`bpe_dropout` must be 0 for a tokenizer that is not a fast BPE tokenizer, but is {dropout} for "
                    f"a tokenizer that is {kind} instead. Leave it out, or train a tokenizer of kind 'bpe'."
                )
        # Calls change a tokenizer's state, and the user's tokenizer must not change.
        self.exact: Any = copy.deepcopy(tokenizer)
        self.dropping: Any = copy.deepcopy(tokenizer)
        for side in get_args(Side):
            side_tokenizer(self.exact, side).backend_tokenizer.model.dropout = None
            side_tokenizer(self.dropping, side).backend_tokenizer.model.dropout = dropout
        # Not `all_special_ids`: a tag that the user added as a special token is a part of the text.
        controls = tokenizer.special_tokens_map.values()
        self.control_ids = {tokenizer.convert_tokens_to_ids(str(token)) for token in controls}

    def __call__(self, features: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the features with other tokens, and without their other columns, which would no longer match."""
        sides: dict[str, Side] = {"input_ids": "source"}
        if features[0].get("labels") is not None:
            sides["labels"] = "target"
        columns = [self._resegment([feature[name] for feature in features], side) for name, side in sides.items()]
        return [dict(zip(sides, row, strict=True)) for row in zip(*columns, strict=True)]

    def _resegment(self, rows: list[Any], side: Side) -> list[list[int]]:
        rows = [np.asarray(row).tolist() for row in rows]
        texts = side_tokenizer(self.exact, side).batch_decode(
            [[token for token in row if token not in self.control_ids] for row in rows],
            clean_up_tokenization_spaces=False,
        )
        options = {"truncation": False, "padding": False, "return_attention_mask": False}
        encode = encode_sources if side == "source" else encode_targets
        exact, dropping = (encode(tokenizer, texts, **options) for tokenizer in (self.exact, self.dropping))
        return [
            drawn if row == again and len(drawn) <= self.exact.model_max_length else row
            for row, again, drawn in zip(rows, exact, dropping, strict=True)
        ]
