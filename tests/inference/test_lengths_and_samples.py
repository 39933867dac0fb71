"""The translator's length penalty, its limits of length and its samples."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.test_translator import letters_model, random_texts
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator, output_limits
from hf_seq2seq.interop import to_ctranslate2


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 3)


@pytest.fixture
def translator(letter_tokenizer: PreTrainedTokenizerFast) -> Translator:
    return Translator(letters_model(), letter_tokenizer)


# The length penalty


def test_the_penalty_of_gnmt_is_an_option_and_a_setting_of_the_model(translator: Translator) -> None:
    texts = random_texts(3, 8, 5, 2, 9, 4)
    options: Any = {"n_best": 4, "length_penalty": 1.0}
    usual = translator.hypotheses(texts, **options)
    found = translator.hypotheses(texts, **options, gnmt_penalty=True)
    assert [line[0].text for line in found] != [line[0].text for line in usual]
    for line in found:
        for hypothesis in line:
            penalty = (5 + len(hypothesis.tokens)) / 6
            assert hypothesis.score == pytest.approx((hypothesis.sum_log_prob or 0) / penalty, abs=1e-5)
        scores = [hypothesis.score or 0 for hypothesis in line]
        assert scores == sorted(scores, reverse=True)
    translator.model.generation_config.gnmt_penalty = True
    assert translator.hypotheses(texts, **options) == found
    assert translator.hypotheses(texts, **options, gnmt_penalty=False) == usual


# Limits


@pytest.mark.parametrize("prefix", ["", "a b"])
@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4}], ids=str)
def test_lengths_stay_between_both_limits(
    options: Any, prefix: str, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    texts, num_prefix = random_texts(2, 7, 15), len(prefix.split())
    ending = Translator(letters_model(end_bias=1e4), letter_tokenizer)
    found = ending.hypotheses(texts, **options, prefix=prefix, min_new_tokens=12)  # more than the first would get
    assert {len(line[0].tokens) for line in found} == {num_prefix + 12 + 1}
    endless = Translator(letters_model(end_bias=-1e4), letter_tokenizer)
    for limit in (4, 30):  # fewer, and more, than the source's length allows
        found = endless.hypotheses(texts, **options, prefix=prefix, max_new_tokens=limit)
        assert {len(line[0].tokens) for line in found} == {num_prefix + limit}


def test_ctranslate2_obeys_the_limits_too(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    texts, prefixes = random_texts(2, 7, 15), ["a b c", "", "d"]
    for bias in (5.0, -1e4):
        model = letters_model(end_bias=bias, decoder_layers=2)
        model.generation_config.update(num_beams=4, length_penalty=0.6, early_stopping=True, renormalize_logits=True)
        to_ctranslate2(model, letter_tokenizer, tmp_path / str(bias))
        theirs = Translator.from_pretrained(tmp_path / str(bias), backend="ctranslate2")
        ours = Translator(model, letter_tokenizer)
        options: Any
        for options in ({"min_new_tokens": 6}, {"max_new_tokens": 4}, {"min_new_tokens": 3, "max_new_tokens": 25}):
            assert theirs(texts, prefix=prefixes, **options) == ours(texts, prefix=prefixes, **options)


# Samples


def test_samples_with_a_seed_do_not_depend_on_the_batch(translator: Translator) -> None:
    texts = random_texts(3, 8, 3, 5)
    options: Any = {"do_sample": True, "n_best": 3}
    found = translator.hypotheses(texts, **options, seed=5)
    translator.batch_tokens = 1
    alone = translator.hypotheses(texts, **options, seed=5)
    assert [[sample.text for sample in line] for line in alone] == [[sample.text for sample in line] for line in found]
    assert len({sample.text for line in found for sample in line}) > 6
    other = translator.hypotheses(texts, **options, seed=6)
    assert [[sample.text for sample in line] for line in other] != [[sample.text for sample in line] for line in found]
    assert len(set(translator(texts[:1] * 8, do_sample=True, seed=5))) > 2  # the same text on other lines
    more = translator.hypotheses(texts, do_sample=True, n_best=5, seed=5)
    assert [line[:3] for line in more] == alone


@pytest.mark.parametrize(
    "options", [{"top_k": 0}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6}, {"temperature": 2.0, "top_p": 0.8}]
)
def test_samples_with_a_seed_follow_the_distribution(options: Any, translator: Translator) -> None:
    """One token each, whose probabilities are computed here from those of all tokens."""
    num_draws = 2000
    source = translator.tokenizer("a b c", return_tensors="pt")
    logits = translator.model(**source, decoder_input_ids=source["input_ids"][:, :1] * 0 + 1).logits[0, -1]
    scores = logits.detach().double().numpy() / options.get("temperature", 1.0)
    scores[[0, 1, 3]] = -np.inf  # never written
    probabilities = np.exp(scores - scores.max())
    order = np.argsort(-probabilities)
    probabilities /= probabilities.sum()
    num_kept = options.get("top_k", 50) or len(order)
    before = probabilities[order].cumsum() - probabilities[order]
    kept = order[:num_kept][before[:num_kept] < options.get("top_p", 1.0)]
    expected = np.zeros_like(probabilities)
    expected[kept] = probabilities[kept] / probabilities[kept].sum()
    found = translator.hypotheses(
        ["a b c"] * 4, do_sample=True, n_best=num_draws // 4, max_new_tokens=1, seed=0, scores=False, **options
    )
    counts = Counter(sample.token_ids[0] for line in found for sample in line)
    assert counts.keys() <= set(kept.tolist())
    frequencies = np.array([counts[token] / num_draws for token in range(len(expected))])
    assert np.abs(frequencies - expected).max() < 4 * np.sqrt(0.25 / num_draws)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_new_tokens": -1}, "`min_new_tokens` must be a whole number of at least 0, but is -1 instead"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be a whole number of at least 1, but is 0 instead"),
        ({"min_new_tokens": 5, "max_new_tokens": 5}, r"`max_new_tokens` must be more than `min_new_tokens` \(5\)"),
        ({"seed": 1}, "`seed` must be given together with `do_sample`"),
        ({"seed": -1, "do_sample": True}, "`seed` must be a whole number from 0 to"),
        ({"seed": 1, "do_sample": True, "beam_size": 2}, "`beam_size` must be 1 with `seed`, but is 2 instead"),
    ],
)
def test_options_that_cannot_be_followed_are_named(options: Any, message: str, translator: Translator) -> None:
    with pytest.raises(ValueError, match=message):
        translator(["a"], **options)


@pytest.mark.parametrize("options", [{"gnmt_penalty": True}, {"seed": 0, "do_sample": True}], ids=str)
def test_what_ctranslate2_lacks_names_the_backend_that_has_it(
    options: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    to_ctranslate2(letters_model(), letter_tokenizer, tmp_path / "exported")
    theirs = Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2")
    name = next(iter(options))
    message = f"`{name}` must be left out with the backend ctranslate2, but is .* instead. Take the backend torch"
    with pytest.raises(ValueError, match=message):
        theirs(["a"], **options)
