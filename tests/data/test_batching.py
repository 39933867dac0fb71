from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pytest
from accelerate.data_loader import BatchSamplerShard, skip_first_batches
from torch.utils.data import DataLoader

from hf_seq2seq.data import TokenBudgetBatchSampler


BUDGET = 2048

Array = npt.NDArray[np.int64]
Lengths = tuple[Array, Array]


def caption_lengths(num_pairs: int = 29_000) -> Lengths:
    """Lengths like those of 29,000 image captions cut by an 8k vocabulary: mean 15, correlation 0.87."""
    generator = np.random.default_rng(0)
    source = generator.gamma(9.0, 1.6, num_pairs) + 1
    target = source * generator.normal(1.03, 0.17, num_pairs)
    return source.round().clip(3, 60).astype(int), target.round().clip(3, 60).astype(int)


def scattered_lengths(num_pairs: int = 1_000) -> Lengths:
    """Two unrelated lengths for each pair, so that hardly two pairs are of the same shape."""
    generator = np.random.default_rng(0)
    return generator.integers(5, 80, num_pairs), generator.integers(5, 80, num_pairs)


def epochs(sampler: TokenBudgetBatchSampler, num_epochs: int) -> list[list[list[int]]]:
    batches = []
    for epoch in range(num_epochs):
        sampler.set_epoch(epoch)
        batches.append(list(sampler))
    return batches


def costs(batches: list[list[int]], source: Array, target: Array) -> Array:
    return np.array([len(batch) * max(source[batch].max(), target[batch].max()) for batch in batches])


@pytest.mark.parametrize("num_ranks", [1, 2, 7])
@pytest.mark.parametrize("lengths", [caption_lengths(), scattered_lengths()], ids=["captions", "scattered"])
@pytest.mark.parametrize("budget", [80, BUDGET])
def test_each_epoch_holds_each_pair_once_in_as_many_batches_within_the_budget(
    lengths: Lengths, num_ranks: int, budget: int
) -> None:
    sampler = TokenBudgetBatchSampler(*lengths, budget, num_ranks=num_ranks)
    assert len(sampler) % num_ranks == 0
    for batches in epochs(sampler, 3):
        assert len(batches) == len(sampler)
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths[0])))
        assert costs(batches, *lengths).max() <= budget


def test_at_least_96_percent_of_a_batch_of_captions_is_real_tokens() -> None:
    source, target = caption_lengths()
    sampler = TokenBudgetBatchSampler(source, target, BUDGET)
    for batches in epochs(sampler, 2):
        num_padded = sum(len(batch) * (source[batch].max() + target[batch].max()) for batch in batches)
        assert (source.sum() + target.sum()) / num_padded >= 0.96
        assert costs(batches, source, target).mean() >= 0.97 * BUDGET


@pytest.mark.parametrize("lengths", [caption_lengths(), scattered_lengths()], ids=["captions", "scattered"])
def test_epochs_differ_in_the_order_and_in_the_make_up_of_batches(lengths: Lengths) -> None:
    first, second = epochs(TokenBudgetBatchSampler(*lengths, BUDGET), 2)
    first_sets, second_sets = ({frozenset(batch) for batch in batches} for batches in (first, second))
    assert not first_sets & second_sets
    # At most 2 of 3 companions of a pair are met again.
    batch_of = {index: number for number, batch in enumerate(second) for index in batch}
    again = sum(np.sum(np.bincount([batch_of[index] for index in batch]) ** 2) - len(batch) for batch in first)
    assert again < sum(len(batch) * (len(batch) - 1) for batch in first) * 2 / 3
    # The order isn't that of the lengths.
    mean_lengths = [lengths[0][batch].mean() for batch in first]
    assert abs(np.corrcoef(mean_lengths, np.arange(len(first)))[0, 1]) < 0.5


def test_batches_follow_from_the_seed_and_the_epoch_alone() -> None:
    lengths = caption_lengths(2_000)
    sampler = TokenBudgetBatchSampler(*lengths, BUDGET, seed=3)
    expected = epochs(sampler, 3)
    np.random.seed(7)  # the global state must not matter
    later = TokenBudgetBatchSampler(*lengths, BUDGET, seed=3)
    later.set_epoch(2)
    assert list(later) == expected[2]
    assert list(later) == expected[2]
    assert epochs(TokenBudgetBatchSampler(*lengths, BUDGET, seed=4), 1)[0] != expected[0]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_accelerate_deals_the_batches_to_ranks_evenly(num_ranks: int) -> None:
    lengths = caption_lengths(5_000)
    sampler = TokenBudgetBatchSampler(*lengths, 1024, num_ranks=num_ranks)
    ranks = [list(BatchSamplerShard(sampler, num_ranks, rank)) for rank in range(num_ranks)]
    assert {len(batches) for batches in ranks} == {len(sampler) // num_ranks}
    assert sorted(index for batches in ranks for batch in batches for index in batch) == list(range(5_000))
    step_costs = np.array([costs(batches, *lengths) for batches in ranks])
    assert (step_costs.mean(axis=0) / step_costs.max(axis=0)).mean() > 0.97


def test_an_epoch_can_be_resumed_at_any_batch() -> None:
    source, target = caption_lengths(500)
    sampler = TokenBudgetBatchSampler(source, target, 512)
    sampler.set_epoch(1)
    loader: DataLoader[Any] = DataLoader(
        datasets.Dataset.from_dict({"index": range(500)}), batch_sampler=sampler, collate_fn=list
    )
    assert list(skip_first_batches(loader, 5)) == list(loader)[5:]


def test_lengths_are_taken_from_the_two_sides_of_a_tokenized_dataset() -> None:
    source, target = scattered_lengths(100)
    sides = {"input_ids": [[5] * n for n in source], "labels": [[6] * n for n in target], "length": [0] * 100}
    dataset = datasets.Dataset.from_dict(sides)
    expected = list(TokenBudgetBatchSampler(source, target, 200, seed=1, num_ranks=2))
    assert list(TokenBudgetBatchSampler.from_dataset(dataset, 200, seed=1, num_ranks=2)) == expected
    # A dataset whose rows are picked by a list of indices, as those without their over-long pairs are.
    picked = np.arange(0, 100, 3)
    expected = list(TokenBudgetBatchSampler(source[picked], target[picked], 200))
    assert list(TokenBudgetBatchSampler.from_dataset(dataset.select(picked), 200)) == expected


def test_a_pair_longer_than_the_budget_is_named() -> None:
    with pytest.raises(ValueError, match=r"`tokens_per_batch` must .* but is 8 while pair 1 has 9 tokens\. Raise it"):
        TokenBudgetBatchSampler([3, 4, 5], [3, 9, 8], 8)


@pytest.mark.parametrize(("source", "target"), [([1, 2], [1]), ([], [])])
def test_each_pair_must_have_both_lengths(source: list[int], target: list[int]) -> None:
    message = f"must hold one length for each pair, but hold {len(source)} and {len(target)} lengths instead"
    with pytest.raises(ValueError, match=message):
        TokenBudgetBatchSampler(source, target, 8)


def test_too_few_pairs_for_the_ranks_are_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"must be a multiple of `num_ranks` \(4\), but is 3, with one pair in each. Raise"
    ):
        TokenBudgetBatchSampler([5, 6, 7], [5, 6, 7], 8, num_ranks=4)
