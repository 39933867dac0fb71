"""The number of tokens of each side of each pair."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np


if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray


_IDS = {"source": "input_ids", "target": "labels"}


def longer_side_lengths(dataset: "Dataset") -> "NDArray[np.int64]":
    """Returns the number of tokens of the longer side of each pair, or of the source where there are no targets."""
    lengths = side_lengths(dataset, "source")
    has_targets = {"target_length", "labels"} & set(dataset.column_names)
    return np.maximum(lengths, side_lengths(dataset, "target")) if has_targets else lengths


def side_lengths(dataset: "Dataset", side: Literal["source", "target"]) -> "NDArray[np.int64]":
    """Returns the number of tokens of each source, or of each target, of a dataset of pairs.

    Args:
        dataset: What `tokenize_pairs` returns, whose columns "source_length" and "target_length" hold them. Where
            those are missing, as in a dataset made by hand, they are counted from "input_ids" or "labels".
        side: The side whose tokens are counted.
    """
    import pyarrow.compute as pc

    column, ids = f"{side}_length", _IDS[side]
    is_counted = column in dataset.column_names

    def lengths(batch: Any) -> Any:
        return batch[column] if is_counted else pc.list_value_length(batch[ids])

    batches = dataset.select_columns(column if is_counted else ids).with_format("arrow").iter(batch_size=100_000)
    return np.concatenate([np.empty(0, np.int64), *(lengths(batch).to_numpy() for batch in batches)])
