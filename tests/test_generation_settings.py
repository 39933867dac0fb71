"""A generation_config.json of any content is followed or refused in one line, by every verb that reads one."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.tiny_models import tiny_model
from transformers import GenerationConfig

from hf_seq2seq.generation_settings import check_generation_settings
from hf_seq2seq.inference import Translator
from hf_seq2seq.loading import load_model


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [name for name in vars(GenerationConfig()) if not name.startswith("_")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model(decoder_layers=1, encoder_layers=1).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", r"`.*generation_config.json` must be valid, a JSON object, but is \[\] instead"),
        ("{", "`.*generation_config.json` must be valid, but is not: Expecting"),
        ("[" * 100_000, "`.*generation_config.json` must be valid, but is not: it is nested too deeply"),
        ('{"num_beams": "4"}', "`num_beams` in `.*` must be a whole number from 1 to 1,000, but is '4' instead"),
        ('{"num_beams": 100000}', "`num_beams` in `.*` must be a whole number from 1 to 1,000, but is 100000 instead"),
        (
            '{"length_penalty": "x"}',
            "`length_penalty` in `.*` must be a number of at least -100 .* but is 'x' instead",
        ),
        ('{"length_penalty": NaN}', "`length_penalty` in `.*` must be a number .* but is nan instead"),
        (
            '{"suppress_tokens": [99999]}',
            r"`suppress_tokens` in .* must be a list of token ids below .* \(50\), but is",
        ),
        (
            '{"eos_token_id": []}',
            r"`eos_token_id` in .* must be a token id .*, or a list of them, but is \[\] instead",
        ),
        ('{"repetition_penalty": 2}', "`repetition_penalty` in .* must be a number above 0 with a decimal point, but"),
        ('{"validate": 3}', "`validate` in .* must be left out, since it is no setting"),
        ('{"validate": null}', "`validate` in .* must be left out, since it is no setting"),
        ('{"__class__": -1}', "`__class__` in .* must be left out, since it is no setting"),
        ('{"guidance_scale": 3}', "`guidance_scale` in .* must be left out, since it is not followed here, but is 3"),
    ],
)
def test_what_cannot_be_followed_is_named(content: str, message: str, folder: Path) -> None:
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_model(folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3))
def test_any_content_is_followed_or_refused_as_a_value_error(values: dict[str, Any], folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps(values))
    with suppress(ValueError):
        assert load_model(folder).num_parameters() > 0


@pytest.mark.parametrize(
    "content",
    [
        {"num_beams": 1},
        {"num_beams": 3},
        {"num_beams": 2, "do_sample": True, "top_k": 3, "temperature": 0.5},
        {"max_new_tokens": 5},
        {"num_beams": 2, "no_repeat_ngram_size": 2, "bad_words_ids": [[5], [6, 7]], "suppress_tokens": []},
        {"sequence_bias": [[[5], -1.0]], "exponential_decay_length_penalty": [3, 1.5], "repetition_penalty": 2.0},
        {"forced_eos_token_id": 2, "forced_bos_token_id": 7, "eos_token_id": [2, 9], "early_stopping": "never"},
        {"epsilon_cutoff": 0.1, "min_length": 3, "output_scores": True, "return_dict_in_generate": True},
        {"cache_implementation": "static"},
    ],
)
def test_what_is_not_refused_translates(content: dict[str, Any], folder: Path, letter_tokenizer: Any) -> None:
    """https://github.com/huggingface/transformers/issues/25917: all that a file leaves out is filled in."""
    (folder / "generation_config.json").write_text(json.dumps(content))
    translator = Translator(load_model(folder), letter_tokenizer)
    assert len(translator(["a b", "c"])) == 2


def test_settings_that_this_package_writes_are_followed() -> None:
    check_generation_settings(tiny_model().generation_config.to_dict(), 50, "here")
    check_generation_settings(GenerationConfig._get_default_generation_params(), 50, "here")
