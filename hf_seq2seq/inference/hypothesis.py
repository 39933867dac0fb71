"""What a translation is, with all that can be told of it."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a text.

    Attributes:
        text: The translation, one line.
        tokens: Its tokens. The last one is the end token, unless the output was cut at its greatest length.
        token_ids: Their ids.
        token_log_probs: The natural logarithm of each token's probability given those before it, if asked for.
        source_tokens: The tokens of the source, if `attention` was asked for.
        attention: How much each token, when it was predicted, attended to each token of the source, shape
            (tokens, source tokens), if asked for. Each row sums to 1. It is the mean of the heads of the last decoder
            layer but one, which aligns best (Garg et al. 2019, https://arxiv.org/abs/1909.02074).
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] | None = None
    source_tokens: tuple[str, ...] = ()
    attention: torch.Tensor | None = None

    @property
    def score(self) -> float | None:
        """The logarithm of the whole output's probability: the sum of `token_log_probs`."""
        return None if self.token_log_probs is None else sum(self.token_log_probs)

    @property
    def alignment(self) -> list[tuple[int, int]] | None:
        """For each token the source token that it attended to most, as pairs of numbers (source, target) from 0."""
        if self.attention is None:
            return None
        return [(source, target) for target, source in enumerate(self.attention.argmax(dim=-1).tolist())]
