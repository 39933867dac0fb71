"""Lines have numbers of their own, and their sentences come together again in any order."""

from dataclasses import replace
from itertools import repeat

import pytest

from hf_seq2seq.inference import Hypothesis
from hf_seq2seq.inference.segment import Segment, number_lines
from hf_seq2seq.inference.sentences import join_lines, split_lines


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


def test_a_line_that_is_no_text_is_named_when_it_is_read() -> None:
    lines = number_lines(["a", 3], repeat(None))  # type: ignore[list-item]
    assert next(lines).text == "a"
    with pytest.raises(ValueError, match="Line 2 must be a string, but is 3 instead"):
        next(lines)
