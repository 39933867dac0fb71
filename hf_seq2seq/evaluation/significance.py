"""Whether two systems differ by more than chance."""

from typing import Any

from sacrebleu.significance import PairedTest

from .metrics import METRICS, Texts


def compare(hypotheses: Texts, baseline: Texts, references: Texts) -> dict[str, dict[str, float | str]]:
    """Compares two systems by sacreBLEU's paired bootstrap of 1,000 samples.

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
    metrics = {name: metric.sacrebleu(references) for name, metric in METRICS.items() if metric.sacrebleu is not None}
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
