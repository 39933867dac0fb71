"""Scores of translations: the metrics, and what compares two systems.

In: texts and their references. Out: numbers by name. Imports none of the rooms but `data/`.
"""

from .metrics import generation_metrics, score


__all__ = ["generation_metrics", "score"]
