"""Scores of texts: the table of metrics, the comparison of two systems, and lines that report both.

In: texts and their references. Out: numbers by name. Imports no other room.
"""

from .generated import decode, generation_metrics
from .metrics import METRICS, Metric, Score, chosen_metrics, score, scores_in
from .report import comparison_lines, report_line, score_lines
from .significance import comparable_metrics, compare


__all__ = [
    "METRICS",
    "Metric",
    "Score",
    "chosen_metrics",
    "comparable_metrics",
    "compare",
    "comparison_lines",
    "decode",
    "generation_metrics",
    "report_line",
    "score",
    "score_lines",
    "scores_in",
]
