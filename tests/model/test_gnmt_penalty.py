"""The length penalty of Wu et al. (2016), in `generate()`, in its saved settings and in the translator."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model.test_generation import BEAM, END, SOURCES, START, NextLogProbs, ending_model, inputs_of, outputs_of
from reference.brute_force_search import Hypothesis, beam_search, exhaustive_search
from reference.tiny_models import random_sentences
from transformers import GenerationConfig

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration


GNMT = BEAM | {"gnmt_penalty": True}


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("seed", range(3))
def test_beam_search_equals_a_hand_written_one_with_the_penalty(seed: int, early_stopping: Any) -> None:
    model = ending_model(seed)
    settings = {**GNMT, "early_stopping": early_stopping, "length_penalty": 1.0}
    expected: list[Hypothesis] = []
    for source in SOURCES:
        expected += beam_search(NextLogProbs(model, source), prefix=(START,), eos_token_id=END, **settings)[:3]
    options = settings | {"num_return_sequences": 3}
    outputs = model.generate(**inputs_of(), **options, return_dict_in_generate=True, output_scores=True)
    assert outputs_of(outputs.sequences) == [hypothesis.tokens for hypothesis in expected]
    np.testing.assert_allclose(outputs.sequences_scores, [h.score for h in expected], atol=1e-4)
    assert outputs_of(model.generate(**inputs_of(), **options)) == outputs_of(outputs.sequences)


@pytest.mark.parametrize("length_penalty", [-1.0, 0.6, 2.0])
def test_with_enough_beams_the_best_of_all_outputs_is_found(length_penalty: float) -> None:
    for seed in range(3):
        model = ending_model(seed, vocab_size=7)
        source = random_sentences((5,), vocab_size=7, seed=seed)[0]
        settings: dict[str, Any] = {"max_new_tokens": 4, "length_penalty": length_penalty, "gnmt_penalty": True}
        best = exhaustive_search(NextLogProbs(model, source), prefix=(START,), eos_token_id=END, **settings)[0]
        found = model.generate(**inputs_of([source]), **settings, num_beams=341, early_stopping="never")
        assert outputs_of(found) == [best.tokens]


def different_outputs(seed: int = 1) -> tuple[Seq2SeqTransformerForConditionalGeneration, Any, Any]:
    """A model, and its outputs with either penalty, which differ."""
    model, options = ending_model(seed), BEAM | {"length_penalty": 2.0}
    usual, gnmt = (model.generate(**inputs_of(), **options | {"gnmt_penalty": form}) for form in (False, True))
    assert outputs_of(usual) != outputs_of(gnmt)
    return model, usual, gnmt


def test_a_saved_model_keeps_the_penalty_and_a_call_can_take_it_back(tmp_path: Path) -> None:
    model, usual, gnmt = different_outputs()
    model.generation_config.update(**BEAM | {"length_penalty": 2.0})
    assert model.generate(**inputs_of()).equal(usual)
    model.generation_config.gnmt_penalty = True  # type: ignore[attr-defined]
    model.save_pretrained(tmp_path)
    loaded = Seq2SeqTransformerForConditionalGeneration.from_pretrained(tmp_path)
    assert loaded.generate(**inputs_of()).equal(gnmt)
    assert loaded.generate(**inputs_of(), gnmt_penalty=False).equal(usual)
    assert loaded.generation_config.length_penalty == 2.0
    assert type(loaded.generation_config.length_penalty) is float


def test_settings_of_a_call_can_choose_the_penalty() -> None:
    model, _, gnmt = different_outputs()
    settings = GenerationConfig(**BEAM | {"length_penalty": 2.0}, gnmt_penalty=True)
    assert model.generate(**inputs_of(), generation_config=settings).equal(gnmt)
