"""Two systems are compared as sacreBLEU compares them."""

import pytest
import sacrebleu

from hf_seq2seq.evaluation import compare, score


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


def test_the_chosen_metrics_alone_are_compared_with_long_lines_as_they_are_scored() -> None:
    references = [" ".join(f"w{number}" for number in range(300))] * 3
    hypotheses = [text.replace("w7 ", "") for text in references]
    found = compare(hypotheses, references, references, "ter")
    assert list(found) == ["ter"]
    assert found["ter"]["score"] == score(hypotheses, references)["ter"] == pytest.approx(100 / 300)
    assert "shifts:up to 200 words" in str(found["ter"]["signature"])


def test_texts_that_are_too_few_or_too_many_are_named() -> None:
    with pytest.raises(ValueError, match="`baseline` must be as many as `references` and at least one, but are 1"):
        compare(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(ValueError, match=r"`hypotheses` must be as many as `references` .*, but are 0 for 0 instead"):
        compare([], [], [])
