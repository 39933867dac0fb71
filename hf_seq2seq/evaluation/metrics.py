"""The table of metrics, and `score`, which computes them.

All that the package knows of a metric stands in its row: `train`, `evaluate`, early stopping, model cards and `push`
read it there. A new metric is a new row.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER


Texts = Sequence[str]


class Score(NamedTuple):
    """What a metric finds.

    Attributes:
        value: The number.
        signature: How it was computed, for those who want to compute it again; None where there is only one way.
    """

    value: float
    signature: str | None = None


@dataclass(frozen=True)
class Metric:
    """A row of the table of metrics.

    Attributes:
        name: Its name in results, in options and in a card's facts.
        title: Its name for people.
        hub_name: Its name in the metadata of a card, where the Hub lists models by it.
        compute: Scores hypotheses against as many references.
        higher_is_better: Whether the better of two systems has the higher value.
        unit: What is written after the value.
        sacrebleu: Makes the metric of sacreBLEU that fits given references; None where sacreBLEU has none. It is
            needed to compare two systems.
    """

    name: str
    title: str
    hub_name: str
    compute: Callable[[Texts, Texts], Score]
    higher_is_better: bool = True
    unit: str = ""
    sacrebleu: Callable[[Texts], SacrebleuMetric] | None = None

    @property
    def signature_name(self) -> str:
        """The name of its signature in results and in a card's facts."""
        return f"{self.name}_signature"

    def format(self, value: float) -> str:
        """Returns a value as people read it, such as "33.1" or "50.0 %"."""
        return f"{value:.1f}{self.unit}"


def score(hypotheses: Texts, references: Texts) -> dict[str, Any]:
    """Scores hypotheses against one reference each.

    Args:
        hypotheses: The texts to score.
        references: What each should have been, in the same order.

    Returns:
        For the whole, `bleu` and `chrf` (0 to 100, higher is better), `ter` (edits for 100 words of the reference,
        lower is better), `exact_match` (the percentage of hypotheses that equal their reference), and
        `bleu_signature`, `chrf_signature` and `ter_signature`, which tell how sacreBLEU computed them. Texts are cut
        into words as sacreBLEU's tokenizer 13a does. Where most references are in a script without spaces, BLEU takes
        the tokenizer zh or char in its place, and TER takes each Chinese or Japanese character for a word.

    Raises:
        ValueError: If there is nothing to score or the numbers differ.
    """
    if not references or len(hypotheses) != len(references):
        raise ValueError(
            f"`hypotheses` must be as many as `references` and at least one, but are {len(hypotheses)} for "
            f"{len(references)} instead."
        )
    scores: dict[str, Any] = {}
    for metric in METRICS.values():
        scores[metric.name], signature = metric.compute(hypotheses, references)
        if signature is not None:
            scores[metric.signature_name] = signature
    return scores


def scores_in(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the results that are a metric's value or signature, in the order of the table."""
    names = [name for metric in METRICS.values() for name in (metric.name, metric.signature_name)]
    return {name: results[name] for name in names if name in results}


# Scripts that put no spaces between words, and the tokenizer of sacreBLEU that cuts them: Japanese kana, Thai, Lao,
# Burmese and Khmer into characters; Chinese characters one by one and the rest like 13a.
_UNSPACED_SCRIPTS = {
    "char": re.compile("[\u3040-\u30ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}


def _bleu_tokenizer(references: Texts) -> str:
    for tokenizer, script in _UNSPACED_SCRIPTS.items():
        if 2 * sum(bool(script.search(reference)) for reference in references) > len(references):
            return tokenizer
    return "13a"


def _bleu(references: Texts) -> SacrebleuMetric:
    return BLEU(tokenize=_bleu_tokenizer(references))


def _chrf(references: Texts) -> SacrebleuMetric:
    return CHRF()


def _ter(references: Texts) -> SacrebleuMetric:
    is_unspaced = _bleu_tokenizer(references) != "13a"
    # TER cuts Asian scripts into characters only where both are set.
    return TER(normalized=is_unspaced, asian_support=is_unspaced)


def _of_sacrebleu(make: Callable[[Texts], SacrebleuMetric]) -> dict[str, Any]:
    """Returns the two fields of a row that a metric of sacreBLEU fills in."""

    def compute(hypotheses: Texts, references: Texts) -> Score:
        metric = make(references)
        value = metric.corpus_score(hypotheses, [references]).score
        return Score(value, str(metric.get_signature()))

    return {"compute": compute, "sacrebleu": make}


def _exact_match(hypotheses: Texts, references: Texts) -> Score:
    num_exact = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return Score(100 * num_exact / len(references))


METRICS = {
    metric.name: metric
    for metric in (
        Metric("bleu", "BLEU", "bleu", **_of_sacrebleu(_bleu)),
        Metric("chrf", "chrF", "chrf", **_of_sacrebleu(_chrf)),
        Metric("ter", "TER", "ter", higher_is_better=False, **_of_sacrebleu(_ter)),
        Metric("exact_match", "exact match", "exact_match", _exact_match, unit=" %"),
    )
}
"""The metrics by name, in the order in which reports and cards show them."""
