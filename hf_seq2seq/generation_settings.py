"""Which generation settings can be followed, so that a file with others is refused before anything is computed."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from .json_files import parse_json


_MOST_TOKENS = 1_000_000
_MOST_BEAMS = 1_000
_INFINITE = 1e30  # near the end of float32
_LARGEST_POWER = 100  # of a length: beyond, scores are infinite

Check = tuple[str, Callable[[Any], bool]]  # what a value must be, and whether one is that


def _whole(least: int, most: int = _MOST_TOKENS) -> Check:
    return f"a whole number from {least} to {most:,}", lambda value: type(value) is int and least <= value <= most


def _number(least: float, most: float = math.inf) -> Check:
    upper = "" if most == math.inf else f" and at most {most}"

    return f"a number of at least {least}{upper}", lambda value: _is_finite(value) and least <= value <= most


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _INFINITE


def _is_length_and_factor(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and type(value[0]) is int and _is_finite(value[1])


_SMALLEST = 1e-6
_SWITCH: Check = ("true or false", lambda value: type(value) is bool)
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("max_length", "max_new_tokens", "num_return_sequences"), _whole(1)),
    **dict.fromkeys(("min_length", "min_new_tokens", "top_k"), _whole(0)),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), _whole(0)),
    "num_beams": _whole(1, _MOST_BEAMS),
    "length_penalty": _number(-_LARGEST_POWER, _LARGEST_POWER),
    "early_stopping": ('true, false or "never"', lambda value: type(value) is bool or value == "never"),
    **dict.fromkeys(("temperature", "max_time"), _number(_SMALLEST)),
    **dict.fromkeys(
        ("repetition_penalty", "encoder_repetition_penalty"),
        ("a number above 0 with a decimal point", lambda value: type(value) is float and 0 < value < _INFINITE),
    ),
    **dict.fromkeys(("top_p", "typical_p"), _number(_SMALLEST, 1)),
    **dict.fromkeys(("min_p", "top_h", "epsilon_cutoff", "eta_cutoff"), _number(0, 1)),
    **dict.fromkeys(
        ("do_sample", "use_cache", "renormalize_logits", "remove_invalid_values", "gnmt_penalty"), _SWITCH
    ),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "output_scores", "output_logits"), _SWITCH),
    **dict.fromkeys(("return_dict_in_generate", "disable_compile"), _SWITCH),
    "exponential_decay_length_penalty": ("a list of a length and a factor", _is_length_and_factor),
    "cache_implementation": ('"dynamic" or "static"', lambda value: value in ("dynamic", "static")),
}
_IDS = ("pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
_ID_OR_IDS = ("eos_token_id", "forced_eos_token_id")
_LISTS_OF_IDS = ("suppress_tokens", "begin_suppress_tokens")
_NO_SETTINGS = ("transformers_version", "generation_config_class")


def _id_checks(vocab_size: int) -> dict[str, Check]:
    def is_id(value: Any) -> bool:
        return type(value) is int and 0 <= value < vocab_size

    def are_ids(value: Any) -> bool:
        return isinstance(value, list) and all(is_id(token) for token in value)

    one = f"a token id below the target vocabulary's size ({vocab_size:,})"
    several = f"a list of token ids below the target vocabulary's size ({vocab_size:,})"
    return {
        **dict.fromkeys(_IDS, (one, is_id)),
        **dict.fromkeys(
            _ID_OR_IDS, (f"{one}, or a list of them", lambda value: is_id(value) or (are_ids(value) and bool(value)))
        ),
        **dict.fromkeys(_LISTS_OF_IDS, (several, are_ids)),
        "bad_words_ids": (
            f"a list of lists, {several}",
            lambda value: isinstance(value, list) and all(are_ids(ids) and ids for ids in value) and bool(value),
        ),
        "sequence_bias": (
            "a list of pairs, each a list of token ids and a number",
            lambda value: (
                isinstance(value, list)
                and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
                and all(are_ids(ids) and ids and _is_finite(bias) for ids, bias in value)
                and bool(value)
            ),
        ),
    }


def check_generation_settings(values: Mapping[str, Any], vocab_size: int, place: str) -> None:
    """Checks the fields of generation settings.

    Args:
        values: The fields by name. None is as if a field were not there.
        vocab_size: The size of the target's vocabulary.
        place: Where they come from, for messages.

    Raises:
        ValueError: If a value is of the wrong kind or out of range, or of a kind of generation that is not for this
            model.
    """
    checks = _CHECKS | _id_checks(vocab_size)
    defaults = GenerationConfig._get_default_generation_params()
    known = vars(GenerationConfig())
    for name, value in values.items():
        if name not in _NO_SETTINGS and hasattr(GenerationConfig, name):  # it would take the place of a method
            raise ValueError(f"`{name}` in {place} must be left out, since it is no setting.")
        if value is None or name.startswith("_") or name in _NO_SETTINGS:
            continue
        if name in checks:
            rule, holds = checks[name]
            if not holds(value):
                raise ValueError(f"`{name}` in {place} must be {rule}, but is {_shown(value)} instead.")
        elif name in known and value is not False and value != defaults.get(name):
            raise ValueError(
                f"`{name}` in {place} must be left out, since it is not followed here, but is {_shown(value)} instead."
            )


def read_generation_settings(file: Path) -> dict[str, Any]:
    """Returns the fields of a generation_config.json.

    Raises:
        ValueError: If it is no JSON object.
    """
    try:
        values = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{file}` must be valid, but is not: {error}. Copy it again, or delete it.") from error
    if not isinstance(values, dict):
        raise ValueError(f"`{file}` must be valid, a JSON object, but is {_shown(values)} instead. Delete it.")
    return values


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
