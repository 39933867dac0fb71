"""Scores of texts: the table of metrics, the comparison of two systems, and lines that report both.

In: texts and their references. Out: numbers by name. Imports no other room.
"""

from .generated import decode, generation_metrics
from .metrics import DEFAULT_METRICS, METRICS, Metric, chosen_metrics, metrics_in, score, scores_in
from .report import comparison_lines, report_line, score_lines
from .significance import compare


__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Metric",
    "chosen_metrics",
    "compare",
    "comparison_lines",
    "decode",
    "generation_metrics",
    "metrics_in",
    "report_line",
    "score",
    "score_lines",
    "scores_in",
]
