"""The options of `train` are those of its dataclasses, in one spelling, and its help is short or complete."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path, PurePath
from typing import Any

import pytest
from transformers import HfArgumentParser, Seq2SeqTrainingArguments

from hf_seq2seq.training.arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from hf_seq2seq.training.command_line import COMMON_OPTIONS, OPTIONS_FILE, make_parser, parse_arguments, read_options
from scripts.write_train_options import train_options


PAIRS = ["--train_source", "a.en", "--train_target", "a.de"]
CLASSES: Any = (ModelArguments, DataArguments, Seq2SeqTransformerTrainingArguments)


@pytest.fixture
def output(tmp_path: Path) -> list[str]:
    return ["--output_dir", str(tmp_path / "out")]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """A function that returns what an option such as `--help` prints."""

    def run(option: str) -> str:
        with pytest.raises(SystemExit) as ended:
            parse_arguments([*PAIRS, option])
        assert ended.value.code == 0
        return capsys.readouterr().out

    return run


def options_in(text: str) -> list[str]:
    return re.findall(r"^  --(\S+)", text, re.MULTILINE)


def test_the_file_of_options_says_what_the_dataclasses_say() -> None:
    """Run scripts/write_train_options.py where this fails."""
    assert json.loads(OPTIONS_FILE.read_text(encoding="utf-8")) == train_options()


def test_values_are_read_as_the_parser_of_transformers_reads_them() -> None:
    words = []
    for name, option in read_options().items():
        examples = {"bool": "no", "int": "3", "float": "0.5", "str": "some text"}
        if option["type"] not in examples:
            continue  # transformers cannot read it
        word = option["choices"][-1] if "choices" in option else examples[option["type"]]
        words += [f"--{name}", word, *([word] if option.get("nargs") == "+" else [])]
    ours = vars(make_parser(read_options()).parse_args(words))
    theirs = vars(HfArgumentParser(CLASSES).parse_args(words))
    assert len(ours) > 150
    for name, value in ours.items():
        expected = theirs[name]
        assert value == (str(expected) if isinstance(expected, PurePath) else expected), name
        assert isinstance(expected, type(value) | PurePath), name


def test_a_mapping_is_given_as_json(output: list[str]) -> None:
    settings = parse_arguments([*PAIRS, *output, '--liger_kernel_config={"rope": true}'])
    assert settings[2].liger_kernel_config == {"rope": True}
    with pytest.raises(ValueError, match="Argument --liger_kernel_config: invalid JSON value: 'x'"):
        parse_arguments(["--liger_kernel_config", "x"])
    with pytest.raises(ValueError, match=r"Argument --liger_kernel_config: invalid JSON value: '\[\["):
        parse_arguments(["--liger_kernel_config", "[" * 100_000])


def test_fields_of_the_config_are_explained_in_the_config_s_words() -> None:
    options = read_options()
    assert options["key_dim"]["help"].startswith("Width d_k of queries and keys in each head;")
    assert options["dropout"]["help"].endswith("(section 5.4).")
    assert options["d_model"]["default"] == 512
    assert all(option["help"] for option in options.values() if option["part"] != "training")


def test_help_lists_about_thirty_options_in_groups_each_in_one_spelling_with_its_default(
    printed: Callable[[str], str],
) -> None:
    text = printed("--help")
    assert text.startswith("usage: hf-seq2seq train [CONFIG.yaml] --output_dir DIR")
    listed = options_in(text)
    assert listed == [name for names in COMMON_OPTIONS.values() for name in names]
    assert len(set(listed)) == len(listed) == pytest.approx(30, abs=5)
    assert all(f"\n{title}:" in text for title in COMMON_OPTIONS)
    assert all(read_options()[name]["help"] for name in listed)
    assert "Default: 512." in text
    assert "--help-all" in text
    assert printed("-h") == text


def test_help_all_lists_every_option_once_with_transformers_own_words(printed: Callable[[str], str]) -> None:
    text = printed("--help-all")
    listed = options_in(text)
    assert sorted(listed) == sorted(read_options())
    (field,) = (field for field in fields(Seq2SeqTrainingArguments) if field.name == "weight_decay")
    assert field.metadata["help"].removesuffix(".") in " ".join(text.split())


def test_hyphens_and_no_are_spellings_too(output: list[str]) -> None:
    hyphens = [word.replace("_", "-") for word in PAIRS]
    settings = parse_arguments([*hyphens, *output, "--no-dataloader-pin-memory", "--no_use_cache", "--bf16=no"])
    assert settings[1].train_source == ["a.en"]
    assert settings[2].dataloader_pin_memory is False
    assert settings[2].use_cache is False
    with pytest.raises(ValueError, match="`no_bf16` in the command line must be a field"):
        parse_arguments(["--no_bf16"])
    with pytest.raises(ValueError, match="Argument --bf16: must be true or false, but is 'maybe' instead"):
        parse_arguments(["--bf16", "maybe"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.yaml", "d_modle: 8", r"`d_modle` in `.*c.yaml` must be a field .* Nearest: d_model"),
        ("c.yaml", "a: [", "`.*c.yaml` must be valid YAML, but is not: while parsing"),
        ("c.json", "{", "`.*c.json` must be valid JSON, but is not: Expecting"),
        ("c.yaml", "- d_model", "`.*c.yaml` must be a mapping of fields to values, but is a list instead"),
        ("c.txt", "", r"The first argument must be a .yaml, .yml or .json file or a `--field`, but is '.*c.txt'"),
        ("c.yaml", "seed: 1\nd_model: 8\nseed: 2", r"`.*c.yaml` .*: The field `seed` must be there once, .* 2 times"),
        ("c.json", '{"seed": 1, "seed": 2}', r"`.*c.json` .*: The field `seed` must be there once, .* 2 times"),
        ("c.yaml", "d-model: 1\nd_model: 8", r"The field `d_model` in `.*c.yaml` must be there once"),
        ("c.yaml", "seed: " + "[" * 5000, "`.*c.yaml` must be valid YAML, but is not: it is nested too deeply"),
        ("c.json", "[" * 100_000, "`.*c.json` must be valid JSON, but is not: it is nested too deeply"),
        ("c.yaml", None, "`.*c.yaml` must be a file with settings, but does not exist"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file(
    name: str, text: str | None, message: str, tmp_path: Path, output: list[str]
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises((ValueError, OSError), match=message):
        parse_arguments([str(path), *PAIRS, *output])
