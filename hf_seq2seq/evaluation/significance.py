"""Whether two systems differ by more than chance."""

from collections.abc import Callable, Iterable
from typing import Any

from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.significance import PairedTest

from .metrics import METRICS, Texts, check_numbers, chosen_metrics


def comparable_metrics(names: str | Iterable[str] | None) -> dict[str, Callable[[Texts], SacrebleuMetric]]:
    """Returns what makes sacreBLEU's metric for given references, for each of the metrics that sacreBLEU has.

    Raises:
        ValueError: If a name is not known, or sacreBLEU has none of them.
    """
    metrics = chosen_metrics(names)
    found = {name: metric.sacrebleu for name, metric in metrics.items() if metric.sacrebleu is not None}
    if not found:
        known = [name for name, metric in METRICS.items() if metric.sacrebleu is not None]
        raise ValueError(
            f"`metrics` must have one of {', '.join(known)} where two systems are compared, but has "
            f"{', '.join(metrics)} instead."
        )
    return found


def compare(
    hypotheses: Texts, baseline: Texts, references: Texts, metrics: str | Iterable[str] | None = None
) -> dict[str, dict[str, float | str]]:
    """Compares two systems by sacreBLEU's paired bootstrap of 1,000 samples.

    Koehn (2004), https://aclanthology.org/W04-3250.

    Args:
        hypotheses: The texts of one system.
        baseline: Those of the other, in the same order.
        references: What each should have been.
        metrics: The names of the metrics, such as "bleu,chrf"; None is all.

    Returns:
        For those of `bleu`, `chrf` and `ter` that are among the metrics: the `score` of the first system and its
        `interval` (half of the 95 % confidence interval), `baseline` and `baseline_interval`, the `p_value` that the
        difference is chance, and the `signature`.

    Raises:
        ValueError: If there is nothing to compare, the numbers of texts differ, a metric is not known, or none of the
            chosen ones can be compared.
    """
    check_numbers(references, hypotheses=hypotheses, baseline=baseline)
    comparable = {name: make(references) for name, make in comparable_metrics(metrics).items()}
    systems = [("baseline", baseline), ("system", hypotheses)]
    signatures, found = PairedTest(systems, comparable, [references], test_type="bs")()
    results: dict[str, dict[str, float | str]] = {}
    for name, (title, signature) in zip(comparable, signatures.items(), strict=True):
        results_of_both: Any = found[title]
        other, own = results_of_both
        results[name] = {
            "score": float(own.score),
            "interval": float(own.ci),
            "baseline": float(other.score),
            "baseline_interval": float(other.ci),
            # Systems of equal score do not differ, but where they are equal in every sample sacreBLEU says nearly 0.
            "p_value": 1.0 if own.score == other.score else float(own.p_value),
            "signature": signature.format(),
        }
    return results
