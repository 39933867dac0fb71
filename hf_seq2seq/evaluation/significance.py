"""Whether two systems differ by more than chance."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from sacrebleu.significance import PairedTest

from .metrics import Metric, chosen_metrics
from .own_metric import OneNumberError
from .references import References, Texts, alternatives, check_numbers, streams


logger = logging.getLogger(__name__)


def compare(
    hypotheses: Texts,
    baseline: Texts,
    references: References,
    metrics: str | Iterable[str] | None = None,
    *,
    sources: Texts | None = None,
) -> dict[str, dict[str, float | str]]:
    """Compares two systems by sacreBLEU's paired bootstrap of 1,000 samples.

    Koehn (2004), https://aclanthology.org/W04-3250.

    Args:
        hypotheses: The texts of one system.
        baseline: Those of the other, in the same order.
        references: What each should have been: a text, or a list of texts that are all right.
        metrics: The names of the metrics, such as "bleu,chrf"; None is `DEFAULT_METRICS`.
        sources: What was translated, for metrics of your own.

    Returns:
        For each metric the `score` of the first system and its `interval` (half of the 95 % confidence interval),
        `baseline` and `baseline_interval`, the `p_value` that the difference is chance, and the `signature`. A metric
        of your own that returns one number for all lines is left out, with a warning.

    Raises:
        ValueError: If there is nothing to compare, the numbers of texts differ, or a metric is not known.
    """
    check_numbers(references, hypotheses=hypotheses, baseline=baseline)
    lines = alternatives(references)
    results = {}
    for name, row in chosen_metrics(metrics, sources).items():
        try:
            results[name] = _compare(hypotheses, baseline, lines, row)
        except OneNumberError as error:
            logger.warning("%s The two systems are not compared by it.", error)
    return results


def _compare(
    hypotheses: Texts, baseline: Texts, lines: Sequence[Sequence[str]], row: Metric
) -> dict[str, float | str]:
    systems = [("baseline", baseline), ("system", hypotheses)]
    signatures, found = PairedTest(systems, {row.name: row.make(lines)}, streams(lines), test_type="bs")()
    ((title, signature),) = signatures.items()
    results: Any = found[title]
    other, own = results
    return {
        "score": float(own.score),
        "interval": float(own.ci),
        "baseline": float(other.score),
        "baseline_interval": float(other.ci),
        # Systems of equal score do not differ, but where they are equal in every sample sacreBLEU says nearly 0.
        "p_value": 1.0 if own.score == other.score else float(own.p_value),
        "signature": signature.format(),
    }
