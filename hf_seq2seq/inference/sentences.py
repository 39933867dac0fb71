"""Lines become sentences, and the translations of sentences become those of their lines."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hf_seq2seq.text_lines import is_blank
from hf_seq2seq.token_lookup import added_special_tokens

from .hypothesis import Hypothesis
from .segment import Segment


# Languages in which a period after a number makes an ordinal of it, as in "am 1. Tag".
_WITH_ORDINAL_PERIODS = {
    *("bs", "cs", "da", "de", "et", "fi", "fo", "hr", "hu", "is"),
    *("lb", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr"),
}

# What the library takes for the end of a sentence, and is none: a number or a letter in front of a list's entry, an
# initial, and, before a number, a short word, such as "vol."
_ENTRY = re.compile(r"\s*\(?(\d{1,3}|[^\W\d_])[.)]")
_INITIAL = re.compile(r"(?<![\w.])([^\W\d_])\.$")
_SHORT_WORD = re.compile(r"(?<!\S)[^\s\d]{1,6}\.$")
_ORDINAL = re.compile(r"(?<![\w.,])\d{1,2}\.$")

# The end of a sentence after which Chinese and Japanese write no space.
_FULL_WIDTH_END = re.compile("[\u3002\uff01\uff0e\uff1f\uff61][\u2019\u201d\u300b\u300d\u300f\u3011\uff09]*$")


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text, without the white space around them; a blank text is its own sentence.

    The library cuts at many abbreviations and ordinals. Its pieces are put together again where a sentence goes on.

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
    has_ordinals = re.split("[-_]", language.lower())[0] in _WITH_ORDINAL_PERIODS
    sentences: list[str] = []
    for piece in segment(language, text):
        if sentences and _goes_on(sentences[-1].rstrip(), piece.lstrip(), has_ordinals):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [sentence.strip() for sentence in sentences if not is_blank(sentence)] or [text]


def _goes_on(before: str, after: str, has_ordinals: bool) -> bool:
    """Returns whether the sentence that begins with `before` goes on with `after`, which the library cut off."""
    first_letter = next((character for character in after if character.isalnum()), "")
    initial = _INITIAL.search(before)
    return (
        first_letter.islower()
        or _ENTRY.fullmatch(before) is not None
        or (initial is not None and initial[1].isupper())
        or (after[:1].isdigit() and _SHORT_WORD.search(before) is not None)
        or (has_ordinals and _ORDINAL.search(before) is not None)
    )


def split_lines(lines: Sequence[Segment], language: str | None, tokenizer: Any = None) -> list[Segment]:
    """Returns the sentences of lines; without a language, the lines themselves.

    Args:
        lines: The lines.
        language: Code of their language.
        tokenizer: The model's tokenizer, which knows tags. Those that a line begins with are given to each sentence.
    """
    if language is None:
        return list(lines)
    segments = []
    for line in lines:
        tags, text = _split_tags(line.text, tokenizer)
        sentences = split_sentences(text, language)
        segments += [replace(line, text=tags + sentence, place=place) for place, sentence in enumerate(sentences)]
    return segments


_SENTENCE_BREAK = r"(?<=[.!?\u2026])\s+|(?<=[\u3002\uff01\uff1f])\s*"


def halve(text: str, tokenizer: Any) -> tuple[str, ...]:
    """Returns two parts of a text, about as long as each other, or nothing for a text of one character.

    They end between sentences, if such a place is near the middle, or else between words, if there are several. Tags
    at the beginning of the text are those of both parts.
    """
    tags, text = _split_tags(text.strip(), tokenizer)
    middle = len(text) // 2
    breaks = [match.span() for match in re.finditer(_SENTENCE_BREAK, text)]
    breaks = [(start, end) for start, end in breaks if abs(start - middle) <= len(text) / 4]
    breaks = breaks or [match.span() for match in re.finditer(r"\s+", text)]
    start, end = min(breaks, key=lambda span: abs(span[0] - middle), default=(middle, middle))
    return (tags + text[:start], tags + text[end:]) if start > 0 else ()


def _split_tags(text: str, tokenizer: Any) -> tuple[str, str]:
    """Returns the tags that a text begins with, such as `>>fra<< `, and the rest; a text of only tags has none."""
    tokens = [] if tokenizer is None else added_special_tokens(tokenizer)
    tag = "|".join([r">>[^<>\s]+<<", *map(re.escape, sorted(tokens, key=len, reverse=True))])
    found = re.match(rf"(?:\s*(?:{tag}))+\s*(?=\S)", text)
    end = found.end() if found else 0
    return text[:end], text[end:]


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
    """Returns the hypotheses of a line; where it has several segments, their best ones joined.

    Between them is a space, but not after a full-width period or mark.
    """
    if len(segments) == 1:
        return segments[0].hypotheses
    parts = [segment.hypotheses[0] for segment in segments]
    is_scored = any(part.token_log_probs is not None for part in parts)  # all that are not blank
    return [
        Hypothesis(
            _join_texts([part.text for part in parts if part.text]),
            tuple(token for part in parts for token in part.tokens),
            tuple(number for part in parts for number in part.token_ids),
            tuple(number for part in parts for number in part.token_log_probs or ()) if is_scored else None,
            score=sum(part.score or 0.0 for part in parts) if is_scored else None,
        )
    ]


def _join_texts(texts: Sequence[str]) -> str:
    spaced = [text if _FULL_WIDTH_END.search(text) else f"{text} " for text in texts[:-1]]
    return "".join([*spaced, *texts[-1:]])
