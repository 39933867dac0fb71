"""In which order the hypotheses of a text come, where a search's own is not the last word."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .hypothesis import Hypothesis
from .segment import Segment
from .settings import DecodingSettings, Utility


def rank(segment: Segment, settings: DecodingSettings) -> Segment:
    """Returns a segment with the hypotheses that are asked for, the best first.

    By minimum Bayes risk they are ranked by their expected utility, after a search with a penalty for siblings by what
    they would score without it, and else as the search ranked them.
    """
    found = list(segment.hypotheses)
    if settings.mbr:
        weights = None if settings.do_sample else [math.exp(hypothesis.sum_log_prob or 0.0) for hypothesis in found]
        utilities = expected_utilities([hypothesis.text for hypothesis in found], weights, settings.mbr_utility)
        found = [replace(hypothesis, score=score) for hypothesis, score in zip(found, utilities, strict=True)]
    if settings.mbr or settings.diversity_rate is not None:
        found = sorted(found, key=_score, reverse=True)[: settings.n_best]
    if not settings.scores:
        found = [replace(hypothesis, token_log_probs=None, score=None) for hypothesis in found]
    return replace(segment, hypotheses=found)


def _score(hypothesis: Hypothesis) -> float:
    return -math.inf if hypothesis.score is None or math.isnan(hypothesis.score) else hypothesis.score


def expected_utilities(
    texts: Sequence[str], weights: Sequence[float] | None = None, utility: Utility = "chrf"
) -> list[float]:
    """Returns what each of several translations of a text is worth if one of them is right: the mean of its utility.

    The one that is worth most has the minimum Bayes risk: Kumar and Byrne (2004,
    https://aclanthology.org/N04-1022) for hypotheses of a search, and Eikema and Aziz (2020,
    https://arxiv.org/abs/2005.10283) for samples.

    Args:
        texts: The translations. Samples that are drawn several times are there several times.
        weights: How probable each is, up to a factor; by default all are equally so, as samples are.
        utility: How much a translation is worth where another is right: "chrf" or "bleu", of one sentence, as
            sacrebleu computes them.

    Returns:
        For each translation a number from 0 to 100.

    Raises:
        ValueError: If there is no such utility.
    """
    metric = _metric(utility)
    masses: dict[str, float] = {}
    for text, weight in zip(texts, [1.0] * len(texts) if weights is None else weights, strict=True):
        masses[text] = masses.get(text, 0.0) + weight
    total = math.fsum(masses.values())
    if not total > 0:  # probabilities too small for a number
        return expected_utilities(texts, None, utility)
    utilities = {
        text: math.fsum(mass * metric.sentence_score(text, [right]).score for right, mass in masses.items()) / total
        for text in masses
    }
    return [utilities[text] for text in texts]


def _metric(utility: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if utility not in ("chrf", "bleu"):
        raise ValueError(f"`utility` must be one of chrf, bleu, but is {utility!r} instead.")
    # Without the effective order, a sentence of fewer than four words would be worth nothing.
    return CHRF() if utility == "chrf" else BLEU(effective_order=True)
