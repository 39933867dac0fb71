"""What a search returns, and what it is told."""

from dataclasses import dataclass
from typing import TypedDict

import torch


class SearchOptions(TypedDict, total=False):
    """How outputs are searched for; what is left out comes from the model's `generation_config`.

    Attributes:
        beam_size: Number of hypotheses kept at each step; 1 is greedy search.
        length_penalty: The power of a hypothesis' length that its log-probability is divided by: 0 prefers short
            outputs, larger values longer ones. Greedy search does not use it.
        n_best: Number of hypotheses returned for each text, the best first; at most `beam_size`, unless sampled.
        do_sample: Whether tokens are drawn by their probability in place of a search, with random numbers of the
            backend (`torch.manual_seed`, `ctranslate2.set_random_seed`).
        temperature: What log-probabilities are divided by before a token is drawn; below 1, likely ones come oftener.
        top_k: Number of likeliest tokens that one is drawn from.
        top_p: Probability that the likeliest tokens that one is drawn from have together.
        split_language: Code of the source's language, such as "en": each text is cut into its sentences, which are
            translated one by one and joined with spaces. For paragraphs, where the model was trained on sentences. A
            prefix is then what each sentence begins with.
    """

    beam_size: int
    length_penalty: float
    n_best: int
    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    split_language: str


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a text.

    Attributes:
        text: The translation, one line.
        tokens: Its tokens, the end token among them unless the longest output was reached.
        token_ids: Their ids.
        token_log_probs: The natural logarithm of each token's probability after those before it, if asked for.
        source_tokens: The tokens of the source, if `attention` was asked for.
        attention: How much each token, as it was predicted, attended to each token of the source, shape
            (tokens, source tokens), each row summing to 1: the mean of the heads of the last decoder layer but one,
            which aligns best (Garg et al. 2019, https://arxiv.org/abs/1909.02074); if asked for.
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


@dataclass(frozen=True)
class Scores:
    """What a model says of given outputs: for each of its tokens."""

    log_probs: list[float]
    attention: torch.Tensor | None
