"""Which word of a text each of its tokens is part of. Words are what white space separates."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from hf_seq2seq.token_lookup import encode_sources

from .segment import Ids


Words = tuple[int | None, ...]


def source_words(tokenizer: Any, text: str, ids: Ids) -> Words:
    """Returns for each token of a source the number of its word in the text, from 0.

    Tokens that stand for no text, such as the end token, have None. A tokenizer that is written in Python does not
    tell where its tokens are: there each word is cut into tokens by itself, which may give others in rare cases.

    Args:
        tokenizer: The tokenizer.
        text: The text as it was written.
        ids: Its ids, the end token included; the last ones before that may have been cut off.
    """
    kept = len(ids) - 1
    if tokenizer.is_fast:
        spans = tokenizer(text, return_offsets_mapping=True, verbose=False)["offset_mapping"]
        starts = [match.start() for match in re.finditer(r"\S+", text)]
        words = [_word_at(text[start:end].rstrip(), start, starts) for start, end in spans]
    else:
        parts = encode_sources(tokenizer, text.split(), add_special_tokens=False)
        words = [number for number, part in enumerate(parts) for _ in part]
    return (*words[:kept], *([None] * (len(ids) - len(words[:kept]))))


def _word_at(piece: str, start: int, starts: Sequence[int]) -> int | None:
    """Returns the number of the word that a piece of a text ends in, None for a blank piece.

    Args:
        piece: The piece, without the white space at its end.
        start: Its place in the text.
        starts: Where the words of the text start.
    """
    return bisect_right(starts, start + len(piece) - 1) - 1 if piece else None


def target_words(tokenizer: Any, ids: Ids) -> Words:
    """Returns for each token of a translation the number of its word in the decoded text, from 0.

    Tokens that the text does not show have None: special tokens, and those of white space only.
    """

    def decode(some: Ids) -> str:
        return str(tokenizer.decode(some, skip_special_tokens=True))

    return tuple(
        max(0, len(decode(ids[:end]).split()) - 1) if decode([token]).strip() else None
        for end, token in enumerate(ids, start=1)
    )
