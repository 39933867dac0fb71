import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.data import Seq2SeqCollator


Kind = Callable[[list[int]], Any]


class ShiftingModel:
    """The one method of a model that a collator calls."""

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        start = torch.ones_like(labels[:, :1])
        return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == -100, 0)], dim=1)


def features(kind: Kind = list) -> list[dict[str, Any]]:
    return [
        {"input_ids": kind([4, 5, 2]), "labels": kind([6, 2]), "length": 3, "source": "a b"},
        {"input_ids": kind([7, 2]), "labels": kind([8, 9, 4, 2]), "length": 4, "source": "d"},
    ]


def as_lists(batch: Any) -> dict[str, Any]:
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())
    return {name: tensor.tolist() for name, tensor in batch.items()}


EXPECTED = {
    "input_ids": [[4, 5, 2], [7, 2, 0]],
    "attention_mask": [[1, 1, 1], [1, 1, 0]],
    "labels": [[6, 2, -100, -100], [8, 9, 4, 2]],
    "decoder_input_ids": [[1, 6, 2, 0], [1, 8, 9, 4]],
}


# The library's own warning that a list of arrays is slow to make a tensor of.
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_the_same_features_twice_give_the_same_tensors_and_stay_as_they_are(
    letter_tokenizer: PreTrainedTokenizerFast, kind: Kind
) -> None:
    """https://github.com/huggingface/transformers/pull/27333, https://github.com/huggingface/transformers/issues/10452"""
    collator = Seq2SeqCollator(letter_tokenizer, model=ShiftingModel())
    given = features(kind)
    before = copy.deepcopy(given)
    assert as_lists(collator(given)) == EXPECTED
    assert as_lists(collator(given)) == EXPECTED
    assert repr(given) == repr(before)


def test_without_a_model_there_are_no_decoder_inputs(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = Seq2SeqCollator(letter_tokenizer)(features())
    assert as_lists(batch) == {name: rows for name, rows in EXPECTED.items() if name != "decoder_input_ids"}


def test_without_labels_there_is_no_entry_for_them(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/huggingface/transformers/pull/27333"""
    collator = Seq2SeqCollator(letter_tokenizer, model=ShiftingModel())
    unlabelled = [{"input_ids": feature["input_ids"]} for feature in features()]
    for _ in range(2):
        assert as_lists(collator(unlabelled)) == {name: EXPECTED[name] for name in ("input_ids", "attention_mask")}


def test_all_sides_are_padded_to_a_multiple_where_asked(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = Seq2SeqCollator(letter_tokenizer, model=ShiftingModel(), pad_to_multiple_of=8)(features())
    assert {tensor.shape for tensor in batch.values()} == {(2, 8)}


def test_padding_goes_to_the_side_of_the_tokenizer(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(letter_tokenizer)
    tokenizer.padding_side = "left"
    batch = Seq2SeqCollator(tokenizer)(features())
    assert batch["input_ids"].tolist() == [[4, 5, 2], [0, 7, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert batch["labels"].tolist() == [[-100, -100, 6, 2], [8, 9, 4, 2]]
