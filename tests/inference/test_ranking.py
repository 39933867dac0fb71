"""Minimum Bayes risk and diverse hypotheses, against plain computations of both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from inference.test_translator import letters_model, random_texts
from model.test_generation import END, SOURCES, START, NextLogProbs, ending_model, inputs_of, outputs_of
from reference.brute_force_search import beam_search
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator, output_limits
from hf_seq2seq.inference import SiblingPenalty, expected_utilities
from hf_seq2seq.interop import to_ctranslate2


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 3)


@pytest.fixture
def translator(letter_tokenizer: PreTrainedTokenizerFast) -> Translator:
    return Translator(letters_model(end_bias=4.0, decoder_layers=2), letter_tokenizer)


def mean_utilities(texts: list[str], weights: Any, utility: str) -> Any:
    """What each text is worth on average, by sacrebleu's functions for one sentence."""
    score: Any = {
        "chrf": sacrebleu.sentence_chrf,
        "bleu": lambda text, right: sacrebleu.sentence_bleu(text, right, use_effective_order=True),
    }[utility]
    table = [[score(text, [right]).score for right in texts] for text in texts]
    return np.average(table, axis=1, weights=weights)


# Minimum Bayes risk


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 3.0]])
def test_what_a_translation_is_worth_is_its_mean_utility(utility: Any, weights: Any) -> None:
    texts = ["the cat sat on the mat", "a cat sat on a mat", "the dog sat", "a cat sat on a mat"]
    found = expected_utilities(texts, weights, utility)
    assert found == pytest.approx(mean_utilities(texts, weights, utility))
    assert max(found) == found[1]


def test_probabilities_too_small_for_a_number_count_alike() -> None:
    assert expected_utilities(["a b", "a c"], [0.0, 0.0]) == expected_utilities(["a b", "a c"])


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_the_sample_of_the_least_risk_is_chosen(utility: Any, translator: Translator) -> None:
    texts = random_texts(3, 8, 5)
    drawing: Any = {"do_sample": True, "seed": 1}
    samples = translator.hypotheses(texts, **drawing, n_best=12)
    found = translator.hypotheses(texts, **drawing, n_best=2, mbr=True, mbr_utility=utility, mbr_candidates=12)
    for of_text, chosen in zip(samples, found, strict=True):
        candidates = [sample.text for sample in of_text]
        worth = mean_utilities(candidates, None, utility)
        assert chosen[0].text == candidates[int(np.argmax(worth))]
        assert [hypothesis.score for hypothesis in chosen] == pytest.approx(np.sort(worth)[::-1][:2])
        assert chosen[0].sum_log_prob in [sample.sum_log_prob for sample in of_text]
    first = translator(texts, **drawing, mbr=True, mbr_utility=utility, mbr_candidates=12)
    assert first == [chosen[0].text for chosen in found]


def test_hypotheses_of_a_search_count_by_their_probability(translator: Translator) -> None:
    texts = random_texts(3, 8, 5, 2)
    searched = translator.hypotheses(texts, n_best=6)
    found = translator.hypotheses(texts, beam_size=6, mbr=True, n_best=6)
    for of_text, ranked in zip(searched, found, strict=True):
        weights = np.exp([hypothesis.sum_log_prob or 0 for hypothesis in of_text])
        worth = mean_utilities([hypothesis.text for hypothesis in of_text], weights, "chrf")
        assert [hypothesis.score for hypothesis in ranked] == pytest.approx(np.sort(worth)[::-1])
    assert [line[0].text for line in found] != [line[0].text for line in searched]
    assert translator.hypotheses(texts, beam_size=6, mbr=True, scores=False)[0][0].score is None


def test_the_backend_ctranslate2_chooses_too(translator: Translator, tmp_path: Path) -> None:
    model = translator.model
    model.generation_config.update(num_beams=4, length_penalty=0.6, early_stopping=True, renormalize_logits=True)
    to_ctranslate2(model, translator.tokenizer, tmp_path / "exported")
    theirs = Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2")
    texts = random_texts(3, 8, 5)
    assert theirs(texts, mbr=True) == translator(texts, mbr=True)
    (found,) = theirs.hypotheses(texts[:1], mbr=True, do_sample=True, n_best=32)
    worth = mean_utilities([hypothesis.text for hypothesis in found], None, "chrf")
    assert [hypothesis.score for hypothesis in found] == pytest.approx(worth)


# Diverse hypotheses


@pytest.mark.parametrize("rate", [0.0, 0.5, 3.0])
def test_a_search_with_a_penalty_for_siblings_equals_a_hand_written_one(rate: float) -> None:
    """Li, Monroe and Jurafsky (2016), section 3."""
    model = ending_model(1)
    settings: Any = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": True, "max_new_tokens": 8}
    found = model.generate(
        **inputs_of(), **settings, num_return_sequences=4, logits_processor=[SiblingPenalty(rate, 8)]
    )
    expected = []
    for source in SOURCES:
        next_log_probs = NextLogProbs(model, source)

        def penalised(tokens: tuple[int, ...], next_log_probs: NextLogProbs = next_log_probs) -> Any:
            log_probs = next_log_probs(tokens)
            return log_probs - rate * np.argsort(np.argsort(-log_probs))

        expected += [h.tokens for h in beam_search(penalised, prefix=(START,), eos_token_id=END, **settings)]
    assert outputs_of(found) == expected


def test_hypotheses_of_a_search_with_the_penalty_are_ranked_without_it(translator: Translator) -> None:
    texts = random_texts(3, 8, 5, 9)
    options: Any = {"n_best": 6, "length_penalty": 0.6}
    usual, found = translator.hypotheses(texts, **options), translator.hypotheses(texts, **options, diversity_rate=1.0)
    for line, usual_line in zip(found, usual, strict=True):
        assert {hypothesis.tokens for hypothesis in line} != {hypothesis.tokens for hypothesis in usual_line}
        scores = [hypothesis.score or 0 for hypothesis in line]
        assert scores == sorted(scores, reverse=True)
        assert scores == [pytest.approx((h.sum_log_prob or 0) / len(h.tokens) ** 0.6) for h in line]
    assert translator.hypotheses(texts, **options, diversity_rate=0.0) == usual


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mbr": True, "mbr_utility": "ter"}, "`mbr_utility` must be one of chrf, bleu, but is 'ter' instead"),
        ({"mbr_utility": "bleu"}, "`mbr_utility` must be given together with `mbr`"),
        ({"mbr_candidates": 3}, "`mbr_candidates` must be given together with `mbr`"),
        ({"mbr": True, "mbr_candidates": 0}, "`mbr_candidates` must be a whole number from 1 to"),
        ({"mbr": True, "mbr_candidates": 5, "beam_size": 4}, r"`mbr_candidates` must be at most `beam_size` \(4\)"),
        ({"mbr": True, "mbr_candidates": 2, "n_best": 3}, r"`n_best` must be at most `mbr_candidates` \(2\)"),
        ({"diversity_rate": -1}, "`diversity_rate` must be a number from 0 to 100, but is -1 instead"),
        ({"diversity_rate": 1, "do_sample": True}, "`diversity_rate` must be left out with `do_sample`"),
    ],
)
def test_options_that_cannot_be_followed_are_named(options: Any, message: str, translator: Translator) -> None:
    with pytest.raises(ValueError, match=message):
        translator(["a"], **options)


def test_an_unknown_utility_is_named() -> None:
    with pytest.raises(ValueError, match="`utility` must be one of chrf, bleu, but is 'ter' instead"):
        expected_utilities(["a"], utility="ter")  # type: ignore[arg-type]
