"""Lines are cut between sentences, neither in them nor seldom; the texts in sentences/ were written for this test."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sentencex import segment

from hf_seq2seq.inference import Hypothesis
from hf_seq2seq.inference.segment import Segment
from hf_seq2seq.inference.sentences import join_lines, split_sentences


FOLDER = Path(__file__).parent / "sentences"  # a file for each language: a sentence a line, a blank line between texts
LANGUAGES = sorted(path.stem for path in FOLDER.glob("*.txt"))


def texts_in(language: str) -> list[list[str]]:
    return [text.splitlines() for text in (FOLDER / f"{language}.txt").read_text(encoding="utf-8").split("\n\n")]


def inner_ends(sentences: list[str]) -> set[int]:
    """Returns where sentences end in a text but for the last, counted in characters that are no spaces."""
    lengths = [len("".join(sentence.split())) for sentence in sentences]
    return {sum(lengths[:number]) for number in range(1, len(lengths))}


def counts(language: str, split: Callable[[str, str], list[str]]) -> tuple[int, int, int]:
    """Returns how many ends are found, are found where none is, and are missed."""
    right = wrong = missed = 0
    for sentences in texts_in(language):
        expected = inner_ends(sentences)
        found = inner_ends(split(("" if language == "zh" else " ").join(sentences), language))
        right += len(found & expected)
        wrong += len(found - expected)
        missed += len(expected - found)
    return right, wrong, missed


def f1(counts: Sequence[tuple[int, int, int]]) -> float:
    right, wrong, missed = (sum(column) for column in zip(*counts, strict=True))
    return float(200 * right / (2 * right + wrong + missed))


def test_200_sentences_in_six_languages_are_cut_apart_and_hardly_one_in_two() -> None:
    """https://github.com/languagetool-org/languagetool/issues/1314,
    https://github.com/mediacloud/sentence-splitter/issues/1 and https://github.com/fnl/syntok/issues/28."""
    assert len(LANGUAGES) == 6
    assert sum(len(sentences) for language in LANGUAGES for sentences in texts_in(language)) == 200
    ours = {language: counts(language, split_sentences) for language in LANGUAGES}
    library = [counts(language, lambda text, code: list(segment(code, text))) for language in LANGUAGES]
    print(*(f"{language}: F1 {f1([found]):.1f}" for language, found in ours.items()), sep=", ")
    print(f"all: F1 {f1(list(ours.values())):.1f}, of the library alone {f1(library):.1f}")
    assert f1(list(ours.values())) > max(97, f1(library) + 5)
    assert sum(wrong for _, wrong, _ in ours.values()) <= 5


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("fr", "M. Macron est là."),
        ("fr", "1. Premier point."),
        ("fr", "La société Lumière Inc. (disparue) vendait des lampes."),
        ("de", "Das Fest beginnt am 1. Tag nach dem 23. Eintrag."),
        ("de-AT", "Sie ging im 19. Jahrhundert verloren."),
        ("en", "See vol. 4."),
        ("en", "a) First point."),
        ("ru", "Его отец, т. е. старый князь, умер."),
    ],
)
def test_no_sentence_ends_at_an_abbreviation_a_number_or_an_initial(language: str, sentence: str) -> None:
    """https://github.com/languagetool-org/languagetool/issues/1314,
    https://github.com/mediacloud/sentence-splitter/issues/1 and https://github.com/fnl/syntok/issues/28."""
    assert split_sentences(sentence, language) == [sentence]
    assert split_sentences(f" {sentence}  Ok ok. ", language) == [sentence, "Ok ok."]


def test_a_sentence_may_end_with_a_number_and_a_blank_text_is_its_own_sentence() -> None:
    assert split_sentences("We won in 2012. Then we lost.", "en") == ["We won in 2012.", "Then we lost."]
    assert split_sentences("See page 12. Then stop.", "en") == ["See page 12.", "Then stop."]
    assert split_sentences("\u200b", "en") == ["\u200b"]


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["今天很好。", "走吧！”", "好吗？", "Yes."], "今天很好。走吧！”好吗？Yes."),
        (["It rains.", "", "It snows (a lot.)", "Yes"], "It rains. It snows (a lot.) Yes"),
    ],
)
def test_translations_are_joined_with_a_space_but_after_a_full_width_mark(texts: list[str], line: str) -> None:
    """https://github.com/lynote-ai/humanize-text/issues/54"""
    segments = [Segment("x", line=1, place=place, hypotheses=[Hypothesis(text)]) for place, text in enumerate(texts)]
    (joined,) = join_lines([Segment("x", line=1)], segments)
    assert joined.hypotheses[0].text == line
