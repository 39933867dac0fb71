"""From the text of a segment to token ids, and from the ids of its outputs to texts."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from hf_seq2seq.text_lines import as_one_line, is_blank
from hf_seq2seq.token_lookup import encode_sources, encode_targets, ids_to_tokens, unknown_id

from .hypothesis import Hypothesis
from .segment import Output, Segment
from .sentences import halve
from .settings import DecodingSettings
from .words import source_words, target_words


logger = logging.getLogger(__name__)


def encode(
    segments: Sequence[Segment], tokenizer: Any, settings: DecodingSettings, *, vocab_size: int, num_positions: float
) -> list[Segment]:
    """Returns segments with the token ids of their sources and prefixes, and what their terms must become.

    A source that is too long is treated as `settings.over_long` says. Warnings tell of it, of a source longer than the
    length that the model was trained on, and of what the model does not know.

    Args:
        segments: The segments; those of a line are neighbours.
        tokenizer: The model's tokenizer.
        settings: How to search.
        vocab_size: Size of the source's vocabulary.
        num_positions: The most tokens that the model has positions for.

    Raises:
        ValueError: If a token is not in the vocabulary, or a prefix or the terms' translations are longer than the
            longest output of its source.
    """
    encoded = _encode_texts(segments, tokenizer)
    encoded = _fit_length(encoded, tokenizer, settings, num_positions)
    _check_vocabulary(encoded, tokenizer, vocab_size)
    encoded = _encode_prefixes(encoded, tokenizer, settings)
    encoded = _require_terms(encoded, settings, num_positions)
    _tell_unknown(encoded, tokenizer)
    return encoded


def decode(segment: Segment, tokenizer: Any, settings: DecodingSettings) -> Segment:
    """Returns a segment with its outputs as hypotheses. A line break in one of them becomes a space."""
    hypotheses = [_hypothesis(segment, output, tokenizer, settings) for output in segment.outputs]
    return replace(segment, hypotheses=hypotheses)


def _hypothesis(segment: Segment, output: Output, tokenizer: Any, settings: DecodingSettings) -> Hypothesis:
    text = as_one_line(tokenizer.decode(output.ids, skip_special_tokens=True))
    tokens = tuple(ids_to_tokens(tokenizer, output.ids, "target"))
    hypothesis = Hypothesis(text, tokens, tuple(output.ids))
    if output.log_probs:
        score = output.score
        if score is None:
            found = output.log_probs[len(segment.prefix_ids) :]
            score = sum(found) / max(1, len(found)) ** settings.length_exponent
        hypothesis = replace(hypothesis, token_log_probs=tuple(output.log_probs), score=score)
    if output.attention is not None:
        hypothesis = replace(
            hypothesis,
            source_tokens=tuple(ids_to_tokens(tokenizer, segment.ids, "source")),
            attention=output.attention,
            words=target_words(tokenizer, output.ids),
            source_words=source_words(tokenizer, segment.text, segment.ids),
        )
    return hypothesis


def _encode_texts(segments: Sequence[Segment], tokenizer: Any) -> list[Segment]:
    texts = [segment.text for segment in segments if not is_blank(segment.text)]
    ids = iter(encode_sources(tokenizer, texts) if texts else ())
    return [segment if is_blank(segment.text) else replace(segment, ids=next(ids)) for segment in segments]


def _encode_prefixes(segments: Sequence[Segment], tokenizer: Any, settings: DecodingSettings) -> list[Segment]:
    prefixes = list(dict.fromkeys(segment.prefix for segment in segments if segment.prefix is not None))
    if not prefixes:
        return list(segments)
    # White space at the end would be a token of its own, after which no word goes on.
    ids = dict(zip(prefixes, encode_targets(tokenizer, [prefix.rstrip() for prefix in prefixes]), strict=True))
    prefix_ids = {text: [token for token in ids[text] if token != tokenizer.eos_token_id] for text in prefixes}
    encoded = [
        segment if segment.prefix is None else replace(segment, prefix_ids=prefix_ids[segment.prefix])
        for segment in segments
    ]
    for segment in encoded:
        longest = settings.longest_output(len(segment.ids), len(segment.prefix_ids))
        if segment.ids and len(segment.prefix_ids) >= longest:
            raise ValueError(
                f"`prefix` must be shorter than the longest output of its text ({longest} tokens), but that of line "
                f"{segment.line} has {len(segment.prefix_ids)} tokens."
            )
    return encoded


def _require_terms(segments: Sequence[Segment], settings: DecodingSettings, num_positions: float) -> list[Segment]:
    """Returns segments with what the terms in them must become."""
    if settings.terms is None:
        return list(segments)
    found = [replace(segment, required=settings.terms.find(segment.text)) for segment in segments]
    for segment in found:
        num_prefix = len(segment.prefix_ids)
        longest = settings.longest_output(len(segment.ids), num_prefix, num_positions) - num_prefix
        num_tokens = sum(len(phrase.ids) for phrase in segment.required)
        if segment.ids and num_tokens > longest:
            raise ValueError(
                f"`terms` must have translations that fit in the longest output of a text ({longest} tokens), but "
                f"those of line {segment.line} have {num_tokens} tokens. Take a larger `max_new_tokens`."
            )
    return found


def _check_vocabulary(segments: Sequence[Segment], tokenizer: Any, vocab_size: int) -> None:
    for segment in segments:
        largest = max(segment.ids, default=0)
        if largest >= vocab_size:
            raise ValueError(
                f"Token ids must be below the size of the model's vocabulary ({vocab_size}), but the token "
                f"{ids_to_tokens(tokenizer, [largest], 'source')[0]!r} in line {segment.line} has the id {largest} "
                "instead. Use the tokenizer that the model was trained with."
            )


def _fit_length(
    segments: Sequence[Segment], tokenizer: Any, settings: DecodingSettings, num_positions: float
) -> list[Segment]:
    limit = int(min(settings.max_source_tokens, num_positions))
    if too_long := [segment.line for segment in segments if len(segment.ids) > limit]:
        done = {
            "cut": f"only the first {limit} tokens are translated",
            "split": f"translated in parts of at most {limit} tokens",
            "skip": f"not translated, being longer than {limit} tokens",
        }[settings.over_long]
        is_model_s = num_positions <= settings.max_source_tokens
        reason = "since the model has no positions for more" if is_model_s else "as `max_source_tokens` says"
        logger.warning("%s: %s, %s.", _name_lines(too_long), done, reason)
    fitted = [
        part
        for segment in segments
        for part in ([segment] if len(segment.ids) <= limit else _shorten(segment, tokenizer, settings, limit))
    ]
    if unusual := [segment.line for segment in fitted if len(segment.ids) > tokenizer.model_max_length]:
        logger.warning(
            "%s: longer than the %d tokens that the model was trained on; the translation may be poor.",
            *(_name_lines(unusual), tokenizer.model_max_length),
        )
    return [
        replace(segment, place=place)
        for _, of_line in groupby(fitted, lambda segment: segment.line)
        for place, segment in enumerate(of_line)
    ]


def _shorten(segment: Segment, tokenizer: Any, settings: DecodingSettings, limit: int) -> list[Segment]:
    """Returns what becomes of a segment that is too long: itself with fewer tokens or without any, or its parts."""
    if settings.over_long == "skip":
        return [replace(segment, ids=[])]
    halves = halve(segment.text, tokenizer) if settings.over_long == "split" else ()
    if not halves:
        return [replace(segment, ids=segment.ids[: limit - 1] + segment.ids[-1:])]
    encoded = _encode_texts([replace(segment, text=half) for half in halves], tokenizer)
    return [
        part
        for half in encoded
        for part in ([half] if len(half.ids) <= limit else _shorten(half, tokenizer, settings, limit))
    ]


def _tell_unknown(segments: Sequence[Segment], tokenizer: Any) -> None:
    """Warns of lines and prefixes with words or letters that the model does not know."""
    unknown = unknown_id(tokenizer, "source")
    if lines := [segment.line for segment in segments if unknown in segment.ids]:
        logger.warning(
            "%s: the model does not know all that is written there; it reads `%s` in its place.",
            *(_name_lines(lines), tokenizer.unk_token),
        )
    unknown = unknown_id(tokenizer, "target")
    for prefix in sorted({str(segment.prefix) for segment in segments if unknown in segment.prefix_ids}):
        logger.warning(
            "The model does not know all of the prefix %r; translations begin with `%s` in place of the rest, which "
            "their text does not show.",
            *(prefix, tokenizer.unk_token),
        )


def _name_lines(numbers: Sequence[int]) -> str:
    """Returns "Line 3" or "Lines 3, 5 and 8", with at most ten numbers."""
    several = sorted(set(numbers))
    names = [str(number) for number in several[:10]]
    if len(several) > 10:
        names.append(f"{len(several) - 10} more")
    return f"Line {names[0]}" if len(names) == 1 else f"Lines {', '.join(names[:-1])} and {names[-1]}"
