"""Reads the settings of a training run from a YAML or JSON file and the command line.

Help and mistakes are answered without importing transformers and PyTorch, which takes seconds: the options are those
of options.json, which scripts/write_train_options.py writes from the dataclasses in `arguments`.
"""

import argparse
import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from hf_seq2seq.json_files import check_once, parse_json


if TYPE_CHECKING:
    from .settings import Settings


OPTIONS_FILE = Path(__file__).with_name("options.json")
USAGE = "hf-seq2seq train [CONFIG.yaml] --output_dir DIR [--FIELD VALUE ...]"

# The options of the short help, by what they are about.
COMMON_OPTIONS = {
    "the pairs": (
        "train_source",
        "train_target",
        "validation_source",
        "validation_target",
        "train_file",
        "validation_file",
        "dataset_name",
        "max_length",
    ),
    "the model": (
        "model_name_or_path",
        "preset",
        "d_model",
        "encoder_layers",
        "decoder_layers",
        "dropout",
        "vocab_size",
        "tokenizer",
    ),
    "the training": (
        "output_dir",
        "num_train_epochs",
        "max_steps",
        "tokens_per_batch",
        "tokens_per_update",
        "learning_rate",
        "warmup_steps",
        "label_smoothing_factor",
        "bf16",
        "seed",
        "dry_run",
    ),
    "what is evaluated and kept": (
        "eval_steps",
        "save_steps",
        "save_total_limit",
        "early_stopping_patience",
        "average_checkpoints",
        "push_to_hub",
    ),
}

