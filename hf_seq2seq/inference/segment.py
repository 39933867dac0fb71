"""A line of text, or a part of it, on its way to its translation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .constrained_search import Phrase
from .hypothesis import Hypothesis


Ids = list[int]


@dataclass(frozen=True)
class Output:
    """What a search wrote for a segment.

    Attributes:
        ids: Its token ids, without the start token. The last one is the end token, unless the output was cut at its
            greatest length.
        log_probs: The log-probability of each token; empty if it was not asked for.
        attention: How much each token attended to each token of the source, shape (tokens, source tokens), if asked
            for.
        score: What the search ranked it by, where the search tells.
    """

    ids: Ids
    log_probs: Sequence[float] = ()
    attention: torch.Tensor | None = None
    score: float | None = None


@dataclass(frozen=True)
class Segment:
    """What is translated by itself: a line, or one sentence of a line.

    Segments are never changed: each step from a line to its translation returns new ones, in which more is filled in.

    Attributes:
        text: The source.
        line: Number of its line, from 1, by which messages call it.
        place: Its place among the sentences of its line, from 0.
        prefix: What its translation begins with, if that is given.
        ids: Token ids of the source, the end token included; none if the text is blank.
        prefix_ids: Token ids of the prefix, without an end token.
        required: What its translation must have in it.
        outputs: What the search wrote, the best first.
        hypotheses: The same as texts, with all that is told of them.
        origin: What the document that the line is from keeps of it, such as the other cells of its row.
    """

    text: str
    line: int = 1
    place: int = 0
    prefix: str | None = None
    ids: Ids = field(default_factory=list)
    prefix_ids: Ids = field(default_factory=list)
    required: Sequence[Phrase] = ()
    outputs: Sequence[Output] = ()
    hypotheses: Sequence[Hypothesis] = ()
    origin: Any = None


def number_lines(texts: Iterable[str], prefixes: Iterable[str | None]) -> Iterator[Segment]:
    """Yields texts as lines, which are numbered from 1.

    Args:
        texts: The texts; they may have no end.
        prefixes: What the translation of each begins with, or None.

    Raises:
        ValueError: If a text or prefix is no string, or no valid Unicode.
    """
    for number, (text, prefix) in enumerate(zip(texts, prefixes, strict=False), start=1):
        _check_text(text, f"Line {number}")
        if prefix is not None:
            _check_text(prefix, "`prefix`")
        yield Segment(text, line=number, prefix=prefix)


def _check_text(text: str, name: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string, but is {text!r} instead.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode, but holds half of a surrogate pair. Take it out.") from None
