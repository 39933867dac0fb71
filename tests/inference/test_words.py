"""Each token belongs to the word that holds its letters, whatever the tokenizer."""

from pathlib import Path
from typing import Any

import pytest
from commands.test_import import SOURCES, TARGETS, write_fsmt, write_marian
from transformers import FSMTTokenizer, MarianTokenizer

from hf_seq2seq import train_tokenizer
from hf_seq2seq.inference.words import source_words, target_words
from hf_seq2seq.token_lookup import encode_sources, encode_targets


TEXTS = ["das Haus: ist groß (sehr).", "  a big   house, isn't it? ", "\u6771\u4eac\u306f\u5927\u304d\u3044"]


def pieces(tokenizer: Any, ids: list[int], words: tuple[int | None, ...]) -> list[str]:
    """The text of the tokens of each word."""
    number = max(word for word in words if word is not None)
    return [
        tokenizer.decode([token for token, word in zip(ids, words, strict=True) if word == place]).strip()
        for place in range(number + 1)
    ]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_tokens_of_each_word_spell_it(kind: Any) -> None:
    tokenizer = train_tokenizer(iter(TEXTS * 3), kind=kind, vocab_size=330)
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        for words in (source_words(tokenizer, text, ids), target_words(tokenizer, ids)):
            assert len(words) == len(ids)
            assert words[-1] is None
            assert pieces(tokenizer, ids, words) == text.split()


def test_the_words_of_a_source_that_was_cut_are_those_of_its_first_tokens() -> None:
    tokenizer = train_tokenizer(iter(["a b c"]), kind="word")
    ids = tokenizer("a b c")["input_ids"]
    assert source_words(tokenizer, "a b c", [*ids[:2], ids[-1]]) == (0, 1, None)


def test_a_word_that_is_not_known_counts_in_the_source_and_is_not_shown_in_the_target() -> None:
    tokenizer = train_tokenizer(iter(["a b c"]), kind="word")
    ids = tokenizer("a x c")["input_ids"]
    assert source_words(tokenizer, "a x c", ids) == (0, 1, 2, None)
    assert target_words(tokenizer, ids) == (0, None, 1, None)


def test_tokenizers_of_imported_models_have_words_too(tmp_path: Path) -> None:
    for separate in (False, True):
        write_marian(tmp_path / str(separate), separate)
    write_fsmt(tmp_path / "fsmt")
    for tokenizer in (
        MarianTokenizer.from_pretrained(tmp_path / "False"),
        MarianTokenizer.from_pretrained(tmp_path / "True"),
        FSMTTokenizer.from_pretrained(tmp_path / "fsmt"),
    ):
        for text in SOURCES:
            [ids] = encode_sources(tokenizer, [text])
            found = source_words(tokenizer, text, ids)
            assert len(found) == len(ids)
            assert sorted({word for word in found if word is not None}) == list(range(len(text.split())))
            assert list(found[:-1]) == sorted(found[:-1], key=lambda word: -1 if word is None else word)
        if not isinstance(tokenizer, FSMTTokenizer):
            [ids] = encode_targets(tokenizer, TARGETS[:1])
            assert pieces(tokenizer, ids, target_words(tokenizer, ids)) == TARGETS[0].split()
