"""Makes batches of about equal cost, with little padding.

Which of the ways to batch a run takes is chosen in training/batches.py.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from torch.utils.data import IterableDataset, Sampler, get_worker_info

from .lengths import side_lengths


if TYPE_CHECKING:
    import datasets
    from datasets import Dataset
    from numpy.typing import NDArray


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields batches, as lists of indices, that fit a budget: rows times the length of the longer padded side.

    The pairs are sorted by their longer side, then by the difference of their sides. The sorted list is cut once into
    slots that fit the budget. Each epoch fills the same slots with other pairs: a pair changes places with pairs of
    the same two lengths, and with its neighbours in a bucket of about one budget of tokens, which overlaps the slots.
    So every epoch has the same number of batches, but other pairs share a batch, and the batches come in another
    order.

    All this depends only on `seed` and the epoch; call `set_epoch` before each epoch. With several ranks, each takes
    every `num_ranks`-th batch of the same list, as a `DataLoader` prepared by accelerate does: the number of batches
    is a multiple of `num_ranks`, and the batches of one step cost about the same. No pair is left out or repeated.

    Args:
        source_lengths: The number of tokens of each source.
        target_lengths: The number of tokens of each target, in the same order.
        tokens_per_batch: The budget of a batch, for one device.
        seed: The seed of all shuffling.
        num_ranks: The number of processes that share the batches.

    Raises:
        ValueError: If the two lists of lengths differ in size, a length is negative, a pair is longer than the budget,
            or there are too few pairs to give each rank the same number of batches.
    """

    def __init__(
        self,
        source_lengths: "Sequence[int] | NDArray[Any]",
        target_lengths: "Sequence[int] | NDArray[Any]",
        tokens_per_batch: int,
        *,
        seed: int = 0,
        num_ranks: int = 1,
    ) -> None:
        source, target = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
        if len(source) != len(target) or len(source) == 0:
            raise ValueError(
                "`source_lengths` and `target_lengths` must hold one length for each pair, but hold "
                f"{len(source)} and {len(target)} lengths instead."
            )
        least = min(source.min(), target.min())
        if least < 0:
            raise ValueError(f"`source_lengths` and `target_lengths` must be at least 0, but one is {least} instead.")
        longer = np.maximum(np.maximum(source, target), 1)
        longest = int(longer.argmax())
        if longer[longest] > tokens_per_batch:
            raise ValueError(
                f"`tokens_per_batch` must be at least the length of the longest pair, but is {tokens_per_batch} while "
                f"pair {longest} has {longer[longest]} tokens. Raise it, or drop long pairs before."
            )
        self.seed = seed
        self.epoch = 0
        self.num_ranks = num_ranks
        # Differences ascend for one length and descend for the next, so that neighbours in the list stay alike where
        # the longer side grows by one.
        difference = (source - target) * np.where(longer % 2, 1, -1)
        self._sort_key = longer * (2 * tokens_per_batch) + difference
        longer.sort()
        # The first bucket has half the size, so that buckets do not coincide with slots.
        self._buckets = (np.cumsum(longer) / tokens_per_batch + 0.5).astype(np.int64)
        # A slot must have room for the longest pair of its buckets.
        last_in_bucket = np.searchsorted(self._buckets, self._buckets, side="right") - 1
        self._slot_sizes = _slot_sizes(longer[last_in_bucket], tokens_per_batch, num_ranks)

    @classmethod
    def from_dataset(
        cls, dataset: "Dataset", tokens_per_batch: int, *, seed: int = 0, num_ranks: int = 1
    ) -> "TokenBudgetBatchSampler":
        """Returns a sampler for a dataset of pairs as `tokenize_pairs` returns it."""
        if not hasattr(dataset, "select_columns"):
            raise TypeError(
                f"Batches by tokens must be made of a `datasets.Dataset`, but the dataset is a "
                f"{type(dataset).__name__} instead. Make one with `tokenize_pairs` or `Dataset.from_list`."
            )
        source_lengths, target_lengths = side_lengths(dataset, "source"), side_lengths(dataset, "target")
        return cls(source_lengths, target_lengths, tokens_per_batch, seed=seed, num_ranks=num_ranks)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch whose batches the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._slot_sizes)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        num_pairs = len(self._sort_key)
        # A random fraction decides among equal whole numbers; "stable", since machines must agree on the order.
        order = np.argsort(self._sort_key + generator.random(num_pairs), kind="stable")
        order = order[np.argsort(self._buckets + generator.random(num_pairs), kind="stable")]
        batches = np.split(order, np.cumsum(self._slot_sizes)[:-1])
        # Neighbouring slots cost about the same, so the ranks of one step get neighbours.
        steps = np.arange(len(batches)).reshape(-1, self.num_ranks)
        for slot in generator.permuted(generator.permutation(steps), axis=1).flat:
            yield batches[slot].tolist()


