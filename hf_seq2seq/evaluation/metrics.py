"""Scores of translations: BLEU, chrF and TER as sacreBLEU computes them, and the share of exact matches."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest
from transformers import EvalPrediction, PreTrainedTokenizerBase


# Scripts that put no spaces between words, and the tokenizer of sacreBLEU that cuts them: Japanese kana, Thai, Lao,
# Burmese and Khmer into characters; Chinese characters one by one and the rest like 13a.
_UNSPACED_SCRIPTS = {
    "char": re.compile("[\u3040-\u30ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}


def score(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Scores hypotheses against one reference each.

    Args:
        hypotheses: The texts to score.
        references: What each should have been, in the same order.

    Returns:
        `bleu`, `chrf` (0 to 100, higher is better) and `ter` (edits for 100 words of the reference, lower is better)
        of the whole, their sacreBLEU signatures `bleu_signature` and so on, and `exact_match`, the percentage of
        hypotheses that are their reference. BLEU cuts texts into words as sacreBLEU's tokenizer 13a does, or where
        most references are in a script without spaces, as zh or char does; its signature says which. TER takes each
        Chinese or Japanese character for a word then.

    Raises:
        ValueError: If there is nothing to score or the numbers differ.
    """
    if not references or len(hypotheses) != len(references):
        raise ValueError(
            f"`hypotheses` must be as many as `references` and at least one, but are {len(hypotheses)} for "
            f"{len(references)} instead."
        )
    scores: dict[str, Any] = {}
    for name, metric in _metrics(references).items():
        scores[name] = metric.corpus_score(hypotheses, [references]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    num_exact = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    scores["exact_match"] = 100 * num_exact / len(references)
    return scores


def compare(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, float | str]]:
    """Tells whether two systems differ by more than chance: sacreBLEU's paired bootstrap of 1,000 samples.

    Koehn (2004), https://aclanthology.org/W04-3250.

    Args:
        hypotheses: The texts of one system.
        baseline: Those of the other, in the same order.
        references: What each should have been.

    Returns:
        For `bleu`, `chrf` and `ter`: the `score` of the first system and its `interval` (half of the 95 % confidence
        interval), `baseline` and `baseline_interval`, the `p_value` that the difference is chance, and the
        `signature`.
    """
    metrics = _metrics(references)
    systems = [("baseline", baseline), ("system", hypotheses)]
    signatures, found = PairedTest(systems, metrics, [references], test_type="bs")()
    results: dict[str, dict[str, float | str]] = {}
    for name, (title, signature) in zip(metrics, signatures.items(), strict=True):
        results_of_both: Any = found[title]
        other, own = results_of_both
        results[name] = {
            "score": float(own.score),
            "interval": float(own.ci),
            "baseline": float(other.score),
            "baseline_interval": float(other.ci),
            # Where no sample differs, sacreBLEU finds the difference of 0 in none of them, and so significant.
            "p_value": 1.0 if own.score == other.score else float(own.p_value),
            "signature": signature.format(),
        }
    return results


def _metrics(references: Sequence[str]) -> dict[str, Metric]:
    tokenizer = _bleu_tokenizer(references)
    is_unspaced = tokenizer != "13a"
    return {
        "bleu": BLEU(tokenize=tokenizer),
        "chrf": CHRF(),
        "ter": TER(normalized=is_unspaced, asian_support=is_unspaced),  # it tells Asian characters apart in both only
    }


def _bleu_tokenizer(references: Sequence[str]) -> str:
    for tokenizer, script in _UNSPACED_SCRIPTS.items():
        if 2 * sum(bool(script.search(reference)) for reference in references) > len(references):
            return tokenizer
    return "13a"


def generation_metrics(tokenizer: PreTrainedTokenizerBase) -> Callable[[EvalPrediction], dict[str, float]]:
    """Returns a `compute_metrics` for a Seq2SeqTrainer that evaluates by generation (`predict_with_generate`).

    It returns the numbers of `score`; signatures are no numbers, and experiment trackers refuse them.
    """

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        hypotheses = decode(tokenizer, prediction.predictions)
        references = decode(tokenizer, prediction.label_ids)
        scores = score(hypotheses, references)
        return {name: value for name, value in scores.items() if not name.endswith("_signature")}

    return compute_metrics


def decode(tokenizer: PreTrainedTokenizerBase, ids: Any) -> list[str]:
    """Decodes rows of token ids in which -100 stands for padding, as the trainer returns them."""
    ids = np.where(np.asarray(ids) == -100, tokenizer.pad_token_id, ids)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)
