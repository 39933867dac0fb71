"""What limits an output: its end token, the greatest length that it may have, and the tokens that it may not hold."""

import math
from collections.abc import Collection
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria


# Vaswani et al. (2017), section 6.1: how many more tokens than its source an output may have.
EXTRA_TOKENS = 50


def longest_output(source_length: int, num_positions: float = math.inf) -> int:
    """Returns the most tokens that an output may have, its end token included and its start token not.

    Args:
        source_length: Number of tokens of its source, the end token included.
        num_positions: The most tokens that the model has positions for.
    """
    return int(min(source_length + EXTRA_TOKENS, num_positions))


def end_ids(generation_config: GenerationConfig) -> list[int]:
    """Returns the ids that end an output; there may be none, one or several."""
    ids = generation_config.eos_token_id
    return ids if isinstance(ids, list) else [] if ids is None else [ids]


def banned_ids(generation_config: GenerationConfig, unknown_id: int | None) -> list[int]:
    """Returns the ids that outputs never hold: those that generation settings suppress, and the unknown token's."""
    is_end = unknown_id in end_ids(generation_config)
    unknown = [] if unknown_id is None or is_end else [unknown_id]
    return sorted({*(generation_config.suppress_tokens or ()), *unknown})


def up_to_end(ids: list[int], ends: Collection[int]) -> list[int]:
    """Returns the ids up to the first end token, this included: `generate` fills finished rows up with others."""
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids


class OutputLimits(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Ends each output at a length of its own; `generate` itself has one limit for the whole batch.

    Args:
        last_columns: The greatest length of the outputs of each source, without their start token, shape (B,).
    """

    def __init__(self, last_columns: torch.Tensor) -> None:
        self.last_columns = last_columns

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Returns True for each hypothesis that has reached its source's limit; those of a source are neighbours."""
        is_done = input_ids.shape[1] > self.last_columns  # > and not >=, since the start token does not count
        return is_done.repeat_interleave(input_ids.shape[0] // len(self.last_columns))