_METAVARS = {"bool": "true|false", "int": "NUMBER", "float": "NUMBER", "str": "TEXT", "dict": "JSON"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises instead of printing two screens of usage and exiting."""
        raise ValueError(f"{message[0].upper()}{message[1:]}. `hf-seq2seq train --help-all` lists all options.")


def parse_arguments(arguments: Sequence[str]) -> "Settings":
    """Reads `[config.yaml] --field value ...`; what the file says holds where the command line says nothing.

    Returns:
        The settings of the model, the data and the training, as `run_training` takes them.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a flat mapping, a field is unknown or has a wrong value, or fields contradict each
            other.
        SystemExit: After `--help` or `--help-all` was printed.
    """
    options = read_options()
    arguments = list(arguments)
    for flag in ("-h", "--help", "--help-all"):
        if flag in arguments:
            print(make_parser(options, is_complete=flag == "--help-all").format_help(), end="")
            raise SystemExit(0)
    if arguments and not arguments[0].startswith("-"):
        arguments = _read_config_file(Path(arguments[0]), options) + arguments[1:]
    arguments = [_in_one_spelling(argument, options) for argument in arguments]
    for argument in arguments:
        if argument.startswith("--"):
            _check_known(_field_of(argument), options, "the command line")
    parsed, rest = make_parser(options).parse_known_args(arguments)
    if rest:
        raise ValueError(f"Each value must follow its `--field`, but {rest[0]!r} follows none.")
    return _make_settings(vars(parsed), options)


def _make_settings(values: dict[str, Any], options: dict[str, Any]) -> "Settings":
    from .arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
    from .settings import resolve_settings

    parts: dict[str, dict[str, Any]] = {"model": {}, "data": {}, "training": {}}
    for name, value in values.items():
        parts[options[name]["part"]][name] = value
    return resolve_settings(
        ModelArguments(**parts["model"]),
        DataArguments(**parts["data"]),
        Seq2SeqTransformerTrainingArguments(**parts["training"]),
    )


def read_options() -> dict[str, Any]:
    """Returns {name: {part, type, nargs, const, choices, default, help}}, of which all but the first two may lack."""
    options: dict[str, Any] = json.loads(OPTIONS_FILE.read_text(encoding="utf-8"))
    return options


def make_parser(options: dict[str, Any], is_complete: bool = False) -> _Parser:
    """Returns a parser that leaves out what was not given, and whose help is the short or the complete one."""
    parser = _Parser(
        usage=USAGE,
        epilog="`--help` lists the options that most runs need, `--help-all` all of them.",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    common = {name: title for title, names in COMMON_OPTIONS.items() for name in names}
    further = {part: f"further options of the {part}" for part in ("model", "data", "training")}
    groups = {title: parser.add_argument_group(title) for title in (*COMMON_OPTIONS, *further.values())}
    inherited = _inherited_help() if is_complete else {}
    for name in (*common, *(name for name in options if name not in common)):
        option = options[name]
        group = groups[common.get(name, further[option["part"]])]
        group.add_argument(
            f"--{name}",
            type=_TYPES[option["type"]],
            metavar=_METAVARS[option["type"]],
            help=_help(option, inherited.get(name, "")) if is_complete or name in common else argparse.SUPPRESS,
            **{key: option[key] for key in ("nargs", "const", "choices") if key in option},
        )
    return parser


def _help(option: dict[str, Any], inherited: str) -> str:
    """Returns an option's help, as argparse formats it, with its choices and its default."""
    sentences = [(option.get("help") or inherited).strip().removesuffix(".")]
    if "choices" in option:
        sentences.append(f"One of {', '.join(option['choices'])}")
    default = option.get("default")
    if not (default is None or default is False or default == []):
        sentences.append(f"Default: {default}")
    return "".join(f"{sentence}. " for sentence in sentences)


def _inherited_help() -> dict[str, str]:
    """Returns the help of all fields of the training arguments; options.json leaves out what transformers wrote."""
    from dataclasses import fields

    from .arguments import Seq2SeqTransformerTrainingArguments

    return {field.name: field.metadata.get("help", "") for field in fields(Seq2SeqTransformerTrainingArguments)}


def _boolean(word: str) -> bool:
    words = {"true": True, "t": True, "yes": True, "y": True, "1": True}
    words |= {"false": False, "f": False, "no": False, "n": False, "0": False}
    if word.lower() not in words:
        raise argparse.ArgumentTypeError(f"must be true or false, but is {word!r} instead")
    return words[word.lower()]


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError(f"invalid JSON value: {word[:80]!r}") from None


_TYPES: dict[str, Callable[[str], Any]] = {
    "bool": _boolean,
    "int": int,
    "float": float,
    "str": str,
    "dict": _json,
}


def _in_one_spelling(argument: str, options: dict[str, Any]) -> str:
    """Returns `--some_field=VALUE` for `--some-field=VALUE`, and `--some_field=false` for `--no_some_field`."""
    name = _field_of(argument)
    if argument.startswith("--") and name in options:
        return "--" + name + argument[2 + len(name) :]
    if argument.startswith("--no") and options.get(name.removeprefix("no_"), {}).get("default") is True:
        return f"--{name.removeprefix('no_')}=false"
    return argument


def _field_of(argument: str) -> str:
    return argument[2:].partition("=")[0].replace("-", "_")


def _check_known(name: str, known: Collection[str], place: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"Nearest: {', '.join(near)}." if near else "`hf-seq2seq train --help-all` lists all fields."
        raise ValueError(f"`{name}` in {place} must be a field of the training command, but is none. {hint}")


def _read_config_file(path: Path, known: Collection[str]) -> list[str]:
    """Returns the options that a YAML or JSON file stands for."""
    loaders: dict[str, Callable[[str], Any]] = {".yaml": _read_yaml, ".yml": _read_yaml, ".json": parse_json}
    if path.suffix not in loaders:
        raise ValueError(
            f"The first argument must be a .yaml, .yml or .json file or a `--field`, but is {str(path)!r} instead."
        )
    try:
        values = loaders[path.suffix](path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"`{path}` must be a file with settings, but does not exist.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"`{path}` must be valid {path.suffix[1:].upper()}, but is not: {reason}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"`{path}` must be a mapping of fields to values, but is a {type(values).__name__} instead.")
    names = [str(name).replace("-", "_") for name in values]
    for name in names:
        _check_known(name, known, f"`{path}`")
    check_once(names, f" in `{path}`")
    return to_options(values)


class _YamlLoader(yaml.SafeLoader):
    """PyYAML's loader, which takes the last of several values of one field in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping, after a check that it has no field twice."""
        check_once([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"])
        return super().construct_mapping(node, deep)


def _read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_YamlLoader)  # a safe one


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
