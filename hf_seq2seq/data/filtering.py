"""Drops pairs that would teach a model little or something wrong, and logs how many.

The whole package drops pairs by `drop_pairs`, from a `Dataset` as from a stream (an `IterableDataset`).
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray


if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


logger = logging.getLogger(__name__)

Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]

# Returns for each pair of an Arrow table 0 to keep it, or the number of the reason to drop it: 1, 2 ...
Judge = Callable[[Any], NDArray[np.int64]]

# A batch with fewer pairs marks the end of a stream. The size is a prime, so that a stream of a round number of pairs
# ends with such a batch; and small, since the datasets library makes the key of each row from the keys of all rows in
# its batch, which takes longer for larger ones.
STREAM_BATCH_SIZE = 199

FIRST_REPORT = 10_000  # pairs of a stream before the first log message


def filter_pairs(
    dataset: "Dataset | IterableDataset",
    *,
    min_characters: int | None = None,
    max_characters: int | None = None,
    max_length_ratio: float | None = None,
    drop_duplicates: bool = False,
    drop_identical: bool = False,
) -> "Dataset | IterableDataset":
    """Drops pairs by rules, all of which are off by default.

    The number of pairs that each rule drops is logged if it is not 0. A pair that several rules match counts for the
    first of them: length, ratio, identical sides, duplicates.

    A stream is filtered while it is read. In its first pass it logs its numbers after 10,000 pairs, 100,000 and so on,
    and at its end, except if the number of its pairs is a multiple of 199, since its end cannot be noticed then.

    Args:
        dataset: Pairs in the text columns "source" and "target", as `load_parallel` returns them.
        min_characters: The smallest number of Unicode characters of a side.
        max_characters: The largest number of Unicode characters of a side.
        max_length_ratio: The largest ratio of the longer side's characters to the shorter side's.
        drop_duplicates: Whether to drop a pair if an earlier one has the same source and the same target. Not for a
            stream.
        drop_identical: Whether to drop a pair if its sides are the same, apart from white space around them.

    Returns:
        The dataset or stream without the dropped pairs.

    Raises:
        ValueError: If a value is out of range, `drop_duplicates` is given for a stream, or no pair is left (in a
            stream, when its end is reached).
    """
    from datasets import IterableDataset

    rules = _rules(min_characters, max_characters, max_length_ratio, drop_identical)
    if drop_duplicates and isinstance(dataset, IterableDataset):
        raise ValueError(
            "`drop_duplicates` must be False for a stream, but is True instead: all pairs read would have to be kept "
            "in memory. Load the pairs without streaming, or take duplicates out of the files."
        )
    if rules:
        tally = Tally(
            num_reasons=len(rules),
            report=partial(_report, list(rules)),
            nothing_left="The filters must leave at least one pair, but leave none. Make them less strict.",
        )
        dataset = drop_pairs(dataset, partial(_judge, list(rules.values())), tally)
    return _drop_duplicates(dataset) if drop_duplicates else dataset


def _rules(
    min_characters: int | None, max_characters: int | None, max_length_ratio: float | None, drop_identical: bool
) -> dict[str, Callable[[Any, Any], Mask]]:
    """Returns the rules that are on: for each reason to drop a pair, a function that finds the pairs to drop."""
    lowest, highest = min_characters or 0, math.inf if max_characters is None else max_characters
    if lowest < 0:
        raise ValueError(f"`min_characters` must be at least 0, but is {min_characters} instead.")
    if highest < max(lowest, 1):
        raise ValueError(
            f"`max_characters` must be at least 1 and `min_characters` ({lowest}), but is {max_characters} instead."
        )
    if max_length_ratio is not None and not max_length_ratio >= 1:
        raise ValueError(
            f"`max_length_ratio` (longer side / shorter side) must be at least 1, but is {max_length_ratio} instead."
        )
    rules: dict[str, Callable[[Any, Any], Mask]] = {}
    if min_characters is not None or max_characters is not None:
        bounds = [f"fewer than {lowest}"] * (lowest > 0) + [f"more than {highest}"] * (highest < math.inf)
        reason = f"a side has {' or '.join(bounds)} characters"
        rules[reason] = partial(_has_unfit_length, lowest=lowest, highest=highest)
    if max_length_ratio is not None:
        reason = f"one side has more than {max_length_ratio} times as many characters as the other"
        rules[reason] = partial(_has_unfit_ratio, max_ratio=max_length_ratio)
    if drop_identical:
        rules["both sides are the same"] = _is_identical
    return rules


def _has_unfit_length(source: Any, target: Any, lowest: float, highest: float) -> Mask:
    lengths = _num_characters(source, target)
    is_unfit: Mask = (lengths.min(axis=0) < lowest) | (lengths.max(axis=0) > highest)
    return is_unfit


def _has_unfit_ratio(source: Any, target: Any, max_ratio: float) -> Mask:
    lengths = _num_characters(source, target)
    is_unfit: Mask = lengths.max(axis=0) > max_ratio * lengths.min(axis=0)
    return is_unfit


def _num_characters(source: Any, target: Any) -> NDArray[np.int64]:
    """Returns the numbers of Unicode characters, shape (2, pairs): a row for the sources, one for the targets."""
    import pyarrow.compute as pc

    return np.array([pc.utf8_length(texts).to_numpy() for texts in (source, target)], dtype=np.int64)


def _is_identical(source: Any, target: Any) -> Mask:
    import pyarrow.compute as pc

    trim = pc.utf8_trim_whitespace
    return np.asarray(pc.equal(trim(source), trim(target)).to_numpy(), dtype=bool)


def _judge(rules: Sequence[Callable[[Any, Any], Mask]], table: Any) -> NDArray[np.int64]:
    verdicts = np.zeros(len(table), dtype=np.int64)
    for number in range(len(rules), 0, -1):  # backwards, so that the first rule that matches counts
        verdicts[rules[number - 1](table["source"], table["target"])] = number
    return verdicts


def _report(reasons: Sequence[str], counts: Counts) -> None:
    for reason, count in zip(reasons, counts[1:], strict=True):
        if count:
            logger.warning("Dropped %d of %d pairs, since %s.", count, counts.sum(), reason)


def _drop_duplicates(dataset: "Dataset") -> "Dataset":
    import pandas as pd  # type: ignore[import-untyped]  # comes with datasets

    # Two 64-bit hashes stand for a pair: no two of a billion differing pairs share both.
    batches = dataset.select_columns(["source", "target"]).with_format("arrow").iter(batch_size=100_000)
    hashes = [
        {side: pd.util.hash_array(batch[side].to_numpy(), categorize=False) for side in ("source", "target")}
        for batch in batches
    ]
    is_duplicate = pd.concat(map(pd.DataFrame, hashes)).duplicated().to_numpy()
    if not is_duplicate.any():
        return dataset
    _report(["the same pair came before"], np.bincount(is_duplicate))
    return dataset.select(np.flatnonzero(~is_duplicate))


@dataclass
class Tally:
    """Counts the verdicts on pairs, and logs the counts.

    Args:
        num_reasons: The number of reasons to drop (or change) a pair.
        report: A function that logs the counts: first of the pairs that are kept unchanged, then of each reason. It is
            called only if a pair was dropped or changed.
        nothing_left: The message of the error if no pair is kept unchanged; None if that is not an error.

    A stream is counted in each pass, and reported in the first alone. A pass that begins within the stream, where a
    run goes on, is not reported, since its counts are not those of the whole.
    """

    num_reasons: int
    report: Callable[[Counts], None]
    nothing_left: str | None = None
    counts: Counts = field(init=False)
    _is_whole: bool = field(init=False, default=True)  # whether the pass has been counted from its start
    _is_told: bool = field(init=False, default=False)  # whether a pass has been reported

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.num_reasons + 1, dtype=np.int64)

    def add(self, verdicts: NDArray[np.int64]) -> None:
        """Counts the verdicts on some pairs."""
        self.counts = self.counts + np.bincount(verdicts, minlength=len(self.counts))

    def finish(self) -> None:
        """Reports the counts after the last pair.

        Raises:
            ValueError: If no pair is left, and that is an error.
        """
        if self.nothing_left is not None and not self.counts[0]:
            raise ValueError(self.nothing_left)
        self.report_so_far()

    def report_so_far(self) -> None:
        """Reports the counts so far, if a pair was dropped or changed."""
        if self.counts[1:].any():
            self.report(self.counts)

    def add_of_stream(self, verdicts: NDArray[np.int64], indices: Sequence[int]) -> None:
        """Counts the verdicts on the next batch of a stream, given its pairs' indices, and reports now and then."""
        before = int(self.counts.sum())
        if indices[0] == 0:  # the stream is read from its start, perhaps not for the first time
            self.counts, self._is_whole, before = np.zeros_like(self.counts), True, 0
        elif not before:
            self._is_whole = False
        self.add(verdicts)
        after = before + len(verdicts)
        if not self._is_whole or self._is_told:
            return
        if len(verdicts) < STREAM_BATCH_SIZE:
            self.finish()
            self._is_told = True
        elif after >= FIRST_REPORT and len(str(after)) > len(str(before)):  # a power of ten lies between
            self.report_so_far()


