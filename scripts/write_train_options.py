"""Writes hf_seq2seq/training/options.json, the options of `hf-seq2seq train`, from the dataclasses of its arguments.

    python scripts/write_train_options.py

Run it after a field or its help was changed, and after an upgrade of transformers. A test compares the file with the
dataclasses. The help of a field of transformers is not in the file: `train --help-all` takes it from there.
"""

import argparse
import json
from dataclasses import Field, fields
from enum import Enum
from pathlib import PurePath
from typing import Any, get_origin

from docstring_parser import parse
from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from hf_seq2seq import Seq2SeqTransformerConfig
from hf_seq2seq.training.arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from hf_seq2seq.training.command_line import OPTIONS_FILE


PARTS = {"model": ModelArguments, "data": DataArguments, "training": Seq2SeqTransformerTrainingArguments}
TYPE_NAMES: dict[Any, str] = {int: "int", float: "float", str: "str", dict: "dict", string_to_bool: "bool"}


def train_options() -> dict[str, Any]:
    """Returns {name: what the command line has to know of a field}, as HfArgumentParser understands the field."""
    documentation = parse(Seq2SeqTransformerConfig.__doc__ or "")
    config_help = {parameter.arg_name: parameter.description for parameter in documentation.params}
    config_defaults = {field.name: field.default for field in fields(Seq2SeqTransformerConfig)}
    options = {}
    for part, arguments in PARTS.items():
        own_fields = {field.name: field for field in fields(arguments) if field.name in arguments.__annotations__}
        for action in HfArgumentParser(arguments)._actions:  # type: ignore[arg-type]
            name = action.dest
            if action.nargs == 0 or not _is_expressible(action):
                continue  # help, the opposite of a switch, or an object
            option = {"part": part, **_describe(action)}
            if name in own_fields:
                option["help"] = _help(own_fields[name], config_help)
                if "help" not in own_fields[name].metadata:  # a field of the config, where None means its default
                    option["default"] = config_defaults[name]
            options[name] = {key: value for key, value in option.items() if value is not None}
    return options


def _is_expressible(action: argparse.Action) -> bool:
    """Returns whether a word can stand for a value: not for one of a class such as `ParallelismConfig`."""
    return not isinstance(action.type, type) or action.type in TYPE_NAMES or issubclass(action.type, Enum | PurePath)


def _describe(action: argparse.Action) -> dict[str, Any]:
    choices = action.choices
    if isinstance(action.type, type) and issubclass(action.type, Enum):
        choices = [member.value for member in action.type]
    return {
        "type": TYPE_NAMES.get(get_origin(action.type) or action.type, "str"),
        "nargs": action.nargs,
        "const": action.const,
        "choices": None if choices is None else list(choices),
        "default": action.default,
    }


def _help(field: Field[Any], config_help: dict[str, str | None]) -> str:
    """Returns the help of a field, whose percent signs are doubled for argparse."""
    if "help" in field.metadata:
        text: str = field.metadata["help"]
        return text
    return " ".join((config_help[field.name] or "").split()).replace("%", "%%")


def main() -> None:
    """Writes the file."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    OPTIONS_FILE.write_text(json.dumps(train_options(), indent=1) + "\n", encoding="utf-8")
    print(OPTIONS_FILE)


if __name__ == "__main__":
    main()
