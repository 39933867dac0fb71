"""Leave out pairs that would teach a model little or something wrong, and tell how many.

`drop_pairs` is what the whole package drops pairs with, from a `Dataset` as from a stream (an `IterableDataset`).
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

# Gives each pair of an Arrow table 0 to keep it, or else the number of the reason to drop it: 1, 2 ...
Judge = Callable[[Any], NDArray[np.int64]]

# A batch that is not full shows the end of a stream. As this is a prime, a round number of pairs ends with such a one.
# Small, since the datasets library gives each row a key made from those of all rows in its batch: larger is slower.
STREAM_BATCH_SIZE = 199

FIRST_REPORT = 10_000  # in pairs of a stream


def filter_pairs(
    dataset: "Dataset | IterableDataset",
    *,
    min_characters: int | None = None,
    max_characters: int | None = None,
    max_length_ratio: float | None = None,
    drop_duplicates: bool = False,
    drop_identical: bool = False,
) -> "Dataset | IterableDataset":
    """Drop pairs by rules, each of which is off by default.

    The number of pairs that a rule drops is logged, if there are any. A pair that several rules would drop counts for
    the first of these: length, ratio, identical sides, duplicates. A stream is filtered while it is read, and tells
    its numbers when the pairs read pass 10,000, 100,000 and so on, and at its end (but not where it ends after a
    multiple of 199 pairs, which looks like any other place).

    Args:
        dataset: pairs in the text columns "source" and "target", as `load_parallel` returns them.
        min_characters: the fewest Unicode characters a side may have.
        max_characters: the most Unicode characters a side may have.
        max_length_ratio: the most that the longer side's characters divided by the shorter side's may be.
        drop_duplicates: whether a pair is dropped that came before, with the same source and the same target. Not for
            a stream.
        drop_identical: whether a pair is dropped whose sides are the same but for white space around them.

    Returns:
        The dataset or stream without those pairs.

    Raises:
        ValueError: if a value makes no sense, duplicates are to be dropped from a stream, **or** no pair is left (of a
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
    """Return the rules that are on: the reason to drop a pair, and what tells which pairs it holds for."""
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
    lengths = _lengths(source, target)
    is_unfit: Mask = (lengths.min(axis=0) < lowest) | (lengths.max(axis=0) > highest)
    return is_unfit


def _has_unfit_ratio(source: Any, target: Any, max_ratio: float) -> Mask:
    lengths = _lengths(source, target)
    is_unfit: Mask = lengths.max(axis=0) > max_ratio * lengths.min(axis=0)
    return is_unfit


def _lengths(source: Any, target: Any) -> NDArray[np.int64]:
    """Return the numbers of Unicode characters: one row for the sources, one for the targets."""
    import pyarrow.compute as pc

    return np.array([pc.utf8_length(texts).to_numpy() for texts in (source, target)], dtype=np.int64)


def _is_identical(source: Any, target: Any) -> Mask:
    import pyarrow.compute as pc

    trim = pc.utf8_trim_whitespace
    return np.asarray(pc.equal(trim(source), trim(target)).to_numpy(), dtype=bool)


def _judge(rules: Sequence[Callable[[Any, Any], Mask]], table: Any) -> NDArray[np.int64]:
    verdicts = np.zeros(len(table), dtype=np.int64)
    for number in range(len(rules), 0, -1):  # backwards, so that the first rule has the last word
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
    """Counts what becomes of pairs and reports it.

    Args:
        num_reasons: the number of reasons to drop (or change) a pair.
        report: logs the counts: of the pairs kept as they are, then for each reason. Called only if there is a reason.
        nothing_left: the message of the error where no pair was kept as it was; None if that is no error.
    """

    num_reasons: int
    report: Callable[[Counts], None]
    nothing_left: str | None = None
    counts: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.num_reasons + 1, dtype=np.int64)

    def add(self, verdicts: NDArray[np.int64]) -> None:
        """Count the verdicts on some pairs."""
        self.counts = self.counts + np.bincount(verdicts, minlength=len(self.counts))

    def finish(self) -> None:
        """Report at the end of all pairs."""
        if self.nothing_left is not None and not self.counts[0]:
            raise ValueError(self.nothing_left)
        self.tell()

    def tell(self) -> None:
        """Report the counts so far."""
        if self.counts[1:].any():
            self.report(self.counts)

    def add_of_stream(self, verdicts: NDArray[np.int64], indices: Sequence[int]) -> None:
        """Count the verdicts on the next batch of a stream, and report where it is time; `indices` count its pairs."""
        if indices[0] == 0:  # the stream is read from its start, perhaps anew
            self.__post_init__()
        before = int(self.counts.sum())
        self.add(verdicts)
        after = before + len(verdicts)
        if len(verdicts) < STREAM_BATCH_SIZE:
            self.finish()
        elif after >= FIRST_REPORT and len(str(after)) > len(str(before)):  # a power of ten lies between
            self.tell()


def drop_pairs(dataset: "Dataset | IterableDataset", judge: Judge, tally: Tally) -> "Dataset | IterableDataset":
    """Drop the pairs to which `judge` gives a reason's number, at once or, from a stream, while it is read."""
    from datasets import IterableDataset

    if isinstance(dataset, IterableDataset):
        schema = dataset.features.arrow_schema
        keeps = partial(_keeps, judge=judge, tally=tally, schema=schema)
        return dataset.filter(keeps, with_indices=True, batched=True, batch_size=STREAM_BATCH_SIZE)
    # Arrow does this fast enough to need no cache, and so the numbers are told in each run.
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
