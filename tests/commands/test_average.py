"""The verb `average`: which checkpoints are averaged, and what is said of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference.tiny_models import tiny_model
from safetensors.numpy import load_file
from transformers import PreTrainedTokenizerFast


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_dir(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """Six checkpoints."""
    for number in range(8, 14):
        folder = tmp_path / "run" / f"checkpoint-{number}"
        model = tiny_model(number, vocab_size=len(letter_tokenizer), encoder_layers=1, decoder_layers=1)
        model.save_pretrained(folder)
        letter_tokenizer.save_pretrained(folder)
        (folder / "trainer_state.json").write_text("{}")
    return tmp_path / "run"


def weight(folder: Path) -> npt.NDArray[Any]:
    return load_file(folder / "model.safetensors")["model.encoder.layers.0.fc1.weight"]


@pytest.mark.parametrize(
    ("options", "numbers"), [([], range(9, 14)), (["--last", 2], (12, 13)), (["--last", 6], range(8, 14))]
)
def test_the_last_checkpoints_of_a_run_are_averaged(
    options: list[object], numbers: range, run_dir: Path, command: Command, tmp_path: Path
) -> None:
    status, out, _ = command("average", run_dir, "--output", tmp_path / "average", *options)
    assert status == 0
    checkpoints = [run_dir / f"checkpoint-{number}" for number in numbers]
    np.testing.assert_allclose(weight(tmp_path / "average"), np.mean([*map(weight, checkpoints)], axis=0), atol=1e-6)
    files = "--source validation-source.txt --reference validation-target.txt"
    assert out.splitlines() == [
        f"{tmp_path / 'average'}: the average of",
        *(f"  {checkpoint}" for checkpoint in checkpoints),
        "Whether it is better than the last of them is told by scoring both:",
        f"  hf-seq2seq evaluate {tmp_path / 'average'} {files}",
        f"  hf-seq2seq evaluate {run_dir / 'checkpoint-13'} {files}",
    ]


def test_checkpoints_that_are_named_are_averaged(run_dir: Path, command: Command, tmp_path: Path) -> None:
    named = [run_dir / "checkpoint-8", run_dir / "checkpoint-11"]
    status, out, _ = command("average", *named, "--output", tmp_path / "average")
    assert status == 0
    np.testing.assert_allclose(weight(tmp_path / "average"), np.mean([*map(weight, named)], axis=0), atol=1e-6)
    assert out.splitlines()[1:3] == [f"  {folder}" for folder in named]


def test_a_number_beside_several_folders_is_an_error(run_dir: Path, command: Command, tmp_path: Path) -> None:
    named = [run_dir / "checkpoint-8", run_dir / "checkpoint-11"]
    status, _, err = command("average", *named, "--output", tmp_path / "average", "--last", 2)
    assert status == 1
    assert "Error: `--last` must be given with one folder, that of a run, but 2 are named. Leave it out" in err


def test_too_few_checkpoints_are_one_line(run_dir: Path, command: Command, tmp_path: Path) -> None:
    status, out, err = command("average", run_dir, "--output", tmp_path / "average", "--last", 7)
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: `{run_dir}` must hold at least 7 whole checkpoints, but holds 6 instead.")
    assert err.count("\n") == 1


def test_without_a_folder_or_an_output_the_usage_is_told(run_dir: Path, command: Command) -> None:
    status, _, err = command("average", run_dir)
    assert status == 2
    assert "--output" in err
    status, _, err = command("average", "--output", "average")
    assert status == 2
    assert "RUN_OR_CHECKPOINTS" in err
