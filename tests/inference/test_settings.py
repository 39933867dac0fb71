"""Options are filled up with the model's own settings, and these with the paper's search or generate's defaults."""

from typing import Any

import pytest
from transformers import GenerationConfig

from hf_seq2seq.inference import SearchOptions
from hf_seq2seq.inference.settings import DecodingSettings


OWN = GenerationConfig(num_beams=5, length_penalty=0.6, early_stopping=True, top_k=7)


@pytest.mark.parametrize("options", [{}, {"beam_size": None, "length_penalty": None}])
def test_an_option_that_is_none_is_left_out(options: SearchOptions) -> None:
    settings = DecodingSettings.resolve(options, OWN)
    assert (settings.beam_size, settings.n_best, settings.length_penalty) == (5, 1, 0.6)
    assert settings.early_stopping is True


@pytest.mark.parametrize(
    ("own", "search"),
    [
        ({}, (4, 0.6, False)),
        ({"length_penalty": 1.5}, (4, 1.5, False)),
        ({"num_beams": 1}, (1, 0.6, False)),
        ({"num_beams": 3}, (3, 1.0, False)),
        ({"num_beams": 3, "length_penalty": 0.0, "early_stopping": "never"}, (3, 0.0, "never")),
    ],
    ids=str,
)
def test_settings_that_choose_no_search_get_the_paper_s(own: dict[str, Any], search: tuple[Any, ...]) -> None:
    settings = DecodingSettings.resolve({}, GenerationConfig(**own))
    assert (settings.beam_size, settings.length_penalty, settings.early_stopping) == search


def test_what_neither_an_option_nor_the_model_says_of_sampling_is_what_generate_takes() -> None:
    settings = DecodingSettings.resolve({"do_sample": True}, GenerationConfig())
    assert settings.beam_size == 1
    assert (settings.temperature, settings.top_k, settings.top_p) == (1.0, 50, 1.0)


def test_an_option_goes_before_the_model_s_own_setting() -> None:
    settings = DecodingSettings.resolve({"do_sample": True, "top_k": 0, "beam_size": 3}, OWN)
    assert (settings.top_k, settings.beam_size) == (0, 3)


def test_more_hypotheses_than_beams_widen_the_model_s_own_beam() -> None:
    assert DecodingSettings.resolve({"n_best": 9}, OWN).beam_size == 9


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"`beams` must be an option of the search \(beam_size, .*\), but is none"):
        DecodingSettings.resolve({"beams": 3}, OWN)  # type: ignore[typeddict-unknown-key]
