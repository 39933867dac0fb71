"""Samples that depend on a seed and on the place of their text, and not on what else is in a batch."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from .segment import Segment
from .settings import DecodingSettings


class SeededSampling(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Draws the next token of each row, and leaves it as the only one that can be chosen.

    Each row has random numbers of its own, and a token is drawn by the inverse of the cumulative distribution, after
    temperature, top-k and top-p.

    Args:
        settings: How to draw.
        segments: The segments of the batch; each has `num_hypotheses` rows, which are neighbours.
        start: Number of columns before the first token that is drawn.
        num_steps: The most tokens that are drawn.
    """

    def __init__(self, settings: DecodingSettings, segments: Sequence[Segment], *, start: int, num_steps: int) -> None:
        self._start = start
        self._warpers: list[LogitsProcessor] = []
        if settings.temperature != 1:
            self._warpers.append(TemperatureLogitsWarper(float(settings.temperature)))
        if settings.top_k:
            self._warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            self._warpers.append(TopPLogitsWarper(float(settings.top_p)))
        keys = [
            (segment.line, segment.place, sample) for segment in segments for sample in range(settings.num_hypotheses)
        ]
        numbers = [np.random.default_rng([settings.seed or 0, *key]).random(num_steps) for key in keys]
        self._numbers = torch.from_numpy(np.stack(numbers))  # (rows, steps), from 0 to 1

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns 0 for the token that is drawn for a row, and minus infinity for all others, shape (rows, V)."""
        step = input_ids.shape[1] - self._start
        for warper in self._warpers:
            scores = warper(input_ids, scores)
        cumulative = scores.double().softmax(dim=-1).cumsum(dim=-1)
        # The last sum is hardly ever exactly 1, and a token without probability must not be drawn.
        drawn = self._numbers[:, step : step + 1].to(scores.device) * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, drawn, right=True)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0)
