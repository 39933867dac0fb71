"""Odd values in the two configs of a model are one line each, and soon, before anything large is built."""

import json
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from reference.tiny_models import tiny_model
from transformers import GenerationConfig

from hf_seq2seq import Seq2SeqTransformerConfig, Translator
from hf_seq2seq.tokenization import train_tokenizer


Command = Callable[..., tuple[int, str, str]]

SECONDS, MEBIBYTES = 2, 200
# All names that mean something to either class: a file could put a value in the place of a method.
FIELDS = {
    "config.json": sorted({*vars(Seq2SeqTransformerConfig()), *dir(Seq2SeqTransformerConfig)}),
    "generation_config.json": sorted({*vars(GenerationConfig()), *dir(GenerationConfig)}),
}
NUMBERS = [
    -1,
    0,
    1,
    2,
    4,
    5,
    49,
    50,
    10**6,
    10**9,
    10**12,
    10**18,
    10**30,
    0.0,
    0.5,
    1e300,
    float("nan"),
    float("inf"),
]
OTHERS = [True, False, None, "", "x", "4", "float7", "load", "bfloat16", [], {}, [2], [99999], [[7]], [-1], {"a": 1}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
VALUES = st.sampled_from(NUMBERS) | st.sampled_from(OTHERS) | JSON
CHANGES = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda file: st.tuples(
        st.just(file), st.dictionaries(st.sampled_from(FIELDS[file]), VALUES, min_size=1, max_size=2)
    )
)
# What each verb is called with: the model's folder, a file of lines, and a name that is free.
VERBS: dict[str, Callable[[Path, Path, Path], tuple[object, ...]]] = {
    "translate": lambda model, lines, free: ("translate", model, "--input", lines, "--scores", "--format", "jsonl"),
    "evaluate": lambda model, lines, free: ("evaluate", model, "--source", lines, "--reference", lines, "--json"),
    "average": lambda model, lines, free: ("average", lines.parent / "whole", model, "--output", free),
    "export": lambda model, lines, free: ("export", "ctranslate2", model, free),
    "push": lambda model, lines, free: ("push", model, "owner/name", "--dry-run"),
    "inspect": lambda model, lines, free: ("inspect", model, "beams", "--text", "ab"),
    "train": lambda model, lines, free: (
        *("train", "--model_name_or_path", model, "--train_source", lines, "--train_target", lines, "--use_cpu"),
        *("--output_dir", free, "--max_steps", "1", "--max_length", "20", "--dry_run"),
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model with its tokenizer, once used, so that all is imported."""
    folder = tmp_path_factory.mktemp("odd") / "whole"
    tiny_model().save_pretrained(folder)
    train_tokenizer(iter(["a b c"]), vocab_size=50, kind="char").save_pretrained(folder)
    use(folder)
    return folder


def use(folder: Path) -> None:
    """Loads a model and translates."""
    Translator.from_pretrained(folder, device="cpu").hypotheses(["ab"], scores=True)


@pytest.fixture(scope="module")
def lines(folder: Path) -> Path:
    lines = folder.parent / "lines"
    lines.write_text("ab\nc a\n")
    return lines


@pytest.fixture
def used(command: Command, folder: Path, lines: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Lets a verb import what it needs, with a model that is whole."""
    verb = request.getfixturevalue("verb")
    whole = changed(folder, tmp_path / "model", "config.json", {})
    assert command(*VERBS[verb](whole, lines, tmp_path / "used"))[0] == 0


def check_verb(command: Command, verb: str, model: Path, lines: Path) -> None:
    """Runs a verb, which has to succeed, or to say in one line what is wrong."""
    free = model.parent / "free"
    with soon_and_small():
        status, out, err = command(*VERBS[verb](model, lines, free))
    errors = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert (status, len(errors)) in ((0, 0), (1, 1)), err
    if status == 0 and verb == "translate":
        for line in out.splitlines():
            json.loads(line, parse_constant=pytest.fail)


def changed(folder: Path, copy: Path, file: str, change: dict[str, Any]) -> Path:
    """Returns a copy of a model with some fields of a file changed."""
    shutil.copytree(folder, copy)
    (copy / file).write_text(json.dumps(json.loads((copy / file).read_text()) | change))
    return copy


@contextmanager
def soon_and_small() -> Iterator[None]:
    """Asserts that a block takes little time of the processors, and little memory beyond the most so far."""
    seconds, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - seconds < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < MEBIBYTES * 1024


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"encoder_layers": 10**6}),
        ("config.json", {"encoder_ffn_dim": 10**18}),
        ("config.json", {"max_position_embeddings": 10**12, "position_embedding_type": "learned"}),
        ("config.json", {"dtype": "float7"}),
        ("config.json", {"is_encoder_decoder": False}),
        ("generation_config.json", {"__class__": -1}),
        ("generation_config.json", {"num_beams": "4"}),
        ("generation_config.json", {"num_beams": 100000}),
        ("generation_config.json", {"length_penalty": "x"}),
        ("generation_config.json", {"length_penalty": float("nan")}),
    ],
)
def test_an_odd_value_is_one_line(folder: Path, tmp_path: Path, file: str, change: dict[str, Any]) -> None:
    odd = changed(folder, tmp_path / "model", file, change)
    with soon_and_small(), pytest.raises(ValueError, match="must") as found:
        use(odd)
    assert len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["5", "null", "[]", '"x"', "{", "[" * 100_000, '{"a":' * 100_000, ""])
def test_a_file_that_holds_no_object_is_one_line(folder: Path, file: str, text: str, tmp_path: Path) -> None:
    odd = tmp_path / "model"
    shutil.copytree(folder, odd)
    (odd / file).write_text(text)
    with pytest.raises(ValueError, match=rf"`.*{file}` must be .*") as found:
        use(odd)
    assert len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize("change", [{"return_dict": False}, {"output_attentions": True}, {"num_labels": 10**9}])
def test_a_value_that_says_nothing_of_the_model_changes_nothing(
    folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    found, expected = (
        Translator.from_pretrained(place, device="cpu").hypotheses(["ab"], scores=True)[0][0]
        for place in (changed(folder, tmp_path / "model", "config.json", change), folder)
    )
    assert (found.text, found.token_log_probs) == (expected.text, expected.token_log_probs)


def check_change(command: Command, folder: Path, lines: Path, verb: str, change: tuple[str, dict[str, Any]]) -> None:
    with TemporaryDirectory(dir=folder.parent) as temporary:
        check_verb(command, verb, changed(folder, Path(temporary) / "model", *change), lines)


options: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "phases": [Phase.explicit, Phase.generate],  # a shorter example would say no more
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=5, derandomize=True, **options)
@given(change=CHANGES)
def test_any_value_in_any_field_is_followed_or_refused_by_every_verb(
    command: Command, folder: Path, lines: Path, used: None, verb: str, change: tuple[str, dict[str, Any]]
) -> None:
    check_change(command, folder, lines, verb, change)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=40, derandomize=True, **options)
@given(change=CHANGES)
def test_any_value_in_any_field_is_followed_or_refused_by_every_verb_at_length(
    command: Command, folder: Path, lines: Path, used: None, verb: str, change: tuple[str, dict[str, Any]]
) -> None:
    check_change(command, folder, lines, verb, change)
