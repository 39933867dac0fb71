"""Whole checkpoints are told from others, and what cannot be written is said."""

import json
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import tiny_model
from reference.tiny_runs import command_line, tiny_settings
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hf_seq2seq.atomic_writing import writing
from hf_seq2seq.training import checkpoints
from hf_seq2seq.training.checkpoints import (
    find_fault,
    is_complete,
    last_checkpoints,
    last_whole_checkpoint,
    list_checkpoints,
    named_checkpoint,
)
from hf_seq2seq.training.command_line import parse_arguments
from hf_seq2seq.training.run import run_training


def write_checkpoint(folder: Path, *, only_model: bool = False) -> Path:
    """Writes the files of a trainer's checkpoint."""
    tiny_model().save_pretrained(folder)
    (folder / "trainer_state.json").write_text("{}")
    if not only_model:
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            torch.save({"state": torch.ones(100)}, folder / name)
    return folder


def test_checkpoints_are_listed_by_number(tmp_path: Path) -> None:
    for name in ("checkpoint-10", "checkpoint-9", "checkpoint-x", "other", "checkpoint-100"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-5").write_text("a file")
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-9", "checkpoint-10", "checkpoint-100"]
    assert list_checkpoints(tmp_path / "none") == []


def test_a_checkpoint_of_weights_alone_is_whole(tmp_path: Path) -> None:
    assert is_complete(write_checkpoint(tmp_path / "all"))
    assert is_complete(write_checkpoint(tmp_path / "weights", only_model=True))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find_fault(folder) == "model.safetensors.index.json: model-00001-of-00002.safetensors is missing"


@pytest.mark.parametrize("index", [None, [], {}, {"weight_map": None}, {"weight_map": {"a": 1}}], ids=str)
def test_a_table_of_shards_of_another_form_is_a_fault(index: Any, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    fault = find_fault(folder)
    assert fault is not None
    assert fault.startswith("model.safetensors.index.json: ")


def test_without_a_whole_checkpoint_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-3").mkdir()
    assert last_whole_checkpoint(tmp_path) is None
    assert find_fault(tmp_path / "checkpoint-3") == "it has no trainer_state.json"


def test_a_checkpoint_of_weights_that_are_no_numbers_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, bad = write_checkpoint(tmp_path / "checkpoint-1"), write_checkpoint(tmp_path / "checkpoint-2")
    weights = load_file(bad / "model.safetensors")
    weights["model.decoder.layers.0.fc1.bias"][3] = torch.nan
    save_file(weights, bad / "model.safetensors")
    assert last_whole_checkpoint(tmp_path) == whole
    fault = "model.safetensors: model.decoder.layers.0.fc1.bias holds values that are no finite numbers"
    assert caplog.messages == [f"{bad} is left out: it is not whole ({fault})."]
    assert last_checkpoints(tmp_path, 1) == [whole]
    with pytest.raises(ValueError, match=r"`resume_from_checkpoint` must be .* that are no finite numbers"):
        named_checkpoint(str(bad))


class Touch:
    """A pickle of this runs code."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_checkpoint_that_would_run_code_is_left_out_and_the_code_is_not_run(kind: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint-1")
    content = {"state": Touch(tmp_path / "touched")}
    if kind == "torch":
        torch.save(content, folder / "optimizer.pt")
    else:
        (folder / "optimizer.pt").write_bytes(pickle.dumps(content))
    assert last_whole_checkpoint(tmp_path) is None
    found = {
        "torch": "it would run code, posix.mkdir",
        "pickle": "Expected input to be a checkpoint returned by torch",
    }
    assert str(find_fault(folder)).startswith(f"optimizer.pt: {found[kind]}")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("content", ["5", '{"what": 1}', "[" * 100_000, "{"])
def test_a_state_that_no_trainer_wrote_is_a_fault(content: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    (folder / "trainer_state.json").write_text(content)
    assert str(find_fault(folder)).startswith("trainer_state.json: ")


def make_run(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / f"checkpoint-{number}").mkdir(parents=True)


def test_the_last_checkpoints_are_the_newest_whole_ones_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path, 900, 1000, 1100, 80, 10_000)
    for name in ("checkpoint-last", "checkpoint-2000-old", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-3000").write_text("a file")
    monkeypatch.setattr(checkpoints, "is_complete", lambda folder: folder.name != "checkpoint-1100")
    assert last_checkpoints(tmp_path, 3) == [tmp_path / f"checkpoint-{number}" for number in (900, 1000, 10_000)]
    assert f"{tmp_path / 'checkpoint-1100'} is left out: it is not whole." in caplog.messages


def test_a_checkpoint_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    whole, cut = write_checkpoint(tmp_path / "checkpoint-2"), write_checkpoint(tmp_path / "checkpoint-10")
    assert last_checkpoints(tmp_path, 1) == [cut]
    (cut / "trainer_state.json").unlink()
    assert last_checkpoints(tmp_path, 1) == [whole]


def test_too_few_checkpoints_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, 1, 2, 3)
    monkeypatch.setattr(checkpoints, "is_complete", lambda folder: folder.name != "checkpoint-3")
    with pytest.raises(ValueError, match=r"at least 5 whole checkpoints, but holds 2 .* `save_total_limit`.* least 5"):
        last_checkpoints(tmp_path, 5)


def test_less_than_one_checkpoint_and_no_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`number` of checkpoints must be at least 1, but is 0 instead"):
        last_checkpoints(tmp_path, 0)
    with pytest.raises(FileNotFoundError, match="`no run` must be the folder of a run, but there is none"):
        last_checkpoints("no run", 1)


def fail(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left"),
        SafetensorError("I/O error: No space left on device"),
        RuntimeError("PytorchStreamWriter failed writing file"),
    ],
    ids=["Python", "safetensors", "torch"],
)
def test_what_cannot_be_written_is_named_and_what_was_written_is_removed(error: Exception, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    with (
        pytest.raises(OSError, match=r"`.*checkpoint-1` must be written whole, but could not be \(.*Make room"),
        writing(tmp_path / "checkpoint-1", remove_on_failure=True),
    ):
        fail(error)
    assert not (tmp_path / "checkpoint-1").exists()


@pytest.mark.parametrize("error", [RuntimeError("something else"), ConnectionError("something else")])
def test_other_errors_pass_through(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error), match=r"^something else$"), writing(tmp_path, remove_on_failure=True):
        fail(error)
    assert tmp_path.exists()


def test_a_full_disk_leaves_the_earlier_checkpoint_from_which_the_run_goes_on(tmp_path: Path) -> None:
    settings = {**tiny_settings(tmp_path), "output_dir": tmp_path / "out", "eval_strategy": "no"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def run(room: int, max_steps: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))  # the largest file, in bytes
        try:
            run_training(*parse_arguments(command_line(settings | {"max_steps": max_steps})))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with pytest.MonkeyPatch.context() as patch:
        from hf_seq2seq.training.trainer import Seq2SeqTransformerTrainer

        original: Any = Seq2SeqTransformerTrainer._save_checkpoint

        def save_the_second_with_little_room(self: Any, *args: Any) -> None:
            if self.state.global_step == 6:
                resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
            original(self, *args)

        patch.setattr(Seq2SeqTransformerTrainer, "_save_checkpoint", save_the_second_with_little_room)
        with pytest.raises(OSError, match=r"`.*checkpoint-6` must be written whole"):
            run(limits[0], max_steps=9)
    assert [path.name for path in list_checkpoints(tmp_path / "out")] == ["checkpoint-3"]
    assert is_complete(tmp_path / "out" / "checkpoint-3")
    run(limits[0], max_steps=9)
    assert (tmp_path / "out" / "training_results.json").exists()
