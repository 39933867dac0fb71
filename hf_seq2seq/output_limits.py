"""Where an output ends: at an end token, or at the greatest length that it may have."""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from transformers import GenerationConfig


# Vaswani et al. (2017), section 6.1: how many more tokens than its source an output may have.
EXTRA_TOKENS = 50


def longest_output(source_length: int, num_positions: float = math.inf) -> int:
    """Returns the most tokens that an output may have, its end token included and its start token not.

    Args:
        source_length: Number of tokens of its source, the end token included.
        num_positions: The most tokens that the model has positions for.
    """
    return int(min(source_length + EXTRA_TOKENS, num_positions))


def end_ids(generation_config: "GenerationConfig") -> list[int]:
    """Returns the ids that end an output; there may be none, one or several."""
    ids = generation_config.eos_token_id
    return ids if isinstance(ids, list) else [] if ids is None else [ids]


def up_to_end(ids: list[int], ends: Collection[int]) -> list[int]:
    """Returns the ids up to the first end token, this included: `generate` fills finished rows up with others."""
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids
