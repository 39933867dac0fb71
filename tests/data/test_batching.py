from collections.abc import Iterator
from itertools import islice
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pytest
from accelerate.data_loader import BatchSamplerShard, skip_first_batches
from torch.utils.data import DataLoader

from hf_seq2seq.data import TokenBudgetBatchSampler, TokenBudgetStream


BUDGET = 2048

Array = npt.NDArray[np.int64]
Lengths = tuple[Array, Array]


def caption_lengths(num_pairs: int = 29_000) -> Lengths:
    """Lengths like those of 29,000 image captions cut by an 8k vocabulary: mean 15, correlation 0.87."""
    generator = np.random.default_rng(0)
    source = generator.gamma(9.0, 1.6, num_pairs) + 1
    target = source * generator.normal(1.03, 0.17, num_pairs)
    return source.round().clip(3, 60).astype(int), target.round().clip(3, 60).astype(int)


def lognormal_lengths(num_pairs: int = 29_000) -> Lengths:
    """Captions with a heavier tail: log-lengths of deviation 0.35, correlation 0.75."""
    generator = np.random.default_rng(0)
    logs = generator.multivariate_normal([2.6, 2.65], 0.35**2 * np.array([[1, 0.75], [0.75, 1]]), num_pairs)
    source, target = (np.exp(logs.T).round() + 1).astype(int)
    return source, target


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


@pytest.mark.parametrize(
    ("lengths", "share"), [(caption_lengths(), 0.96), (lognormal_lengths(), 0.93)], ids=["captions", "lognormal"]
)
def test_hardly_any_of_a_batch_of_captions_is_padding(lengths: Lengths, share: float) -> None:
    source, target = lengths
    sampler = TokenBudgetBatchSampler(source, target, BUDGET)
    for batches in epochs(sampler, 2):
        num_padded = sum(len(batch) * (source[batch].max() + target[batch].max()) for batch in batches)
        assert (source.sum() + target.sum()) / num_padded >= share
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


def test_a_negative_length_is_named() -> None:
    with pytest.raises(ValueError, match="must be at least 0, but one is -2 instead"):
        TokenBudgetBatchSampler([3, 4], [3, -2], 8)


def test_too_few_pairs_for_the_ranks_are_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"must be a multiple of `num_ranks` \(4\), but is 3, with one pair in each. Raise"
    ):
        TokenBudgetBatchSampler([5, 6, 7], [5, 6, 7], 8, num_ranks=4)


Rows = list[dict[str, Any]]


def length_rows(source: Array, target: Array, first: int = 0) -> Iterator[dict[str, Any]]:
    for number, (source_length, target_length) in enumerate(zip(source, target, strict=True), first):
        yield {"input_ids": [number] * source_length, "labels": [number] * target_length, "length": 0}


def make_stream(source: Array, target: Array) -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(length_rows, gen_kwargs={"source": source, "target": target})


def numbers(batch: Rows) -> list[int]:
    return [row["input_ids"][0] for row in batch]


def passes(batches: Iterator[Rows], num_pairs: int, num_passes: int = 1) -> list[Rows]:
    """Return the batches of the first passes over the pairs, which the windows of these tests end with."""
    taken: list[Rows] = []
    while sum(map(len, taken)) < num_pairs * num_passes:
        taken.append(next(batches))
    assert sum(map(len, taken)) == num_pairs * num_passes
    return taken


def test_each_window_of_a_stream_is_batched_as_an_epoch_of_a_dataset() -> None:
    source, target = caption_lengths(600)
    stream = TokenBudgetStream(make_stream(source, target), 512, seed=3, window_size=200)
    batches = iter(stream)
    for window in range(6):  # two passes
        part = slice(200 * (window % 3), 200 * (window % 3) + 200)
        sampler = TokenBudgetBatchSampler(source[part], target[part], 512, seed=3)
        sampler.set_epoch(window)
        expected = [[part.start + index for index in batch] for batch in sampler]
        assert [numbers(batch) for batch in islice(batches, len(sampler))] == expected
    assert next(iter(stream))[0].keys() == {"input_ids", "labels", "length"}


