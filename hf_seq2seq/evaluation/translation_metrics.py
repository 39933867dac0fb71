"""BLEU, chrF and TER: sacreBLEU's, with the tokenizer that fits the script of the references."""

import re
from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER


# Scripts that put no spaces between words, and the tokenizer of sacreBLEU that cuts them: Japanese kana, Thai, Lao,
# Burmese and Khmer into characters; Chinese characters one by one and the rest like 13a.
UNSPACED_SCRIPTS = {
    "char": re.compile("[\u3040-\u30ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}


def bleu(references: Sequence[Sequence[str]]) -> SacrebleuMetric:
    """Returns BLEU for these references, several for each line."""
    return BLEU(tokenize=_bleu_tokenizer(references))


def bleu_parts(score: BLEUScore) -> dict[str, Any]:
    """Returns what a BLEU score is made of.

    The score is the geometric mean of the four precisions times the brevity penalty, which is 1 where the hypotheses
    are at least as long as the references.
    """
    return {
        "precisions": list(score.precisions),
        "brevity_penalty": float(score.bp),
        "length_ratio": float(score.ratio),
        "length": int(score.sys_len),
        "reference_length": int(score.ref_len),
    }


def chrf(references: Sequence[Sequence[str]]) -> SacrebleuMetric:
    """Returns chrF."""
    return CHRF()


def ter(references: Sequence[Sequence[str]]) -> SacrebleuMetric:
    """Returns TER for these references, several for each line."""
    is_unspaced = _bleu_tokenizer(references) != "13a"
    # TER cuts Asian scripts into characters only where both are set.
    return _BoundedTER(normalized=is_unspaced, asian_support=is_unspaced)


def _bleu_tokenizer(references: Sequence[Sequence[str]]) -> str:
    for tokenizer, script in UNSPACED_SCRIPTS.items():
        if 2 * sum(bool(script.search(line[0])) for line in references) > len(references):
            return tokenizer
    return "13a"


class _BoundedTER(TER):
    """TER in which long lines cost no minutes.

    The search for words that are shifted to another place takes 10 s for a line of 200 words, and minutes for longer
    ones. Without it, a shifted word counts as two edits.
    """

    longest_searched = 200  # words
    has_longer = False

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        words, references = hypothesis.split(), ref_kwargs["ref_words"]
        if max(map(len, [words, *references])) <= self.longest_searched:
            statistics: list[float] = super()._compute_segment_statistics(hypothesis, ref_kwargs)
            return statistics
        self.has_longer = True
        edits = min(Levenshtein.distance(words, reference) for reference in references)
        return [edits, sum(map(len, references)) / len(references)]

    def get_signature(self) -> Signature:
        signature = super().get_signature()
        if self.has_longer:
            signature.update("shifts", f"up to {self.longest_searched} words")
        return signature
