"""From the text of a segment to token ids, and from the ids of its outputs to texts."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_seq2seq.output_limits import longest_output
from hf_seq2seq.text_lines import as_one_line, is_blank
from hf_seq2seq.token_lookup import encode_sources, encode_targets, ids_to_tokens

from .hypothesis import Hypothesis
from .segment import Output, Segment


logger = logging.getLogger(__name__)


def encode(segments: Sequence[Segment], tokenizer: Any, *, vocab_size: int, num_positions: float) -> list[Segment]:
    """Returns segments with the token ids of their sources and prefixes.

    A source longer than the length that the model was trained on, or than its positions, is warned of; the latter is
    cut, but for its end token.

    Args:
        segments: The segments.
        tokenizer: The model's tokenizer.
        vocab_size: Size of the source's vocabulary.
        num_positions: The most tokens that the model has positions for.

    Raises:
        ValueError: If a token is not in the vocabulary, or a prefix is longer than the longest output of its source.
    """
    encoded = _encode_texts(segments, tokenizer)
    _check_vocabulary(encoded, tokenizer, vocab_size)
    encoded = _fit_length(encoded, tokenizer.model_max_length, num_positions)
    return _encode_prefixes(encoded, tokenizer)


def decode(segment: Segment, tokenizer: Any) -> Segment:
    """Returns a segment with its outputs as hypotheses. A line break in one of them becomes a space."""
    return replace(segment, hypotheses=[_hypothesis(segment, output, tokenizer) for output in segment.outputs])


def _hypothesis(segment: Segment, output: Output, tokenizer: Any) -> Hypothesis:
    return Hypothesis(
        as_one_line(tokenizer.decode(output.ids, skip_special_tokens=True)),
        tuple(ids_to_tokens(tokenizer, output.ids, "target")),
        tuple(output.ids),
        tuple(output.log_probs) or None,
        () if output.attention is None else tuple(ids_to_tokens(tokenizer, segment.ids, "source")),
        output.attention,
    )


def _encode_texts(segments: Sequence[Segment], tokenizer: Any) -> list[Segment]:
    texts = [segment.text for segment in segments if not is_blank(segment.text)]
    ids = iter(encode_sources(tokenizer, texts) if texts else ())
    return [segment if is_blank(segment.text) else replace(segment, ids=next(ids)) for segment in segments]


def _encode_prefixes(segments: Sequence[Segment], tokenizer: Any) -> list[Segment]:
    prefixes = list(dict.fromkeys(segment.prefix for segment in segments if segment.prefix is not None))
    if not prefixes:
        return list(segments)
    ids = dict(zip(prefixes, encode_targets(tokenizer, prefixes), strict=True))
    prefix_ids = {text: [token for token in ids[text] if token != tokenizer.eos_token_id] for text in prefixes}
    encoded = [
        segment if segment.prefix is None else replace(segment, prefix_ids=prefix_ids[segment.prefix])
        for segment in segments
    ]
    for segment in encoded:
        longest = longest_output(len(segment.ids))
        if segment.ids and len(segment.prefix_ids) >= longest:
            raise ValueError(
                f"`prefix` must be shorter than the longest output of its text ({longest} tokens), but that of line "
                f"{segment.line} has {len(segment.prefix_ids)} tokens."
            )
    return encoded


def _check_vocabulary(segments: Sequence[Segment], tokenizer: Any, vocab_size: int) -> None:
    for segment in segments:
        largest = max(segment.ids, default=0)
        if largest >= vocab_size:
            raise ValueError(
                f"Token ids must be below the size of the model's vocabulary ({vocab_size}), but the token "
                f"{ids_to_tokens(tokenizer, [largest], 'source')[0]!r} in line {segment.line} has the id {largest} "
                "instead. Use the tokenizer that the model was trained with."
            )


def _fit_length(segments: Sequence[Segment], trained_length: int, num_positions: float) -> list[Segment]:
    too_long = [segment.line for segment in segments if len(segment.ids) > num_positions]
    unusual = [segment.line for segment in segments if trained_length < len(segment.ids) <= num_positions]
    if too_long:
        logger.warning(
            "%s: only the first %d tokens are translated, since the model has no positions for more.",
            *(_name_lines(too_long), num_positions),
        )
    if unusual:
        logger.warning(
            "%s: longer than the %d tokens that the model was trained on; the translation may be poor.",
            *(_name_lines(unusual), trained_length),
        )
    return [_cut(segment, int(num_positions)) if len(segment.ids) > num_positions else segment for segment in segments]


def _cut(segment: Segment, length: int) -> Segment:
    """Returns a segment with its first tokens and its end token."""
    return replace(segment, ids=segment.ids[: length - 1] + segment.ids[-1:])


def _name_lines(numbers: Sequence[int]) -> str:
    """Returns "Line 3" or "Lines 3, 5 and 8", with at most ten numbers."""
    several = sorted(set(numbers))
    names = [str(number) for number in several[:10]]
    if len(several) > 10:
        names.append(f"{len(several) - 10} more")
    return f"Line {names[0]}" if len(names) == 1 else f"Lines {', '.join(names[:-1])} and {names[-1]}"
