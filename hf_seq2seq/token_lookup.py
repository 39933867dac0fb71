"""Names of token ids, also where source and target have vocabularies of their own, as MarianMT's and FSMT's may.

Such a tokenizer turns tokens into ids by the source's vocabulary, and ids into tokens by the target's.
"""

from collections import ChainMap
from collections.abc import Sequence
from typing import Any, Literal, get_args

from transformers import FSMTTokenizer, PreTrainedTokenizerBase


Side = Literal["source", "target"]


def check_side(side: str) -> None:
    """Raises ValueError unless a side is the source or the target."""
    if side not in get_args(Side):
        raise ValueError(f"`side` must be one of {', '.join(get_args(Side))}, but is {side!r} instead.")


def vocabulary(tokenizer: PreTrainedTokenizerBase, side: Side) -> dict[str, int]:
    """Returns the id of each token of a side."""
    stock: Any = tokenizer
    if side == "source" or not _has_two_vocabularies(tokenizer):
        return dict(tokenizer.get_vocab())
    return dict(stock.added_tokens_encoder) | {token: number for number, token in stock.decoder.items()}


def ids_to_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], side: Side) -> list[str]:
    """Returns the tokens of a side's ids; `<17>` for an id that the vocabulary does not hold."""
    if _has_two_vocabularies(tokenizer):
        names = _names(tokenizer, side)
        found: Any = [names.get(number) for number in ids]
    else:
        found = tokenizer.convert_ids_to_tokens(list(ids))
    return [f"<{number}>" if token is None else token for number, token in zip(ids, found, strict=True)]


def decode_sources(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]]) -> list[str]:
    """Returns the texts of sources, for people to read; their tokens where the tokenizer decodes targets alone."""
    if not _has_two_vocabularies(tokenizer):
        return list(tokenizer.batch_decode([list(ids) for ids in rows], skip_special_tokens=True))
    return [" ".join(ids_to_tokens(tokenizer, ids, "source")) for ids in rows]


def encode_targets(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[list[int]]:
    """Returns the ids of each text of the target's side.

    Raises:
        ValueError: If the tokenizer encodes sources alone.
    """
    check_encodes_targets(tokenizer)
    ids: list[list[int]] = tokenizer(text_target=list(texts), verbose=False, **options)["input_ids"]
    return ids


def check_encodes_targets(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError where the tokenizer would encode a target with the source's vocabulary."""
    if isinstance(tokenizer, FSMTTokenizer) and vocabulary(tokenizer, "source") != vocabulary(tokenizer, "target"):
        raise ValueError(
            f"The tokenizer of `{tokenizer.name_or_path}` must encode targets, but is an FSMTTokenizer with a "
            "vocabulary for each side, which encodes sources alone. Such a model can translate, but not be trained "
            "further, nor be given a text of the target's side."
        )


def _has_two_vocabularies(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Tells whether it is FSMT's tokenizer, or MarianMT's of such a model."""
    return isinstance(tokenizer, FSMTTokenizer) or bool(getattr(tokenizer, "separate_vocabs", False))


def _names(tokenizer: Any, side: Side) -> "ChainMap[int, str]":
    """Returns the token of each id of a side, of a tokenizer that has a vocabulary for each."""
    added = {number: token for token, number in tokenizer.added_tokens_encoder.items()}
    own = tokenizer.decoder if side == "target" else {number: token for token, number in tokenizer.encoder.items()}
    return ChainMap(own, added)
