"""Evaluation takes every pair in order, in batches within a budget, on any number of ranks."""

import random

import numpy as np
import pytest

from hf_seq2seq.data.evaluation_batching import InOrderBatchSampler


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("num_pairs", [1, 2, 7, 100])
@pytest.mark.parametrize("max_tokens", [None, 30])
def test_the_ranks_side_by_side_give_each_pair_once_in_order(
    num_pairs: int, num_ranks: int, max_tokens: int | None
) -> None:
    draw = random.Random(num_pairs)
    lengths = np.array([draw.randint(1, 12) for _ in range(num_pairs)])
    ranks = [
        list(InOrderBatchSampler(num_pairs, 8, lengths, max_tokens, num_ranks=num_ranks, rank=rank))
        for rank in range(num_ranks)
    ]
    order = []
    for step in zip(*ranks, strict=True):
        assert len({len(batch) for batch in step}) == 1  # else they could not be gathered
        assert 1 <= len(step[0]) <= 8
        for batch in step:
            order += batch
            if max_tokens is not None:
                assert len(batch) * max(lengths[batch]) <= max_tokens
    assert order[:num_pairs] == list(range(num_pairs))
    assert set(order[num_pairs:]) <= {num_pairs - 1}
    assert len(order) < num_pairs + num_ranks


def test_a_batch_is_as_large_as_the_budget_allows() -> None:
    lengths = np.array([2, 3, 3, 9, 1, 1, 20, 4])
    assert list(InOrderBatchSampler(8, 3, lengths, 10)) == [[0, 1, 2], [3], [4, 5], [6], [7]]
    assert list(InOrderBatchSampler(5, 3)) == [[0, 1, 2], [3, 4]]