class StreamPosition(TypedDict):
    """A place in the batches of a stream, which JSON can hold.

    Attributes:
        window: The number of the window.
        batch: The number of its batches that lie before the place.
        row: The number of rows of the stream's current pass that lie before the window.
        state: The state of the stream before the window, as the datasets library gives it; None at the start.
    """

    window: int
    batch: int
    row: int
    state: dict[str, Any] | None


class TokenBudgetStream(IterableDataset[list[dict[str, Any]]]):
    """Yields batches, as lists of rows, without end, from a stream that is too long to be sorted as a whole.

    It reads a window of pairs at a time, and makes batches of the window as `TokenBudgetBatchSampler` does of a
    dataset in one epoch. At its end the stream starts again, within the same window. Use it as `DataLoader(stream,
    batch_size=None, collate_fn=collator)`.

    Each rank reads the whole stream and takes every `num_ranks`-th pair. The ranks make their batches independently,
    so the batches of one step differ in cost as far as they do not fill the budget. The workers of a `DataLoader`
    share the shards of the stream: a corpus is one, and corpora that are mixed by weights are one together. More
    workers than shards have nothing to do.

    Each iteration begins at the start and yields the same batches again. They depend only on the stream, `seed` and
    the number of workers. `StreamLoader` (stream_loader.py) goes on where another iteration stopped.

    Args:
        stream: Rows with the columns "input_ids" and "labels", as `tokenize_pairs` returns them for a stream.
        tokens_per_batch: The budget of a batch, for one device.
        seed: The seed of all shuffling.
        num_ranks: The number of processes that share the stream.
        rank: The number of this process, from 0.
        window_size: The number of pairs in memory at a time; None is at least 10,000 pairs, and as many as fill 50
            batches by their longer sides.

    Raises:
        ValueError: If `rank` or `window_size` is out of range; or, while reading, if a pair is longer than the budget,
            or the stream has no pair for this rank.
    """

    def __init__(
        self,
        stream: "datasets.IterableDataset",
        tokens_per_batch: int,
        *,
        seed: int = 0,
        num_ranks: int = 1,
        rank: int = 0,
        window_size: int | None = None,
    ) -> None:
        from datasets.distributed import split_dataset_by_node

        if not 0 <= rank < num_ranks:
            raise ValueError(f"`rank` must be from 0 to `num_ranks` - 1 ({num_ranks - 1}), but is {rank} instead.")
        if window_size is not None and window_size < 1:
            raise ValueError(f"`window_size` must be at least 1, but is {window_size} instead.")
        self.tokens_per_batch = tokens_per_batch
        self.seed = seed
        self.window_size = window_size
        self._rank = rank
        self._num_ranks = num_ranks
        self._stream = split_dataset_by_node(stream, rank, num_ranks, strategy="examples")
        self._row = 0  # number of rows of the current pass that were read

    @property
    def num_shards(self) -> int:
        """The most workers that have something to read."""
        return int(self._stream.num_shards)

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        return (batch for batch, _ in self.batches_from(None))

    def batches_from(self, position: StreamPosition | None) -> Iterator[tuple[list[dict[str, Any]], StreamPosition]]:
        """Yields each batch with the position behind it.

        Args:
            position: Where to begin: what came with the last batch before, or None for the start. It holds for the
                same stream, seed and number of workers.
        """
        worker = get_worker_info()
        stream = self._stream
        if worker is not None:
            if worker.id >= stream.num_shards:
                return
            # The datasets library shares the shards too, but cannot go on within those of a worker.
            stream = stream.shard(worker.num_workers, worker.id, contiguous=False)
        first = position or StreamPosition(window=0, batch=0, row=0, state=None)
        num_seen, row, state = first["batch"], first["row"], first["state"]
        rows = self._rows(stream, row, state)
        for window_number in count(first["window"]):
            window, source_lengths, target_lengths = self._next_window(rows)
            sampler = TokenBudgetBatchSampler(source_lengths, target_lengths, self.tokens_per_batch, seed=self.seed)
            sampler.set_epoch(window_number)
            for number, batch in enumerate(sampler, 1):
                if number > num_seen:
                    # A window is read again when an iteration goes on within it.
                    behind = StreamPosition(window=window_number, batch=number, row=row, state=state)
                    yield [window[index] for index in batch], behind
            num_seen, row, state = 0, self._row, stream.state_dict()

    def _rows(
        self, stream: "datasets.IterableDataset", first_row: int, state: dict[str, Any] | None
    ) -> Iterator[dict[str, Any]]:
        """Yields the rows of this rank and worker, again and again, from a state of their stream on."""
        stream.load_state_dict(state)
        while True:
            is_empty = first_row == 0
            for number, batch in enumerate(stream.iter(batch_size=1), first_row):
                row = {name: values[0] for name, values in batch.items()}
                is_empty = False
                self._row = number + 1
                length = max(len(row["input_ids"]), len(row["labels"]))
                if length > self.tokens_per_batch:
                    raise ValueError(
                        "`tokens_per_batch` must be at least the length of the longest pair, but is "
                        f"{self.tokens_per_batch} while pair {number * self._num_ranks + self._rank} of the stream "
                        f"has {length} tokens. Raise it, or drop long pairs before."
                    )
                yield row
            if is_empty:
                raise ValueError(
                    f"The stream must hold at least one pair for each of the {self._num_ranks} ranks, but holds none "
                    f"for rank {self._rank}. Add pairs or use fewer ranks."
                )
            first_row = 0
            stream.load_state_dict(None)  # else each pass would begin there

    def _next_window(self, rows: Iterator[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[int], list[int]]:
        """Returns the rows of the next window, and the lengths of their sources and of their targets."""
        window: list[dict[str, Any]] = []
        lengths: tuple[list[int], list[int]] = ([], [])
        num_tokens = 0
        while not self._is_full(len(window), num_tokens):
            row = next(rows)
            window.append(row)
            lengths[0].append(len(row["input_ids"]))
            lengths[1].append(len(row["labels"]))
            num_tokens += max(lengths[0][-1], lengths[1][-1])
        return window, *lengths

    def _is_full(self, num_pairs: int, num_tokens: int) -> bool:
        if self.window_size is not None:
            return num_pairs >= self.window_size
        return num_pairs >= 10_000 and num_tokens >= 50 * self.tokens_per_batch


def _slot_sizes(lengths: "NDArray[np.int64]", tokens_per_batch: int, num_ranks: int) -> list[int]:
    """Returns the sizes of the slots: as few as fit the budget, in a multiple of `num_ranks`; `lengths` ascend."""
    sizes: list[int] = []
    start = 0
    while start < len(lengths):
        candidates = lengths[start : start + tokens_per_batch // lengths[start]]
        # Rows times the longest grow with each pair, so those that fit come first.
        sizes.append(int(np.count_nonzero(candidates * np.arange(1, len(candidates) + 1) <= tokens_per_batch)))
        start += sizes[-1]
    while len(sizes) % num_ranks:
        largest = int(np.argmax(sizes))
        if sizes[largest] == 1:
            raise ValueError(
                f"The number of batches must be a multiple of `num_ranks` ({num_ranks}), but is {len(sizes)}, with "
                "one pair in each. Raise `tokens_per_batch`, add pairs or use fewer ranks."
            )
        sizes[largest : largest + 1] = [sizes[largest] - sizes[largest] // 2, sizes[largest] // 2]
    return sizes
