"""Scores as lines for people to read."""

from collections.abc import Mapping
from typing import Any

from .metrics import METRICS, metrics_in


def report_line(title: str, value: str, signature: str = "") -> str:
    """Returns a line with a title, a value in the second column and how it was computed in the third."""
    return f"{title:<12} {value}  {signature}".rstrip()


def score_lines(scores: Mapping[str, Any]) -> list[str]:
    """Returns a line for each metric of which `scores` holds the value, and one for what it is made of, if known.

    Args:
        scores: What `score` returned; other entries do no harm.
    """
    lines = []
    for name, metric in metrics_in(scores).items():
        lines.append(report_line(metric.title, metric.format(scores[name]), scores.get(metric.signature_name, "")))
        if metric.parts_name in scores:
            lines.append(report_line("", ", ".join(map(_part, *zip(*scores[metric.parts_name].items(), strict=True)))))
    return lines


def _part(name: str, value: float | list[float]) -> str:
    if isinstance(value, list):
        text = "/".join(f"{one:.1f}" for one in value)
    else:
        text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
    return f"{name.replace('_', ' ')} {text}"


def comparison_lines(comparison: Mapping[str, Any]) -> list[str]:
    """Returns a line for each metric by which two systems were compared.

    Args:
        comparison: What `compare` returned; other entries do no harm.
    """
    lines = []
    for name, found in comparison.items():
        if isinstance(found, Mapping):
            metric = METRICS.get(name)
            title, unit = (name, "") if metric is None else (metric.title, metric.unit)
            own = f"{found['score']:.1f}{unit} ± {found['interval']:.1f}"
            other = f"{found['baseline']:.1f}{unit} ± {found['baseline_interval']:.1f}"
            lines.append(report_line(title, f"{own} against {other}, p = {found['p_value']:.4f}"))
    return lines
