"""Translation with a trained model."""

from .hypothesis import Hypothesis, SearchOptions
from .translator import Translator


__all__ = ["Hypothesis", "SearchOptions", "Translator"]
