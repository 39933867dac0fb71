"""Scores are sacreBLEU's own, and a metric is one row of the table."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import sacrebleu
from sacrebleu.metrics.lib_ter import translation_edit_rate

from hf_seq2seq.evaluation import METRICS, Metric, score, score_lines, scores_in
from hf_seq2seq.evaluation.line_metrics import LineMetric


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
    scores = score([" ".join(changed), "b a"], [" ".join(words), "a b"], "ter")
    assert scores["ter"] == pytest.approx(100 * (3 + 1) / 3002)  # "b a" is one shift
    several = [[" ".join(words), " ".join(words[:1000])], ["a b", "b a"]]
    assert score([" ".join(changed), "b a"], several, "ter")["ter"] == pytest.approx(100 * 3 / 2002)
    assert "|shifts:up to 200 words|" in scores["ter_signature"]
    assert "shifts" not in score(["b a"], ["a b"])["ter_signature"]


@pytest.mark.parametrize("names", ["chrf, bleu", ["bleu", "chrf"]])
def test_the_chosen_metrics_alone_are_computed_in_the_order_of_the_table(names: str | list[str]) -> None:
    scores = score(HYPOTHESES, REFERENCES, names)
    assert list(scores) == ["bleu", "bleu_signature", "bleu_parts", "chrf", "chrf_signature"]
    assert scores.items() <= score(HYPOTHESES, REFERENCES).items()


@pytest.mark.parametrize(("names", "found"), [("bleu,blue", "'blue'"), ("", "''"), ([], "none")])
def test_an_unknown_metric_is_an_error_that_names_those_of_the_table(names: str | list[str], found: str) -> None:
    message = f"`metrics` must be names among bleu, chrf, .*, exact_match, or functions .*, but has {found} instead"
    with pytest.raises(ValueError, match=message):
        score(HYPOTHESES, REFERENCES, names)


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_unequal_numbers_are_refused(hypotheses: list[str], references: list[str]) -> None:
    numbers = f"{len(hypotheses)} for {len(references)} instead"
    with pytest.raises(ValueError, match=f"`hypotheses` must be as many as `references` .*{numbers}"):
        score(hypotheses, references)


def test_a_new_metric_is_a_new_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def share_of_length(hypothesis: str, references: Sequence[str]) -> tuple[float, float]:
        return len(hypothesis), len(references[0])

    def make(references: Any) -> LineMetric:
        return LineMetric("length", str, share_of_length, unit="character")

    monkeypatch.setitem(METRICS, "length", Metric("length", "length", "length_ratio", make, unit=" %"))
    scores = score(["ab", ""], ["abc", "d"], "length")
    assert scores == {"length": 50, "length_signature": "nrefs:1|unit:character"}
    assert score_lines(scores) == ["length       50.0 %  nrefs:1|unit:character"]
    assert scores_in({"loss": 2.0, "length": 1.0, "length_signature": "x"}) == {"length": 1.0, "length_signature": "x"}


def test_the_better_value_is_the_higher_but_for_an_error_rate() -> None:
    error_rates = {name for name, metric in METRICS.items() if not metric.higher_is_better}
    assert error_rates == {"ter", "wer", "cer", "per", "g2p_wer"}
    perfect = score(REFERENCES[:2], REFERENCES[:2], METRICS)
    assert [perfect[name] for name in METRICS] == [
        pytest.approx(0 if name in error_rates else 100, abs=1e-9) for name in METRICS
    ]


def test_several_references_are_those_of_sacrebleu() -> None:
    others = ["there is a cat on the mat", "the dog barked", "it is empty"]
    scores = score(HYPOTHESES, list(zip(REFERENCES, others, strict=True)))
    assert scores["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, others]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES, others]).score
    assert scores["ter"] == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES, others]).score
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert scores["exact_match_signature"] == "nrefs:2"
    some = [[REFERENCES[0]], [REFERENCES[1], HYPOTHESES[1]], [REFERENCES[2], ""]]
    assert score(HYPOTHESES, some)["exact_match"] == pytest.approx(200 / 3)
    assert score(HYPOTHESES, some)["bleu_signature"].startswith("nrefs:var|")
    with pytest.raises(ValueError, match="`references` must have a text for each line, but line 2 has none"):
        score(HYPOTHESES, [["a"], [], ["c"]])


def test_bleu_is_its_precisions_times_its_brevity_penalty() -> None:
    """Counted by hand: 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 fours; 6 words for 7."""
    scores = score(["the cat sat on the mat"], ["the cat sat on a mat today"], "bleu")
    parts = scores["bleu_parts"]
    assert parts["precisions"] == pytest.approx([100 * 5 / 6, 60, 50, 100 / 3])
    assert (parts["length"], parts["reference_length"]) == (6, 7)
    assert parts["length_ratio"] == pytest.approx(6 / 7)
    assert parts["brevity_penalty"] == pytest.approx(math.exp(1 - 7 / 6))
    mean = math.prod(parts["precisions"]) ** (1 / 4)
    assert scores["bleu"] == pytest.approx(mean * parts["brevity_penalty"])
    assert score_lines(scores)[1] == (
        "             precisions 83.3/60.0/50.0/33.3, brevity penalty 0.846, length ratio 0.857, length 6, "
        "reference length 7"
    )
