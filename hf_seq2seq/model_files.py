"""What the files of a model say. Nothing is built before the config is known to have the sizes of the weights."""

import copy
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from .atomic_writing import PathLike
from .error_messages import first_line
from .json_files import parse_json
from .model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig as Config
from .model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


logger = logging.getLogger(__name__)

# Fields that transformers, or an earlier version, writes into every config, and that say nothing of this model. Some
# name code on the Hub, or make transformers build something as large as they say.
_NOT_READ = {
    *("architectures", "auto_map", "chunk_size_feed_forward", "configuration_files", "id2label", "label2id"),
    *("model_type", "name_or_path", "num_labels", "problem_type", "tokenizer_class", "transformers_version"),
    *("attn_implementation", "experts_implementation", "return_dict"),  # the user chooses it, not the file
}
_SWITCHES = ("output_attentions", "output_hidden_states")


def read_json_object(file: Path) -> dict[str, Any]:
    """Returns the fields of a file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no JSON object, or names a field twice.
    """
    try:
        fields = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{file}` must be JSON, but is not: {first_line(error)}. Copy it again.") from error
    if not isinstance(fields, dict):
        raise ValueError(f"`{file}` must be a JSON object, but is {_shown(fields)} instead. Copy it again.")
    return fields


def make_config(fields: Mapping[str, Any], place: PathLike) -> Config:
    """Returns the config that fields describe. Those that the model does not have are left out, with a warning.

    Args:
        fields: The fields of a config.json.
        place: The folder or repository that it is from.

    Raises:
        ValueError: If a value is of the wrong kind, or some contradict each other.
    """
    fields = {Config.attribute_map.get(name, name): value for name, value in fields.items() if name not in _NOT_READ}
    dtype = fields.pop("dtype", None) or fields.pop("torch_dtype", None)
    fields.pop("torch_dtype", None)
    own = {field.name for field in fields_of(Config)} | {"output_attentions"}
    unknown = sorted(name for name in fields if name not in own and not name.startswith("_"))
    if unknown:
        logger.warning("The config.json of `%s` has the field `%s`, which is not read.", place, unknown[0])
    values = {name: value for name, value in fields.items() if name in own}
    try:
        for name in _SWITCHES:
            if not isinstance(values.get(name, False), bool | None):
                raise ValueError(f"`{name}` must be true or false, but is {_shown(values[name])} instead.")
        if dtype is not None and not is_float_type(dtype):
            raise ValueError(f"`dtype` must be a type of floating point numbers, but is {_shown(dtype)} instead.")
        return Config(**values, dtype=dtype)
    except Exception as error:  # of huggingface_hub, of transformers, or a bare one for a number that is too large
        reason = first_line(error.__cause__ or error)
        raise ValueError(f"The config of `{place}` must be valid, but is not: {reason}") from error


def is_float_type(name: Any) -> bool:
    """Returns whether something is a type of floating point numbers that torch has, or its name."""
    found = getattr(torch, name, None) if isinstance(name, str) else name
    return isinstance(found, torch.dtype) and found.is_floating_point


def check_sizes(config: Config, files: Iterable[Path], place: PathLike) -> None:
    """Checks that weights have the names and sizes of a model, by the headers of their files.

    Args:
        config: The model's config.
        files: The safetensors files.
        place: The folder or repository that they are from.

    Raises:
        ValueError: If a file is damaged, or a weight is missing, left over, or of another size.
    """
    stored = _stored_sizes(files, place)
    way_out = "Use the config.json that was saved with them."
    for stack, num_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        found = {match[1] for name in stored if (match := re.match(rf"(?:model\.)?{stack}\.layers\.(\d+)\.", name))}
        if len(found) != num_layers:
            raise ValueError(
                f"The weights of `{place}` must have as many layers as its config.json says (`{stack}_layers` "
                f"{num_layers:,}), but have {len(found)}. {way_out}"
            )
    sizes, ties = _expected_sizes(config, place)
    stored = {name if name in sizes else f"model.{name}": size for name, size in stored.items()}
    held = {ties.get(name, name) for name in stored}
    missing = {name for name in sizes if ties.get(name, name) not in held}
    unmatched = sorted(missing | (stored.keys() - sizes.keys()))
    if unmatched:
        raise ValueError(
            f"The weights of `{place}` must be those that its config.json describes, but {len(unmatched)} are "
            f"missing or left over, `{unmatched[0]}` among them. {way_out}"
        )
    for name in sizes.keys() & stored.keys():
        if sizes[name] != stored[name]:
            raise ValueError(
                f"The weights of `{place}` must have the sizes that its config.json says, but `{name}` has "
                f"{stored[name]} instead of {sizes[name]}. {way_out}"
            )


def _stored_sizes(files: Iterable[Path], place: PathLike) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                sizes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"The safetensors files of `{place}` must be whole, but one is cut short or damaged ({error}). "
                "Copy it again, or use an earlier checkpoint."
            ) from error
    return sizes


def _expected_sizes(config: Config, place: PathLike) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Returns the sizes of a model's weights, and for those that are tied to another one its name."""
    try:
        with torch.device("meta"):
            model = Seq2SeqTransformerForConditionalGeneration(copy.deepcopy(config))
    except (RuntimeError, OverflowError, TypeError, ImportError) as error:  # more than torch can count
        raise ValueError(f"The model of `{place}` must be one that torch can build: {first_line(error)}") from error
    sizes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    return sizes, dict(model.all_tied_weights_keys)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
