"""Scores as lines for people to read."""

from collections.abc import Mapping
from typing import Any

from .metrics import METRICS


def report_line(title: str, value: str, signature: str = "") -> str:
    """Returns a line with a title, a value in the second column and how it was computed in the third."""
    return f"{title:<12} {value}  {signature}".rstrip()


def score_lines(scores: Mapping[str, Any]) -> list[str]:
    """Returns a line for each metric of which `scores` holds the value.

    Args:
        scores: What `score` returned; other entries do no harm.
    """
    return [
        report_line(metric.title, metric.format(scores[metric.name]), scores.get(metric.signature_name, ""))
        for metric in METRICS.values()
        if metric.name in scores
    ]


def comparison_lines(comparison: Mapping[str, Any]) -> list[str]:
    """Returns a line for each metric by which two systems were compared.

    Args:
        comparison: What `compare` returned; other entries do no harm.
    """
    lines = []
    for metric in METRICS.values():
        if metric.name in comparison:
            found = comparison[metric.name]
            own = f"{metric.format(found['score'])} ± {found['interval']:.1f}"
            other = f"{metric.format(found['baseline'])} ± {found['baseline_interval']:.1f}"
            lines.append(report_line(metric.title, f"{own} against {other}, p = {found['p_value']:.4f}"))
    return lines
