"""Lines become sentences, and the translations of sentences become those of their lines."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .hypothesis import Hypothesis
from .segment import Segment


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text, without the white space around them; a blank text is its own sentence.

    Args:
        text: A text of one line.
        language: Code of its language; where the library has no rules for it, it applies general ones.

    Raises:
        ImportError: If the library is not installed.
    """
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError(
            "`split_language` needs the library sentencex, which is not installed: pip install 'hf-seq2seq[split]'"
        ) from error
    sentences = [sentence.strip() for sentence in segment(language, text)]
    return [sentence for sentence in sentences if sentence] or [text]


def split_lines(lines: Sequence[Segment], language: str | None) -> list[Segment]:
    """Returns the sentences of lines; without a language, the lines themselves."""
    if language is None:
        return list(lines)
    return [
        replace(line, text=sentence, place=place)
        for line in lines
        for place, sentence in enumerate(split_sentences(line.text, language))
    ]


def join_lines(lines: Sequence[Segment], segments: Iterable[Segment]) -> list[Segment]:
    """Returns lines with the hypotheses of their segments.

    Args:
        lines: The lines, as they were before they were split.
        segments: Their translated segments, in any order.
    """
    parts: dict[int, list[Segment]] = {line.line: [] for line in lines}
    for segment in sorted(segments, key=lambda segment: segment.place):
        parts[segment.line].append(segment)
    return [replace(line, hypotheses=_join(parts[line.line])) for line in lines]


def _join(segments: Sequence[Segment]) -> Sequence[Hypothesis]:
    """Returns the hypotheses of a line; where it has several segments, their best ones joined with spaces."""
    if len(segments) == 1:
        return segments[0].hypotheses
    parts = [segment.hypotheses[0] for segment in segments]
    is_scored = all(part.token_log_probs is not None for part in parts)
    return [
        Hypothesis(
            " ".join(part.text for part in parts),
            tuple(token for part in parts for token in part.tokens),
            tuple(number for part in parts for number in part.token_ids),
            tuple(number for part in parts for number in part.token_log_probs or ()) if is_scored else None,
        )
    ]
