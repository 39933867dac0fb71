"""Lines have numbers of their own, and their sentences come together again in any order."""

from dataclasses import replace
from itertools import repeat

import pytest

from hf_seq2seq import train_tokenizer
from hf_seq2seq.inference import Hypothesis
from hf_seq2seq.inference.segment import Segment, number_lines
from hf_seq2seq.inference.sentences import halve, join_lines, split_lines


def test_lines_are_numbered_from_1() -> None:
    lines = list(number_lines(["a", "b"], repeat("x")))
    assert lines == [Segment("a", line=1, prefix="x"), Segment("b", line=2, prefix="x")]


def test_sentences_are_joined_in_the_order_of_their_line_whatever_came_first() -> None:
    lines = list(number_lines(["It rains. It snows.", "Yes."], repeat(None)))
    segments = [
        replace(segment, hypotheses=[Hypothesis(segment.text.upper(), token_log_probs=(segment.place,))])
        for segment in split_lines(lines, "en")
    ]
    joined = join_lines(lines, segments[::-1])
    assert [line.text for line in joined] == [line.text for line in lines]
    assert [line.hypotheses[0].text for line in joined] == ["IT RAINS. IT SNOWS.", "YES."]
    assert joined[0].hypotheses[0].token_log_probs == (0, 1)


@pytest.mark.parametrize("tags", [">>fra<< ", ">>fra<<", "<2fr> ", " >>fra<<  <2fr> "])
def test_each_sentence_of_a_line_has_the_tags_of_the_line(tags: str) -> None:
    """https://github.com/huggingface/transformers/issues/4160 and https://github.com/Helsinki-NLP/Opus-MT/issues/60."""
    tokenizer = train_tokenizer(iter(["It rains."]), kind="char")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<2fr>"]})
    lines = list(number_lines([f"{tags}It rains. It snows.", tags, "It rains. <2fr> It snows."], repeat(None)))
    texts = [segment.text for segment in split_lines(lines, "en", tokenizer)]
    assert texts[:2] == [f"{tags}It rains.", f"{tags}It snows."]
    assert texts[3:] == ["It rains.", "<2fr> It snows."]
    assert texts[2].strip() == tags.strip()
    assert halve(f"{tags}It rains.", tokenizer) == (f"{tags.lstrip()}It", f"{tags.lstrip()}rains.")


@pytest.mark.parametrize(
    ("text", "halves"),
    [
        ("It is a day. And so on", ("It is a day.", "And so on")),
        ("Yes. a b c d e f g h i j k l m n", ("Yes. a b c d e f", "g h i j k l m n")),
        ("\u4eca\u65e5\u3002\u660e\u65e5\u3002", ("\u4eca\u65e5\u3002", "\u660e\u65e5\u3002")),
        ("abcd", ("ab", "cd")),
        ("abc ", ("a", "bc")),
        ("a", ()),
    ],
)
def test_a_text_is_halved_between_sentences_or_words_where_it_can_be(text: str, halves: tuple[str, ...]) -> None:
    assert halve(text, None) == halves


def test_a_line_that_is_no_text_is_named_when_it_is_read() -> None:
    lines = number_lines(["a", 3], repeat(None))  # type: ignore[list-item]
    assert next(lines).text == "a"
    with pytest.raises(ValueError, match="Line 2 must be a string, but is 3 instead"):
        next(lines)
