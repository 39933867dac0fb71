"""Terms have their translations, banned words do not appear, and both are told by whole words in every tokenizer."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from inference.test_translator import letters_model, random_texts
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator, output_limits, train_tokenizer
from hf_seq2seq.inference.terms import BannedWords, Glossary, read_terms, read_words, token_texts
from hf_seq2seq.interop import to_ctranslate2


TEXTS = ["ein Haus und ein Hausboot", "das Bauhaus, die Häuser", "über Züge: Übung übt", "房子和车子。我的房子", "xyz"]
kinds = pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 3)


def translator_of(kind: Any, seed: int = 0) -> Translator:
    """A random model that writes the tokens of the texts above."""
    tokenizer = train_tokenizer(iter(TEXTS * 5), kind=kind, vocab_size=290)
    model = tiny_model(seed, vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = 1.0
        written = {token for text in TEXTS for token in tokenizer(text)["input_ids"]}
        model.lm_head.bias[[token for token in range(len(tokenizer)) if token not in written]] = -1e4
    return Translator(model, tokenizer)


@kinds
def test_the_texts_of_tokens_make_up_what_the_tokenizer_decodes(kind: Any) -> None:
    tokenizer = translator_of(kind).tokenizer
    texts = token_texts(tokenizer)
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"][:-1]
        assert b"".join(texts[token] for token in ids).decode().strip() == tokenizer.decode(ids).strip() == text


def has_word(text: str, word: str) -> bool:
    """Whether a word stands in a text as a whole; Chinese has no spaces that would tell."""
    letter = "[^\\W\u3000-\U0003ffff]"
    return word in text if word[0] > "\u3000" else bool(re.search(f"(?<!{letter}){word}(?!{letter})", text))


# Terms


@kinds
@pytest.mark.parametrize("beam_size", [1, 6])
def test_a_term_has_its_translation_where_a_line_has_it(beam_size: int, kind: Any) -> None:
    translator = translator_of(kind)
    terms = {"Häuser": "Hausboot", "Haus": "Übung", "车子": "房子和车子。我的房子", "ein": "und"}
    if kind != "word":
        terms["车子"] = "房子"
    lines = [*TEXTS, ""]
    found = translator(lines, terms=terms, beam_size=beam_size, max_new_tokens=40)
    wanted = [["Übung", "und"], ["Hausboot"], [], [terms["车子"]] if kind != "word" else [], [], []]
    for text, words in zip(found, wanted, strict=True):
        assert all(has_word(text, word) for word in words), (text, words)
    plain = translator(lines, beam_size=beam_size, max_new_tokens=40)
    assert [text == other for text, other in zip(found, plain, strict=True)] == [not words for words in wanted]


def test_hypotheses_with_terms_are_scored_and_a_prefix_counts(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    translator = Translator(letters_model(), letter_tokenizer)
    texts = [*random_texts(3, 8, 5), "a b c"]
    options: Any = {"terms": {"a b": "x y", "b": "z", "c": "q"}, "n_best": 4}
    for line in translator.hypotheses(texts, **options):
        scores = [hypothesis.score or 0 for hypothesis in line]
        assert scores == sorted(scores, reverse=True)
    for hypothesis in line:  # of "a b c", in which the term "a b" hides "b"
        assert " x y " in f" {hypothesis.text} "
        assert "q" in hypothesis.text
    assert translator(["a b c"], prefix="q x y", **options)[0].count("q") == 1


def test_the_longest_of_overlapping_terms_counts_and_only_whole_words() -> None:
    translator = translator_of("bpe")
    terms = {"ein Haus": "a", "Haus": "b", "房": "c", "C++": "d"}
    glossary = Glossary(terms, translator.tokenizer, token_texts(translator.tokenizer))

    def found(text: str) -> list[str]:
        return [translator.tokenizer.decode(phrase.first_ids) for phrase in glossary.find(text)]

    assert found("ein Haus, Haus.") == ["a", "b"]
    assert found("mein Hausboot, haus") == []
    assert found("我的房子") == ["c"]
    assert found("C++ 房 (C++)") == ["d", "c", "d"]
    assert found("") == []


# Banned words


@kinds
@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4}, {"do_sample": True, "seed": 3}], ids=str)
def test_banned_words_do_not_appear(options: Any, kind: Any) -> None:
    """What is written without a ban is banned, three times over."""
    translator = translator_of(kind, seed=1)
    lines, banned = TEXTS[:4], list[str]()
    for _ in range(3):
        texts = translator(lines, **options, bad_words=banned, max_new_tokens=25)
        written = [word for text in texts for word in re.findall(r"[a-zäöüßA-ZÄÖÜ]+", text) if word not in banned]
        assert not any(has_word(text, word) for text in texts for word in banned)
        banned += written[:4]
    assert len(banned) > 2
    texts = translator(lines, **options, bad_words=banned, max_new_tokens=25)
    assert not any(has_word(text, word) for text in texts for word in banned)


def test_a_word_is_banned_in_whatever_pieces_it_is_written() -> None:
    texts = {4: b"Ha", 5: b" Ha", 6: b"us", 7: b"boot", 8: b" Haus", 9: b"u", 10: b"s", 11: b"Bau", 12: b"haus"}
    texts |= {13: b"H\xc3", 14: b"\xa4user", 15: " 房".encode(), 16: "子".encode(), 17: b"(Haus"}
    processor = BannedWords(["Haus", "haus", "Häuser", "Haus boot", "房子"], texts)

    def banned(*ids: int) -> set[int]:
        scores = processor(torch.tensor([[0, 1, *ids]]), torch.zeros(1, 20))
        return set((scores[0] == -torch.inf).nonzero().flatten().tolist())

    always = {8, 17}
    assert banned() == always | {12}
    assert banned(4) == banned(5) == always | {6}
    assert banned(5, 9) == always | {10}
    assert banned(11) == always  # "Bauhaus" is another word
    assert banned(11, 4) == always
    assert banned(13) == always | {12, 14}
    assert banned(15) == always | {12, 16}


# What cannot be followed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": {"a": " "}}, "`terms` must be words without white space around them, but one is ' ' instead"),
        ({"bad_words": [" a"]}, "`bad_words` must be words without white space around them, but one is ' a'"),
        ({"terms": {"a": "b 1"}}, "`terms` must have translations that the model can write, .* know all of 'b 1'"),
        ({"terms": {"a": "b"}, "do_sample": True}, "`terms` must be left out with `do_sample`, but are 1 terms"),
        (
            {"terms": {"a": "b c"}, "bad_words": ["d", "c"]},
            "must not be in the translation of a term, but 'c' is in 'b c'",
        ),
        (
            {"terms": {"a": "b c d e f g"}},
            r"`terms` must have translations that fit in the longest output of a text \(5 tokens\), but those of line "
            "1 have 6 tokens",
        ),
    ],
)
def test_words_that_cannot_be_followed_are_named(
    options: Any, message: str, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ValueError, match=message):
        Translator(letters_model(), letter_tokenizer)(["a"], **options)


def test_ctranslate2_names_the_backend_that_has_them(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    to_ctranslate2(letters_model(), letter_tokenizer, tmp_path / "exported")
    theirs = Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2")
    with pytest.raises(ValueError, match="`terms` must be left out with the backend ctranslate2, but is 2 terms"):
        theirs(["a"], terms={"a": "b", "c": "d"})
    with pytest.raises(ValueError, match="`bad_words` must be left out with the backend ctranslate2, but is 1 words"):
        theirs(["a"], bad_words=["a"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\na b\n", r"Line 2 of `.*` must be a term, a tab and its translation, but is 'a b' instead"),
        ("a\tb\tc\n", "Line 1 of `.*` must be a term, a tab and its translation"),
        ("a\t \n", "Line 1 of `.*` must be a term, a tab and its translation"),
        (" \n\n", "`.*` must hold at least one word, but all its lines are blank"),
        ("a\tb\n\na\tc\n", r"Line 3 of `.*` must translate 'a' as an earlier line does \('b'\), but has 'c' instead"),
    ],
)
def test_a_line_that_is_no_term_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_terms(tmp_path / "terms.tsv")


def test_a_file_of_blank_lines_bans_nothing_and_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(ValueError, match="must hold at least one word, but all its lines are blank"):
        read_words(tmp_path / "words.txt")
