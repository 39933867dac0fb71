"""Looks up tokens and ids by side: source and target may have two vocabularies, as with MarianMT and FSMT.

A tokenizer with two vocabularies turns tokens into ids by the source's, and ids into tokens by the target's: the stock
ones of MarianMT and FSMT, and ours, which has a tokenizer for each side (tokenizer_pair.py).
"""

from collections import ChainMap
from collections.abc import Sequence
from typing import Any, Literal, get_args

from transformers import FSMTTokenizer, PreTrainedTokenizerBase


Side = Literal["source", "target"]


def check_side(side: str) -> None:
    """Checks the name of a side.

    Raises:
        ValueError: If it is neither "source" nor "target".
    """
    if side not in get_args(Side):
        raise ValueError(f"`side` must be one of {', '.join(get_args(Side))}, but is {side!r} instead.")


def side_tokenizer(tokenizer: PreTrainedTokenizerBase, side: Side) -> Any:
    """Returns the tokenizer of one side, which is the tokenizer itself unless it is a pair of ours."""
    return getattr(tokenizer, f"{side}_tokenizer", tokenizer)


def vocabulary(tokenizer: PreTrainedTokenizerBase, side: Side) -> dict[str, int]:
    """Returns the id of each token in the vocabulary of a side."""
    stock: Any = tokenizer
    if side == "source" or not is_foreign_pair(tokenizer):
        return dict(side_tokenizer(tokenizer, side).get_vocab())
    return dict(stock.added_tokens_encoder) | {token: number for number, token in stock.decoder.items()}


def unknown_id(tokenizer: PreTrainedTokenizerBase, side: Side) -> int | None:
    """Returns the id of a side's unknown token, or None where there is none, or it is the end token too."""
    if tokenizer.unk_token is None or tokenizer.unk_token == tokenizer.eos_token:
        return None
    if not is_foreign_pair(tokenizer):
        number: Any = side_tokenizer(tokenizer, side).unk_token_id
        return int(number)
    return vocabulary(tokenizer, side).get(str(tokenizer.unk_token))


def added_special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Returns the special tokens that a user added, such as language tags; `</s>` and its like are not among them."""
    control_tokens = {token for token in tokenizer.special_tokens_map.values() if isinstance(token, str)}
    special: Any = tokenizer.all_special_tokens
    return [token for token in special if token not in control_tokens]


def ids_to_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], side: Side) -> list[str]:
    """Returns the tokens of a side's ids, and a name such as `<17>` for an id that the vocabulary does not have."""
    if is_foreign_pair(tokenizer):
        tokens = _tokens_by_id(tokenizer, side)
        found: Any = [tokens.get(number) for number in ids]
    else:
        found = side_tokenizer(tokenizer, side).convert_ids_to_tokens(list(ids))
    return [f"<{number}>" if token is None else token for number, token in zip(ids, found, strict=True)]


def readable_texts(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]], side: Side) -> list[str]:
    """Returns texts for people to read, in which the unknown token shows where a word is not known.

    Where the tokenizer can decode only targets, sources are tokens joined by spaces.

    Args:
        tokenizer: The tokenizer.
        rows: The token ids of each text, with -100 for padding.
        side: The side that the ids are of.
    """
    one = side_tokenizer(tokenizer, side)
    unread = {-100, *one.all_special_ids} - {one.unk_token_id}
    read = [[number for number in ids if number not in unread] for ids in rows]
    if side == "source" and is_foreign_pair(tokenizer):
        return [" ".join(ids_to_tokens(tokenizer, ids, "source")) for ids in read]
    return list(one.batch_decode(read, skip_special_tokens=False))


def encode_sources(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[list[int]]:
    """Returns the ids of each source text, in which a control token such as `</s>` that is spelt out is plain text."""
    ids: list[list[int]] = tokenizer(list(texts), verbose=False, **_reading_text(tokenizer), **options)["input_ids"]
    return ids


def encode_targets(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[list[int]]:
    """Returns the ids of each target text, without a start token before them.

    A control token that is spelt out is plain text.

    Raises:
        ValueError: If the tokenizer can encode only sources.
    """
    check_encodes_targets(tokenizer)
    options |= {"verbose": False, **_reading_text(tokenizer)}
    rows: list[list[int]] = tokenizer(text_target=list(texts), **options)["input_ids"]
    return [without_start(tokenizer, ids) for ids in rows]


def without_start(tokenizer: PreTrainedTokenizerBase, ids: Any) -> Any:
    """Returns the ids of a target without the `bos_token` that some tokenizers put before them.

    The model puts its start token there itself, and never writes one: it would learn a token that `generate` bans.
    """
    start = tokenizer.bos_token_id
    has_start = start not in (None, tokenizer.eos_token_id) and len(ids) > 0 and int(ids[0]) == start
    return ids[1:] if has_start else ids


def _reading_text(tokenizer: PreTrainedTokenizerBase) -> dict[str, bool]:
    """Returns the option with which an imported tokenizer reads control tokens in a text as text, as ours always do.

    With it a tokenizer written in Python would cut the tokens that a user added, too. One that has any goes without.
    """
    control_tokens = {token for token in tokenizer.special_tokens_map.values() if isinstance(token, str)}
    has_more = not control_tokens.issuperset(tokenizer.added_tokens_encoder)
    return {} if tokenizer.is_fast or has_more else {"split_special_tokens": True}


def check_encodes_targets(tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that the tokenizer encodes a target by the target's vocabulary.

    Raises:
        ValueError: If it would encode the target by the source's vocabulary.
    """
    if isinstance(tokenizer, FSMTTokenizer) and vocabulary(tokenizer, "source") != vocabulary(tokenizer, "target"):
        raise ValueError(
            f"The tokenizer of `{tokenizer.name_or_path}` must encode targets, but is an FSMTTokenizer with a "
            "vocabulary for each side, which encodes only sources. Such a model can translate, but not be trained "
            "further, nor be given a text of the target's side."
        )


def is_foreign_pair(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Returns True for FSMT's tokenizer, and for MarianMT's of a model with two vocabularies."""
    return isinstance(tokenizer, FSMTTokenizer) or bool(getattr(tokenizer, "separate_vocabs", False))


def _tokens_by_id(tokenizer: Any, side: Side) -> "ChainMap[int, str]":
    """Returns the token of each id of a side, for a tokenizer with two vocabularies."""
    added = {number: token for token, number in tokenizer.added_tokens_encoder.items()}
    own = tokenizer.decoder if side == "target" else {number: token for token, number in tokenizer.encoder.items()}
    return ChainMap(own, added)
