"""The generation settings that a trainer is given in place of the model's own."""

import os
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from hf_seq2seq.generation_settings import check_generation_settings, read_generation_settings
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.generation_seq2seq_transformer import generation_defaults


_SPECIAL_TOKENS = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
_SEARCH = ("num_beams", "length_penalty", "early_stopping")
_ANY_VOCABULARY = 2**31


def check_generation_config_file(path: str | os.PathLike[str]) -> None:
    """Checks a generation_config.json, or the one of a folder, before its model is known.

    Raises:
        ValueError: If it is damaged, or a value is of the wrong kind or out of range.
    """
    file = Path(path) / "generation_config.json" if Path(path).is_dir() else Path(path)
    if file.is_file():
        check_generation_settings(read_generation_settings(file), _ANY_VOCABULARY, f"`{file}`")


def complete_generation_config(model: Any, own_settings: GenerationConfig | None, is_given: bool) -> None:
    """Fills in what the generation settings of a model lack, so that they say how to generate where they are saved.

    Missing settings are the model's own from before. Where those are missing too, as in a `GenerationConfig()`
    on the model itself, they are those of a new model.

    Args:
        model: The model, with its settings.
        own_settings: The settings that it had before.
        is_given: Whether they were replaced by the trainer's arguments.

    Raises:
        ValueError: If settings that were given are out of range for this model.
    """
    settings: Any = getattr(model, "generation_config", None)
    config: Any = getattr(model, "config", None)
    is_ours = getattr(config, "model_type", None) == Seq2SeqTransformerConfig.model_type
    if settings is None or not is_ours or not (is_given or settings.decoder_start_token_id is None):
        return
    names = [*_SPECIAL_TOKENS, "suppress_tokens", "max_length"]
    names += _SEARCH if settings.num_beams is None else []
    usual = generation_defaults(config) | {name: getattr(config, name) for name in _SPECIAL_TOKENS}
    for name in names:
        if getattr(settings, name) is None:
            own = getattr(own_settings, name, None)
            setattr(settings, name, usual.get(name) if own is None else own)
    if is_given:
        vocab_size = config.decoder_vocab_size or config.vocab_size
        check_generation_settings(settings.to_dict(), vocab_size, "`generation_config`")
