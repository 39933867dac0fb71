"""Metrics that are a ratio of two sums over lines: error rates, ROUGE and exact matches.

They are metrics of sacreBLEU's kind, so that it compares two systems by them as by BLEU.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any
from unicodedata import category

from rapidfuzz.distance import LCSseq, Levenshtein
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.base import Score, Signature

from .translation_metrics import UNSPACED_SCRIPTS


Units = Sequence[Hashable]  # of a text: its words, its characters, or the text as a whole
Counts = tuple[float, float]  # what a line adds to the numerator and to the denominator


class LineMetric(SacrebleuMetric):
    """A metric of 100 times the sum of the lines' numerators over that of their denominators.

    Args:
        name: Its name.
        cut: Cuts a text into what is counted.
        count: Counts for a hypothesis and its references, all of them cut.
        settings: What the signature says beside the number of references.
    """

    def __init__(
        self,
        name: str,
        cut: Callable[[str], Any],
        count: Callable[[Any, Sequence[Any]], Counts],
        **settings: str,
    ) -> None:
        super().__init__()
        self.name, self.cut, self.count, self.settings = name, cut, count, settings

    def _preprocess_segment(self, sent: str) -> Any:
        return self.cut(sent)

    def _extract_reference_info(self, refs: Sequence[Any]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: Any, ref_kwargs: dict[str, Any]) -> list[float]:
        return list(self.count(hypothesis, ref_kwargs["references"]))

    def _aggregate_and_compute(self, stats: list[list[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Any) -> Score:
        numerator, denominator = (float(value) for value in stats)
        # References without a word or character: no error, or nothing but errors.
        value = numerator / denominator if denominator else float(numerator > 0)
        return Score(self.name, 100 * value)

    def get_signature(self) -> Signature:
        """Returns the number of references, and the settings."""
        signature = super().get_signature()
        for key, value in self.settings.items():
            signature.update(key, value)
        signature.update("version", None)  # sacreBLEU's
        return signature


def fewest_edits(hypothesis: Units, references: Sequence[Units]) -> Counts:
    """Returns the edits to the nearest reference (Levenshtein), and how long that one is.

    An edit puts one unit in, takes one out or replaces one. Of references that are equally near, the longest counts.
    """
    edits, length = min((Levenshtein.distance(hypothesis, one), -len(one)) for one in references)
    return edits, -length


def is_right(hypothesis: Any, references: Sequence[Any]) -> Counts:
    """Returns 1 if a hypothesis equals one of its references, else 0, of 1 line."""
    return float(hypothesis in references), 1


def is_wrong(hypothesis: Any, references: Sequence[Any]) -> Counts:
    """Returns 1 if a hypothesis equals none of its references, else 0, of 1 line."""
    return float(hypothesis not in references), 1


def characters(text: str) -> str:
    """Returns a text with one space for white space, and none at its ends."""
    return " ".join(text.split())


def error_rate(name: str, cut: Callable[[str], Any], unit: str) -> SacrebleuMetric:
    """Returns a metric of edits for 100 units of the nearest reference."""
    return LineMetric(name, cut, fewest_edits, unit=unit, case="mixed", rapidfuzz=version("rapidfuzz"))


def rouge(name: str) -> SacrebleuMetric:
    """Returns ROUGE (Lin 2004, https://aclanthology.org/W04-1013), of which the name is rouge1, rouge2 or rougeL.

    The value is the mean over the lines of F1 against the best reference. Words are runs of letters and digits in
    lower case. Those of more than three letters a-z lose their endings (Porter's stemmer, made for English). Scripts
    without spaces are cut into characters. For English that is what rouge-score does with `use_stemmer=True`.
    """
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.scoring import fmeasure

    def f1(words: Units, reference: Units) -> float:
        if name != "rougeL":
            found: float = scorer.score(reference, words)[name].fmeasure
            return found
        if not words or not reference:
            return 0.0
        common = LCSseq.similarity(words, reference)  # rouge-score's own search takes minutes for long texts
        return float(fmeasure(common / len(words), common / len(reference)))

    scorer = RougeScorer([name], tokenizer=_AlreadyCut())
    return LineMetric(
        name,
        _rouge_words,
        lambda words, references: (max(f1(words, reference) for reference in references), 1),
        case="lc",
        stem="porter",
        average="f1",
        **{"rouge-score": version("rouge-score")},
    )


class _AlreadyCut:
    """What rouge-score takes for a tokenizer, where texts are words already."""

    @staticmethod
    def tokenize(words: Units) -> Units:
        return words


def _rouge_words(text: str) -> list[str]:
    words = "".join(map(_spaced, text.lower())).split()
    return [_stem(word) if word.isascii() else word for word in words]


@lru_cache(maxsize=10_000)
def _spaced(character: str) -> str:
    """Returns a letter, mark or digit as it is, with spaces if its script has none, and a space for all others."""
    if any(script.match(character) for script in UNSPACED_SCRIPTS.values()):
        return f" {character} "
    return character if category(character)[0] in "LMN" else " "


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    (stem,) = _porter().tokenize(word)
    return str(stem)


@lru_cache(maxsize=1)
def _porter() -> Any:
    from rouge_score.tokenizers import DefaultTokenizer

    return DefaultTokenizer(use_stemmer=True)
