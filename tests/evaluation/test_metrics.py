"""Scores are sacreBLEU's own, and nothing is lost on the way from token ids to them."""

import numpy as np
import pytest
import sacrebleu
from transformers import EvalPrediction, PreTrainedTokenizerFast

from hf_seq2seq.evaluation.metrics import compare, generation_metrics, score
from hf_seq2seq.tokenization import train_tokenizer


HYPOTHESES = ["the cat sat on the mat", "a dog, it barked", ""]
REFERENCES = ["the cat sat on a mat", "a dog, it barked", "nothing"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(iter(REFERENCES), vocab_size=100, kind="char")


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


def test_padding_of_minus_100_is_no_token_and_drops_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/huggingface/transformers/issues/22634.

    Rows of unequal length, as the trainer joins them over batches: -100 at the end of predictions and of labels; after
    their end, predictions repeat `</s>`.
    """
    predictions = np.full((3, 40), -100)
    labels = np.full((3, 30), -100)
    for row, (hypothesis, reference) in enumerate(zip(HYPOTHESES, REFERENCES, strict=True)):
        ids = [1, *tokenizer(hypothesis)["input_ids"], *[2] * row]
        predictions[row, : len(ids)] = ids
        ids = tokenizer(reference)["input_ids"]
        labels[row, : len(ids)] = ids
    before = predictions.copy()

    metrics = generation_metrics(tokenizer)(EvalPrediction(predictions=predictions, label_ids=labels))

    expected = score(HYPOTHESES, REFERENCES)
    assert metrics == {name: expected[name] for name in ("bleu", "chrf", "ter", "exact_match")}
    assert all(isinstance(value, float) for value in metrics.values())
    assert (predictions == before).all()


def test_a_comparison_is_that_of_sacrebleu() -> None:
    references = [f"the cat sat on the mat {number}" for number in range(40)]
    better = [f"the cat sat on a mat {number}" for number in range(40)]
    worse = [f"the cat {'sat' if number % 2 else 'lay'} on a mat {number}" for number in range(40)]
    found = compare(better, worse, references)
    assert found["bleu"]["score"] == sacrebleu.corpus_bleu(better, [references]).score
    assert found["ter"]["baseline"] == sacrebleu.corpus_ter(worse, [references]).score
    assert float(found["bleu"]["p_value"]) < 0.01
    assert float(compare(better, better, references)["chrf"]["p_value"]) == 1


def test_systems_of_the_same_score_do_not_differ() -> None:
    """TER takes no notice of case."""
    references = [f"The cat sat on the mat {number}" for number in range(40)]
    better = [f"The cat sat on a mat {number}" for number in range(40)]
    found = compare(better, [text.lower() for text in better], references)
    assert found["ter"]["score"] == found["ter"]["baseline"]
    assert found["ter"]["p_value"] == 1
    assert float(found["bleu"]["p_value"]) < 0.01