def drop_pairs(dataset: "Dataset | IterableDataset", judge: Judge, tally: Tally) -> "Dataset | IterableDataset":
    """Drops the pairs to which `judge` gives a reason's number: of a dataset now, of a stream while it is read."""
    from datasets import IterableDataset

    if isinstance(dataset, IterableDataset):
        schema = dataset.features.arrow_schema
        keeps = partial(_keeps, judge=judge, tally=tally, schema=schema)
        return dataset.filter(keeps, with_indices=True, batched=True, batch_size=STREAM_BATCH_SIZE)
    # Arrow is fast enough to do without a cache, so the counts are logged in each run.
    verdicts = [judge(table) for table in dataset.with_format("arrow").iter(batch_size=100_000)]
    is_kept = np.concatenate([np.zeros(0, dtype=np.int64), *verdicts]) == 0
    for batch in verdicts:
        tally.add(batch)
    tally.finish()
    return dataset if is_kept.all() else dataset.select(np.flatnonzero(is_kept))


def _keeps(batch: dict[str, list[Any]], indices: list[int], judge: Judge, tally: Tally, schema: Any) -> list[bool]:
    import pyarrow as pa

    verdicts = judge(pa.Table.from_pydict(batch, schema=schema))
    tally.add_of_stream(verdicts, indices)
    keeps: list[bool] = (verdicts == 0).tolist()
    return keeps
