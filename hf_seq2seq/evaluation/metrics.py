"""The table of metrics, and `score`, which computes them.

A new metric is a new row: `train`, `evaluate`, early stopping, model cards and `push` read it there. Only
inspection/training_curves.py names metrics itself: the ones that it draws.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.base import Signature
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


def chosen_metrics(names: str | Iterable[str] | None) -> dict[str, Metric]:
    """Returns the metrics of these names, in the order of the table.

    Args:
        names: Their names, or one text with commas between them; None is all.

    Raises:
        ValueError: If a name is not in the table, or there is none.
    """
    if names is None:
        return METRICS
    wanted = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    unknown = [name for name in wanted if name not in METRICS]
    if unknown or not wanted:
        raise ValueError(
            f"`metrics` must be names among {', '.join(METRICS)}, with commas between them, but has "
            f"{repr(unknown[0]) if unknown else 'none'} instead."
        )
    return {name: metric for name, metric in METRICS.items() if name in wanted}


def score(hypotheses: Texts, references: Texts, metrics: str | Iterable[str] | None = None) -> dict[str, Any]:
    """Scores hypotheses against one reference each.

    Args:
        hypotheses: The texts to score.
        references: What each should have been, in the same order.
        metrics: The names of the metrics, such as "bleu,chrf"; None is all.

    Returns:
        For the whole, `bleu` and `chrf` (0 to 100, higher is better), `ter` (edits for 100 words of the reference,
        lower is better), `exact_match` (the percentage of hypotheses that equal their reference), and
        `bleu_signature`, `chrf_signature` and `ter_signature`, which tell how sacreBLEU computed them. Texts are cut
        into words as sacreBLEU's tokenizer 13a does. Where most references are in a script without spaces, BLEU takes
        the tokenizer zh or char in its place, and TER takes each Chinese or Japanese character for a word. Lines of
        more than 200 words are compared without TER's search for shifted words, and its signature says so.

    Raises:
        ValueError: If there is nothing to score, the numbers differ, or a metric is not known.
    """
    check_numbers(references, hypotheses=hypotheses)
    scores: dict[str, Any] = {}
    for metric in chosen_metrics(metrics).values():
        scores[metric.name], signature = metric.compute(hypotheses, references)
        if signature is not None:
            scores[metric.signature_name] = signature
    return scores


def check_numbers(references: Texts, **texts: Texts) -> None:
    """Checks that there are references, and as many of each of the other texts, which are given by name.

    Raises:
        ValueError: If not.
    """
    for name, of_system in texts.items():
        if not references or len(of_system) != len(references):
            raise ValueError(
                f"`{name}` must be as many as `references` and at least one, but are {len(of_system)} for "
                f"{len(references)} instead."
            )


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


class _BoundedTER(TER):
    """TER in which long lines cost no minutes.

    The search for words that are shifted to another place takes 10 s for a line of 200 words, and minutes for longer
    ones. Without it, a shifted word counts as two edits.
    """

    longest_searched = 200  # words
    has_longer = False

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        words, (reference,) = hypothesis.split(), ref_kwargs["ref_words"]
        if max(len(words), len(reference)) <= self.longest_searched:
            statistics: list[float] = super()._compute_segment_statistics(hypothesis, ref_kwargs)
            return statistics
        self.has_longer = True
        return [_edit_distance(words, reference), len(reference)]

    def get_signature(self) -> Signature:
        signature = super().get_signature()
        if self.has_longer:
            signature.update("shifts", f"up to {self.longest_searched} words")
        return signature


def _edit_distance(words: Sequence[str], reference: Sequence[str]) -> int:
    """Returns how many words must be put in, taken out or replaced, at least (Levenshtein)."""
    ids = {word: number for number, word in enumerate(dict.fromkeys([*words, *reference]))}
    targets = np.array([ids[word] for word in reference], dtype=int)
    insertions = np.arange(len(reference) + 1)
    row = insertions  # of the table of distances: from the words so far to each beginning of the reference
    for number, word in enumerate(words, start=1):
        replaced, taken_out = row[:-1] + (targets != ids[word]), row[1:] + 1
        row = np.concatenate(([number], np.minimum(replaced, taken_out)))
        row = np.minimum.accumulate(row - insertions) + insertions
    return int(row[-1])


def _ter(references: Texts) -> SacrebleuMetric:
    is_unspaced = _bleu_tokenizer(references) != "13a"
    # TER cuts Asian scripts into characters only where both are set.
    return _BoundedTER(normalized=is_unspaced, asian_support=is_unspaced)


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
