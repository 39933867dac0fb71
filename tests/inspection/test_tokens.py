"""Tokens are shown as people read them, and found as people write them."""

import pytest
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_seq2seq import train_tokenizer
from hf_seq2seq.inspection import readable_tokens
from hf_seq2seq.inspection.tokens import find_token, readable_ids


@pytest.fixture(scope="module")
def byte_level() -> PreTrainedTokenizerBase:
    text = ["dog dog a dog läuft läuft a läuft"] * 3
    return train_tokenizer(iter(text), vocab_size=300, extra_tokens=[">>de<<"])


def test_byte_level_tokens_are_shown_in_letters(byte_level: PreTrainedTokenizerBase) -> None:
    ids = byte_level("dog läuft\n>>de<<")["input_ids"]
    assert readable_ids(byte_level, ids, "source") == ["dog", "␣läuft", "↵", ">>de<<", "</s>"]


def test_bytes_that_are_part_of_a_character_are_numbers(byte_level: PreTrainedTokenizerBase) -> None:
    ids = byte_level("狗", add_special_tokens=False)["input_ids"]
    assert readable_ids(byte_level, ids, "source") == [f"\\x{byte:02x}" for byte in "狗".encode()]


def test_what_cannot_be_seen_is_shown(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = ["\u2581cat", "\u200d", "\xa0", "\u3000", "\t", "狗", "Ġ", "<pad>"]
    shown = ["␣cat", "\\u200d", "\\xa0", "\\u3000", "⇥", "狗", "Ġ", "<pad>"]
    assert readable_tokens(letter_tokenizer, tokens) == shown
    assert readable_ids(letter_tokenizer, [4, 999], "source") == ["a", "<999>"]


@pytest.mark.parametrize(
    ("text", "token"),
    [("dog", "␣dog"), ("␣dog", "␣dog"), (" dog", "␣dog"), ("läuft", "␣läuft"), (">>de<<", ">>de<<"), ("</s>", "</s>")],
)
def test_a_word_is_found_with_or_without_its_space(text: str, token: str, byte_level: PreTrainedTokenizerBase) -> None:
    assert readable_ids(byte_level, [find_token(byte_level, text, "source")], "source") == [token]


def test_what_is_no_token_is_named_with_its_pieces(
    byte_level: PreTrainedTokenizerBase, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ValueError, match="must be one token of the vocabulary, but 'dogdog' is cut into 'dog', 'd"):
        find_token(byte_level, "dogdog", "source")
    with pytest.raises(ValueError, match="but 'ä' is cut into '<unk>' instead"):
        find_token(letter_tokenizer, "ä", "source")
    with pytest.raises(ValueError, match="but '' is cut into nothing instead"):
        find_token(letter_tokenizer, "", "source")
