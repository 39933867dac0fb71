"""Makes batches of an evaluation: every pair, in order, in batches that fit where those of training fit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler


if TYPE_CHECKING:
    from numpy.typing import NDArray


class InOrderBatchSampler(Sampler[list[int]]):
    """Yields batches of neighbours, as lists of indices, each with at most so many rows and tokens.

    In each step all ranks get batches of the same size, which side by side are neighbours too. So what the ranks
    return, joined in their order, is in the order of the pairs. The last step repeats the last pair where there are
    not enough for all ranks.

    Args:
        num_pairs: The number of pairs.
        max_rows: The most pairs in a batch.
        lengths: The number of tokens of the longer side of each pair; None does not limit the tokens.
        max_tokens: The most tokens in a batch, rows times the longest. A longer pair is a batch by itself.
        num_ranks: The number of processes that share the pairs.
        rank: The number of this process, from 0.
    """

    def __init__(
        self,
        num_pairs: int,
        max_rows: int,
        lengths: "NDArray[Any] | None" = None,
        max_tokens: int | None = None,
        *,
        num_ranks: int = 1,
        rank: int = 0,
    ) -> None:
        self._num_pairs, self._rank = num_pairs, rank
        self._steps: list[tuple[int, int]] = []  # the first pair of all ranks, and the rows of each
        start = 0
        while start < num_pairs:
            most = min(max_rows, -(-(num_pairs - start) // num_ranks))
            rows = most
            if lengths is not None and max_tokens is not None:
                longest = np.maximum.accumulate(lengths[start : start + most * num_ranks])
                sizes = np.arange(1, most + 1)
                last = np.minimum(sizes * num_ranks, len(longest)) - 1  # of a step with so many rows
                rows = max(int(np.count_nonzero(sizes * longest[last] <= max_tokens)), 1)
            self._steps.append((start, rows))
            start += rows * num_ranks

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[int]]:
        for start, rows in self._steps:
            first = start + self._rank * rows
            yield [min(index, self._num_pairs - 1) for index in range(first, first + rows)]
