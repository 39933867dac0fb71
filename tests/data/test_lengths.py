"""Lengths are read from their columns, or counted where a dataset has none."""

import numpy as np
import pytest
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.data import TokenBudgetBatchSampler, tokenize_pairs
from hf_seq2seq.data.lengths import side_lengths


@pytest.fixture
def tokenized(letter_tokenizer: PreTrainedTokenizerFast) -> Dataset:
    texts = Dataset.from_dict({"source": ["a b", "d", "a b c"], "target": ["c", "e f a", "a"]})
    return tokenize_pairs(texts, letter_tokenizer, max_length=4)


def test_the_lengths_of_tokenized_pairs_are_their_columns(tokenized: Dataset) -> None:
    changed = tokenized.remove_columns("source_length").add_column("source_length", [7, 8, 9])
    assert side_lengths(changed, "source").tolist() == [7, 8, 9]
    assert side_lengths(tokenized, "target").tolist() == [2, 4, 2]


def test_the_lengths_of_pairs_made_by_hand_are_counted() -> None:
    by_hand = Dataset.from_list([{"input_ids": [5] * 3, "labels": [6]}, {"input_ids": [5], "labels": [6] * 4}])
    assert side_lengths(by_hand, "source").tolist() == [3, 1]
    assert side_lengths(by_hand.select_columns("input_ids"), "source").tolist() == [3, 1]
    assert side_lengths(by_hand.select([1, 0]), "target").tolist() == [4, 1]


def test_batches_are_the_same_whether_lengths_are_read_or_counted(tokenized: Dataset) -> None:
    by_hand = tokenized.select_columns(["input_ids", "labels"])
    samplers = [TokenBudgetBatchSampler.from_dataset(pairs, 8, seed=3) for pairs in (tokenized, by_hand)]
    assert list(samplers[0]) == list(samplers[1])
    assert np.sort(np.concatenate(list(samplers[0]))).tolist() == [0, 1, 2]
