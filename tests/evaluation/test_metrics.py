"""Scores are sacreBLEU's own, and a metric is one row of the table."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import sacrebleu
from sacrebleu.metrics.lib_ter import translation_edit_rate

from hf_seq2seq.evaluation import METRICS, Metric, Score, metrics, score, score_lines, scores_in


HYPOTHESES = ["the cat sat on the mat", "a dog, it barked", ""]
REFERENCES = ["the cat sat on a mat", "a dog, it barked", "nothing"]


def test_scores_are_those_of_sacrebleu_with_its_signatures() -> None:
    scores = score(HYPOTHESES, REFERENCES)
    assert scores["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores["ter"] == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert "tok:tercom" in scores["ter_signature"]
    assert "tok:13a" in scores["bleu_signature"]
    assert "nc:6" in scores["chrf_signature"]
    assert scores["exact_match"] == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("references", "tokenizer_name"),
    [
        (["2025年3月3日星期一", "三百四十二", "OK"], "zh"),
        (["二〇二五年の三月です", "はい", "OK"], "char"),
        (["a 年 b", "c d", "e f"], "13a"),
    ],
)
def test_scripts_without_spaces_are_cut_into_characters(references: list[str], tokenizer_name: str) -> None:
    scores = score(references, references)
    assert f"tok:{tokenizer_name}|" in scores["bleu_signature"]
    if tokenizer_name != "13a":
        assert scores["bleu"] == pytest.approx(100)


def test_one_wrong_character_of_nine_is_one_edit_where_there_are_no_spaces() -> None:
    assert score(["二〇二〇年五月三日"], ["二〇二一年五月三日"])["ter"] == pytest.approx(100 / 9)


def test_a_line_of_thousands_of_words_is_compared_without_the_search_for_shifts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """https://github.com/roy-ht/pyter/issues/8 and https://github.com/ondrejklejch/MT-ComparEval/issues/78"""

    def search(words: list[str], reference: list[str]) -> Any:
        assert max(len(words), len(reference)) <= 200, "this takes minutes"
        return translation_edit_rate(words, reference)

    monkeypatch.setattr("sacrebleu.metrics.ter.translation_edit_rate", search)
    words = [f"w{number}" for number in range(3000)]
    changed = ["new", *words[:100], *words[101:2000], "x", *words[2001:]]  # one more, one less, another one
    scores = score([" ".join(changed), "b a"], [" ".join(words), "a b"])
    assert scores["ter"] == pytest.approx(100 * (3 + 1) / 3002)  # "b a" is one shift
    assert "|shifts:up to 200 words|" in scores["ter_signature"]
    assert "shifts" not in score(["b a"], ["a b"])["ter_signature"]


def test_edits_without_shifts_are_the_least_of_all_ways() -> None:
    generator = random.Random(0)
    for _ in range(200):
        first, second = (tuple(generator.choices("abc", k=generator.randrange(6))) for _ in range(2))
        assert metrics._edit_distance(first, second) == fewest_edits(first, second)


def fewest_edits(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    if not first or not second:
        return len(first) + len(second)
    return min(
        fewest_edits(first[1:], second) + 1,
        fewest_edits(first, second[1:]) + 1,
        fewest_edits(first[1:], second[1:]) + (first[0] != second[0]),
    )


@pytest.mark.parametrize("names", ["chrf, bleu", ["bleu", "chrf"]])
def test_the_chosen_metrics_alone_are_computed_in_the_order_of_the_table(names: str | list[str]) -> None:
    scores = score(HYPOTHESES, REFERENCES, names)
    assert list(scores) == ["bleu", "bleu_signature", "chrf", "chrf_signature"]
    assert scores.items() <= score(HYPOTHESES, REFERENCES).items()


@pytest.mark.parametrize(("names", "found"), [("bleu,blue", "'blue'"), ("", "''"), ([], "none")])
def test_an_unknown_metric_is_an_error_that_names_those_of_the_table(names: str | list[str], found: str) -> None:
    message = f"`metrics` must be names among bleu, chrf, ter, exact_match, with commas .*, but has {found} instead"
    with pytest.raises(ValueError, match=message):
        score(HYPOTHESES, REFERENCES, names)


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_unequal_numbers_are_refused(hypotheses: list[str], references: list[str]) -> None:
    numbers = f"{len(hypotheses)} for {len(references)} instead"
    with pytest.raises(ValueError, match=f"`hypotheses` must be as many as `references` .*{numbers}"):
        score(hypotheses, references)


def test_a_new_metric_is_a_new_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def share_of_length(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
        return Score(100 * sum(map(len, hypotheses)) / sum(map(len, references)), "characters")

    monkeypatch.setitem(METRICS, "length", Metric("length", "length", "length_ratio", share_of_length, unit=" %"))
    scores = score(["ab", ""], ["abc", "d"])
    assert (scores["length"], scores["length_signature"]) == (50, "characters")
    assert score_lines(scores)[-1] == "length       50.0 %  characters"
    assert scores_in({"loss": 2.0, "length": 1.0, "length_signature": "x"}) == {"length": 1.0, "length_signature": "x"}


def test_the_better_value_is_the_higher_but_for_an_error_rate() -> None:
    assert {name: metric.higher_is_better for name, metric in METRICS.items()} == {
        "bleu": True,
        "chrf": True,
        "ter": False,
        "exact_match": True,
    }
