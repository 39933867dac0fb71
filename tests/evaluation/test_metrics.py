"""Scores are sacreBLEU's own, and a metric is one row of the table."""

from collections.abc import Sequence

import pytest
import sacrebleu

from hf_seq2seq.evaluation import METRICS, Metric, Score, score, score_lines, scores_in


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
