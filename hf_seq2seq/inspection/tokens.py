"""Turns tokens into text that people can read, and such text into tokens."""

from collections.abc import Iterable

from tokenizers import decoders
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.text_lines import is_blank
from hf_seq2seq.token_lookup import Side, encode_sources, encode_targets, ids_to_tokens, vocabulary


# How characters are shown. The last is SentencePiece's sign for a space.
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\u2581": "␣"}


def readable_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Iterable[str]) -> list[str]:
    r"""Returns readable tokens: the signs of a byte-level vocabulary become letters, spaces ␣ and line ends ↵.

    Other invisible characters, and bytes that are only part of a character, are written in the form \u200d and \xe7.
    """
    byte_of = _bytes_by_sign() if _is_byte_level(tokenizer) else {}
    return ["".join(map(_visible, _decode_bytes(token, byte_of))) for token in tokens]


def readable_ids(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int], side: Side) -> list[str]:
    """Returns the readable tokens of ids, and a name such as `<17>` for an id that the tokenizer does not have."""
    return readable_tokens(tokenizer, ids_to_tokens(tokenizer, list(ids), side))


def find_token(tokenizer: PreTrainedTokenizerBase, text: str, side: Side) -> int:
    """Returns the id of the token that spells a text; ␣ stands for a space.

    For a word, the token that begins with a space is preferred: " dog", not the "dog" of "hotdog".

    Raises:
        ValueError: If the text is not a single token. The message names the tokens it is cut into.
    """
    wanted = text.replace("␣", " ")
    for spelt in ([f" {wanted}"] if wanted.isalpha() else []) + [wanted]:
        pieces = _pieces(tokenizer, spelt, side)
        if len(pieces) == 1 and pieces[0] != tokenizer.unk_token_id:
            return pieces[0]
    number = vocabulary(tokenizer, side).get(text)  # a special token, for example, which no text is cut into
    if number is not None:
        return number
    cut = ", ".join(map(repr, readable_ids(tokenizer, _pieces(tokenizer, wanted, side), side))) or "nothing"
    raise ValueError(
        f"`token` must be one token of the vocabulary, but {text!r} is cut into {cut} instead. Name one of these, or "
        "another word."
    )


def check_texts(name: str, texts: Iterable[object]) -> None:
    """Checks texts.

    Raises:
        ValueError: If one is not a string, is blank, or is not valid Unicode.
    """
    for text in texts:
        if not isinstance(text, str) or is_blank(text):
            raise ValueError(f"`{name}` must be a text that is not blank, but is {text!r} instead. Write a sentence.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"`{name}` must be valid Unicode, but {text!r} holds half of a surrogate pair. Take it out."
            ) from None


def _pieces(tokenizer: PreTrainedTokenizerBase, text: str, side: Side) -> list[int]:
    if side == "target":
        return encode_targets(tokenizer, [text], add_special_tokens=False)[0]
    return encode_sources(tokenizer, [text], add_special_tokens=False)[0]


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return isinstance(getattr(backend, "decoder", None), decoders.ByteLevel)


def _bytes_by_sign() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {sign: byte for byte, sign in bytes_to_unicode().items()}


def _visible(character: str) -> str:
    if character in _SIGNS or character.isprintable():
        return _SIGNS.get(character, character)
    return character.encode("unicode_escape").decode()


def _decode_bytes(token: str, byte_of: dict[str, int]) -> str:
    if not all(sign in byte_of for sign in token):  # an added token, or a vocabulary of characters
        return token
    return bytes(byte_of[sign] for sign in token).decode(errors="backslashreplace")
