"""Cut what has no known end into lists."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar


Item = TypeVar("Item")


def growing_sizes(largest: int) -> Iterator[int]:
    """Yield 1, 8, 64, ... up to `largest`, then that for ever: the first result comes at once, later ones in bulk."""
    size = 1
    while True:
        yield min(size, largest)
        size = min(8 * size, largest)


def in_lists(
    items: Iterable[Item], sizes: Iterator[int], is_due: Callable[[], bool] | None = None
) -> Iterator[list[Item]]:
    """Yield items in lists of the given sizes, the last one with what is left.

    Where `items` raises, what came before it is given out first. A list is given out before it is full where `is_due`
    says so.
    """
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
