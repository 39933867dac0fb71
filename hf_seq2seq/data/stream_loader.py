"""Loads the batches of a stream, with workers, and knows how far it came."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypedDict

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .batching import StreamPosition, TokenBudgetStream


class LoaderPosition(TypedDict):
    """How far a loader came, which JSON can hold.

    Attributes:
        workers: Behind which batch each worker is, None being the start. Without workers there is one place.
        next_worker: The number of the worker whose turn comes next.
    """

    workers: list[StreamPosition | None]
    next_worker: int


class StreamLoader(DataLoader[Any]):
    """Yields collated batches of a stream, of each worker in turn.

    Set to the `position` of an earlier loader of the same stream, seed and number of workers, a new one yields the
    batches that came next.

    Args:
        stream: The batches.
        collate_fn: Makes tensors of a batch's rows.
        num_workers: The number of processes that read, each its own shards of the stream; 0 is this process. Not more
            than the stream has shards.
        **options: Further arguments of `DataLoader`.

    Attributes:
        position: Behind which batch the loader is. The next iteration begins there.
    """

    def __init__(
        self, stream: TokenBudgetStream, *, collate_fn: Callable[..., Any], num_workers: int = 0, **options: Any
    ) -> None:
        super().__init__(
            _PlacedBatches(stream),
            batch_size=None,
            collate_fn=partial(_collate, collate_fn),
            num_workers=num_workers,
            **options,
        )
        self.position = LoaderPosition(workers=[None] * max(num_workers, 1), next_worker=0)

    def __iter__(self) -> Any:
        """Returns an iterator over what comes behind `position`."""
        batches: Any = self.dataset
        batches.start = LoaderPosition(
            workers=list(self.position["workers"]), next_worker=self.position["next_worker"]
        )
        if not any(self.position["workers"]):
            return self._deliver(super().__iter__())
        # Else a run that goes on would draw a seed for its workers once more than a run without a break.
        with torch.random.fork_rng(devices=[]):
            iterator = super().__iter__()
        return self._deliver(iterator)

    def _deliver(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for delivered in iterator:
            if delivered is not None:
                inputs, place = delivered
                worker = self.position["next_worker"]
                self.position["workers"][worker] = place
                self.position["next_worker"] = (worker + 1) % len(self.position["workers"])
                yield inputs


class _PlacedBatches(IterableDataset[Any]):
    """Yields the batches of a stream, each with the place behind it, from a position on."""

    def __init__(self, stream: TokenBudgetStream) -> None:
        self.stream = stream
        self.start: LoaderPosition | None = None

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number = 0 if worker is None else worker.id
        assert self.start is not None
        if number < self.start["next_worker"]:
            yield None  # a loader takes from its first worker first, whose turn is over
        yield from self.stream.batches_from(self.start["workers"][number])


def _collate(collate_fn: Callable[..., Any], placed: Any) -> Any:
    return None if placed is None else (collate_fn(placed[0]), placed[1])
