"""Reads the settings of a training run from a YAML or JSON file and the command line."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser

from .arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from .settings import Settings, resolve_settings


class _Parser(HfArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises instead of printing two screens of usage and exiting."""
        raise ValueError(f"{message[0].upper()}{message[1:]}. `hf-seq2seq train --help` lists all options.")


USAGE = "hf-seq2seq train [CONFIG.yaml] --output_dir DIR [--FIELD VALUE ...]"
ARGUMENT_CLASSES = (ModelArguments, DataArguments, Seq2SeqTransformerTrainingArguments)


def parse_arguments(arguments: Sequence[str]) -> Settings:
    """Reads `[config.yaml] --field value ...`; what the file says holds where the command line says nothing.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a flat mapping, a field is unknown or has a wrong value, or fields contradict each
            other.
    """
    arguments = list(arguments)
    classes: Any = ARGUMENT_CLASSES
    parser = _Parser(classes, usage=USAGE, allow_abbrev=False)
    known = {action.lstrip("-").replace("-", "_") for action in parser._option_string_actions}
    if arguments and not arguments[0].startswith("-"):
        arguments = _read_config_file(Path(arguments[0]), known) + arguments[1:]
    given = {_field_of(argument) for argument in arguments if argument.startswith("--")}
    for name in given:
        _check_known(name, known, "the command line")
    *parsed, rest = parser.parse_args_into_dataclasses(
        arguments, return_remaining_strings=True, look_for_args_file=False
    )
    if rest:
        raise ValueError(f"Each value must follow its `--field`, but {rest[0]!r} follows none.")
    return resolve_settings(*parsed)


def _field_of(argument: str) -> str:
    return argument[2:].partition("=")[0].replace("-", "_")


def _check_known(name: str, known: set[str], place: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"Nearest: {', '.join(near)}." if near else "`hf-seq2seq train --help` lists all fields."
        raise ValueError(f"`{name}` in {place} must be a field of the training command, but is none. {hint}")


def _read_config_file(path: Path, known: set[str]) -> list[str]:
    """Returns the options that a YAML or JSON file stands for."""
    loaders: dict[str, Callable[[str], Any]] = {".yaml": yaml.safe_load, ".yml": yaml.safe_load, ".json": json.loads}
    if path.suffix not in loaders:
        raise ValueError(
            f"The first argument must be a .yaml, .yml or .json file or a `--field`, but is {str(path)!r} instead."
        )
    try:
        values = loaders[path.suffix](path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"`{path}` must be a file with settings, but does not exist.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"`{path}` must be valid {path.suffix[1:].upper()}, but is not: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"`{path}` must be a mapping of fields to values, but is a {type(values).__name__} instead.")
    for name in values:
        _check_known(str(name).replace("-", "_"), known, f"`{path}`")
    return to_options(values)


def to_options(values: Mapping[str, Any]) -> list[str]:
    """Returns settings, as a YAML file can hold them, as words of a command line; those that are None are left out."""
    options = []
    for name, value in values.items():
        name = str(name).replace("-", "_")
        if value is False and name.endswith("_strategy"):
            value = "no"  # which YAML reads as False
        if isinstance(value, list):
            options += [f"--{name}", *map(str, value)]
        elif value is not None:
            options.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return options
