"""One definition of blank, for Python as for Arrow, and one of a line."""

import unicodedata

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hf_seq2seq.text_lines import BLANK_PATTERN, as_one_line, is_blank


ALL_CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    "text", ["", " ", "\t\u00a0\u3000", "\u200b", "\ufeff", "\u200e \u200f", "\u00ad", "\u2060", "\0"]
)
def test_a_text_with_nothing_to_see_is_blank(text: str) -> None:
    """https://github.com/ufal/lindat-translation/issues/61"""
    assert is_blank(text)
    assert not is_blank(f"{text}.")


def test_blank_characters_are_white_space_control_characters_and_what_unicode_says_to_ignore() -> None:
    regex = pytest.importorskip("regex")
    expected = regex.compile(r"[\p{White_Space}\p{Cc}\p{Default_Ignorable_Code_Point}]")
    blank = {character for character in ALL_CHARACTERS if is_blank(character)}
    assert blank == {character for character in ALL_CHARACTERS if expected.fullmatch(character)}
    assert blank >= {character for character in ALL_CHARACTERS if character.isspace()}
    assert {unicodedata.category(character)[0] for character in blank} <= set("CZML")


def test_arrow_finds_the_same_texts_blank() -> None:
    texts = [*ALL_CHARACTERS, "", " \u200b\ufeff", "\u200ba", "a\u200b", "a\n", "\n\n"]
    found = pc.match_substring_regex(pa.array(texts), BLANK_PATTERN).to_pylist()
    assert found == [is_blank(text) for text in texts]


def test_one_line_is_one_line_for_every_reader() -> None:
    text = "".join(ALL_CHARACTERS)
    line = as_one_line(text)
    assert len(line) == len(text)
    assert len(line.splitlines()) == 1
    assert as_one_line("a\r\nb\tc\u2028d") == "a  b\tc d"