def test_a_stream_gives_the_same_batches_again_and_others_for_another_seed() -> None:
    rows = make_stream(*caption_lengths(300))
    stream = TokenBudgetStream(rows, 512, seed=1, window_size=150)
    first = passes(iter(stream), 300, num_passes=2)
    np.random.seed(7)  # the global state must not matter
    assert passes(iter(stream), 300, num_passes=2) == first
    assert passes(iter(TokenBudgetStream(rows, 512, seed=2, window_size=150)), 300) != first[: len(first) // 2]


@pytest.mark.parametrize("num_pairs", [1, 7, 300])
def test_a_window_reaches_across_the_end_of_a_stream_that_starts_again(num_pairs: int) -> None:
    lengths = caption_lengths(num_pairs)
    batches = passes(iter(TokenBudgetStream(make_stream(*lengths), 512, window_size=3 * num_pairs)), num_pairs, 3)
    counts = np.bincount([number for batch in batches for number in numbers(batch)])
    assert counts.tolist() == [3] * num_pairs
    assert all(len(batch) * max(len(row["input_ids"]) for row in batch) <= 512 for batch in batches)


def test_ranks_share_a_stream_without_common_pairs() -> None:
    lengths = caption_lengths(600)
    ranks = [
        TokenBudgetStream(make_stream(*lengths), 512, num_ranks=3, rank=rank, window_size=100) for rank in range(3)
    ]
    for rank, stream in enumerate(ranks):
        seen = sorted(number for batch in passes(iter(stream), 200) for number in numbers(batch))
        assert seen == list(range(rank, 600, 3))


def test_a_window_holds_10_000_pairs_or_more_if_50_batches_need_them() -> None:
    source = np.full(70_000, 10)
    rows = make_stream(source, source)
    for budget, window in ((100, 10_000), (10_000, 50_000)):
        batches = iter(TokenBudgetStream(rows, budget))
        first = [number for batch in islice(batches, 10 * window // budget) for number in numbers(batch)]
        assert sorted(first) == list(range(window))
        assert max(first[: window // 10]) > 0.9 * window  # one window, not several


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_data_loader_collates_the_batches_of_a_stream(num_workers: int) -> None:
    """The stream is one shard, so that a second worker has nothing to do."""
    rows = make_stream(*caption_lengths(300))
    stream = TokenBudgetStream(rows, 512, window_size=300)
    loader: DataLoader[Any] = DataLoader(stream, batch_size=None, collate_fn=numbers, num_workers=num_workers)
    expected = passes(iter(stream), 300)
    assert list(islice(loader, len(expected))) == [numbers(batch) for batch in expected]


def test_workers_share_the_shards_of_a_stream() -> None:
    source, target = caption_lengths(400)
    rows = datasets.Dataset.from_list(list(length_rows(source, target))).to_iterable_dataset(num_shards=4)
    stream = TokenBudgetStream(rows, 512, window_size=200)
    loader: DataLoader[Any] = DataLoader(stream, batch_size=None, collate_fn=numbers, num_workers=2)
    seen = [set(), set()]  # type: list[set[int]]
    for step, batch in enumerate(islice(loader, 40)):
        seen[step % 2].update(batch)
    assert not seen[0] & seen[1]
    assert seen[0] | seen[1] == set(range(400))


def test_a_pair_of_a_stream_that_is_longer_than_the_budget_is_named() -> None:
    source, target = np.array([3, 4, 5, 6]), np.array([3, 4, 8, 9])
    stream = TokenBudgetStream(make_stream(source, target), 8, num_ranks=2, rank=1)
    with pytest.raises(
        ValueError, match=r"`tokens_per_batch` must .* but is 8 while pair 3 of the stream has 9 tokens"
    ):
        next(iter(stream))


def test_a_stream_without_a_pair_for_each_rank_is_an_error() -> None:
    stream = TokenBudgetStream(make_stream(np.array([3]), np.array([3])), 8, num_ranks=2, rank=1)
    with pytest.raises(ValueError, match="at least one pair for each of the 2 ranks, but holds none for rank 1"):
        next(iter(stream))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_ranks": 2, "rank": 2}, r"`rank` must be from 0 to `num_ranks` - 1 \(1\), but is 2 instead"),
        ({"window_size": 0}, "`window_size` must be at least 1, but is 0 instead"),
    ],
)
def test_ranks_and_windows_out_of_range_are_errors(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenBudgetStream(make_stream(np.array([3]), np.array([3])), 8, **options)
