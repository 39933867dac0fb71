"""Scores are told in one form wherever they are printed."""

from hf_seq2seq.evaluation import comparison_lines, score_lines


def test_scores_are_lines_in_the_order_of_the_table_and_what_is_no_metric_is_left_out() -> None:
    scores = {"exact_match": 8.0, "num_sentences": 7, "bleu": 33.06, "bleu_signature": "nrefs:1", "loss": 1.5}
    assert score_lines(scores) == ["BLEU         33.1  nrefs:1", "exact match  8.0 %"]


def test_a_comparison_tells_both_values_with_their_intervals() -> None:
    found = {"score": 33.06, "interval": 1.25, "baseline": 32.0, "baseline_interval": 1.0, "p_value": 0.03}
    assert comparison_lines({"against": "other", "ter": found}) == [
        "TER          33.1 ± 1.2 against 32.0 ± 1.0, p = 0.0300"
    ]
