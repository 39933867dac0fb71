"""What a translation is, with all that can be told of it.

The log-probabilities come from the two searches, torch_search.py and ctranslate2_search.py.
"""

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
        words: For each token the number, from 0, of the word of `text` that it is part of, if `attention` was asked
            for. Words are what white space separates. The end token, and others that a text does not show, have None.
        source_words: The same for the tokens of the source.
        score: What a search ranks its hypotheses by, if scores were asked for: the log-probability of what it wrote
            after the prefix, divided by the length penalty, or by minimum Bayes risk the expected utility. For a text
            that was translated in several parts, it is the sum of their scores.
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] | None = None
    source_tokens: tuple[str, ...] = ()
    attention: torch.Tensor | None = None
    words: tuple[int | None, ...] = ()
    source_words: tuple[int | None, ...] = ()
    score: float | None = None

    @property
    def sum_log_prob(self) -> float | None:
        """The natural logarithm of the whole output's probability: the sum of `token_log_probs`."""
        return None if self.token_log_probs is None else sum(self.token_log_probs)

    @property
    def alignment(self) -> list[tuple[int, int]] | None:
        """Which word of the source each word attended to most, as pairs of numbers (source, target) from 0.

        A word of several tokens may have several pairs.
        """
        tokens = self.token_alignment
        if tokens is None:
            return None
        pairs = {(self.source_words[source], self.words[target]) for source, target, _ in tokens}
        return sorted((source, target) for source, target in pairs if source is not None and target is not None)

    @property
    def token_alignment(self) -> list[tuple[int, int, float]] | None:
        """For each token of a word the source token that it attended to most among those of words.

        Each is a triple: the numbers of the source's and of the translation's token, from 0, and the attention.
        """
        if self.attention is None:
            return None
        sources = [number for number, word in enumerate(self.source_words) if word is not None]
        targets = [number for number, word in enumerate(self.words) if word is not None]
        if not sources:
            return []
        weights, places = self.attention[targets][:, sources].max(dim=-1)
        best = [sources[place] for place in places.tolist()]
        return list(zip(best, targets, weights.tolist(), strict=True))
