"""Translation with a trained model."""

from .translator import SearchOptions, Translator


__all__ = ["SearchOptions", "Translator"]
