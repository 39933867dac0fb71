"""Groups: lines that have no known end by windows, and items of known length by batches."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar


Item = TypeVar("Item")

# An item counts as at least so many tokens in a batch, since the output of a very short source may be long.
_SHORTEST = 8


def in_windows(items: Iterable[Item], largest: int, is_due: Callable[[], bool] | None = None) -> Iterator[list[Item]]:
    """Yields windows of 1, 8, 64, ... items up to the largest size, then of that size.

    The first translation comes at once, and the batches of later windows are full.

    Args:
        items: The items; they may have no end. Where they raise, what came before is yielded first.
        largest: The most items of a window.
        is_due: Whether a window is to be yielded before it is full; asked after each item.
    """
    return in_lists(items, _growing_sizes(largest), is_due)


def _growing_sizes(largest: int) -> Iterator[int]:
    size = 1
    while True:
        yield min(size, largest)
        size = min(8 * size, largest)


def in_lists(
    items: Iterable[Item], sizes: Iterator[int], is_due: Callable[[], bool] | None = None
) -> Iterator[list[Item]]:
    """Yields items in lists of the given sizes, the last one with what is left; otherwise as `in_windows`."""
    collected: list[Item] = []
    size, failure = next(sizes), None
    try:
        for item in items:
            collected.append(item)
            if len(collected) == size or (is_due is not None and is_due()):
                yield collected
                collected, size = [], next(sizes)
    except Exception as error:
        failure = error
    if collected:
        yield collected
    if failure is not None:
        raise failure


def in_batches(items: Iterable[Item], length: Callable[[Item], int], batch_tokens: int) -> Iterator[list[Item]]:
    """Yields batches of items of like length, each of one item or of at most `batch_tokens` tokens with padding.

    The longest items come first, so that a batch that does not fit into memory fails at once.

    Args:
        items: The items.
        length: Tells the number of tokens of an item.
        batch_tokens: The most tokens of a batch.
    """
    batch: list[Item] = []
    for item in sorted(items, key=length, reverse=True):
        if batch and max(length(batch[0]), _SHORTEST) * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
