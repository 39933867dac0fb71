"""What the server's process and its workers send each other."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Search:
    """How a line is translated. Lines with an equal search can share a batch.

    Attributes:
        model: Number of the model, from 0.
        options: Names and values of `SearchOptions`.
        scores: Whether scores are wanted.
        alignments: Whether alignments are wanted.
    """

    model: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    scores: bool = False
    alignments: bool = False


@dataclass(frozen=True)
class Translation:
    """The hypotheses of a line, the best first.

    Attributes:
        texts: Their texts.
        scores: What ranks each, if that was asked for; None for what is no number.
        alignments: Pairs of words (source, target) of each, if they were asked for.
    """

    texts: tuple[str, ...]
    scores: tuple[float | None, ...] | None = None
    alignments: tuple[tuple[tuple[int, int], ...], ...] | None = None


@dataclass(frozen=True)
class Failure:
    """Why a line has no translation.

    Attributes:
        status: The HTTP status that tells whose fault it is.
        message: What the client is told: nothing of the machine.
    """

    status: int
    message: str


Result = Translation | Failure
