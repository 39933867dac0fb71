"""Translation with a trained model: read, split, encode, batch, search, score, decode, join.

In: a model, its tokenizer and lines of text. Out: hypotheses, with scores and alignments where they are asked for.
Imports `model/` and the files above the rooms.
"""

from .constrained_search import ConstrainedSearch, Phrase, RequiredPhrases
from .diversity import SiblingPenalty
from .ensemble import Ensemble
from .hypothesis import Hypothesis
from .ranking import expected_utilities
from .settings import SearchOptions
from .translator import Translator


__all__ = [
    "ConstrainedSearch",
    "Ensemble",
    "Hypothesis",
    "Phrase",
    "RequiredPhrases",
    "SearchOptions",
    "SiblingPenalty",
    "Translator",
    "expected_utilities",
]
