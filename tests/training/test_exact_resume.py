"""A run that is killed and started again ends with the weights, bit for bit, of one that never stopped.

https://github.com/huggingface/transformers/issues/40691, https://github.com/huggingface/transformers/pull/46628
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_runs import Settings, command_line, tiny_settings
from safetensors.torch import load_file
from training.killed_run import POINTS

from hf_seq2seq.training.command_line import parse_arguments, to_options
from hf_seq2seq.training.run import run_training


pytestmark = pytest.mark.filterwarnings("default:::hf_seq2seq")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Three epochs of small batches, with dropout, accumulation, and evaluation by generation in between."""
    return {
        **tiny_settings(tmp_path_factory.mktemp("pairs")),
        "tokens_per_batch": 200,
        "max_steps": 9,
        "gradient_accumulation_steps": 2,
        "eval_steps": 3,
        "predict_with_generate": True,
        "generation_num_beams": 1,
    }


def run(settings: Settings, output_dir: Path, **overrides: Any) -> dict[str, torch.Tensor]:
    """Runs to the end in this process and returns the final weights."""
    arguments = command_line(settings | overrides | {"output_dir": output_dir})
    run_training(*parse_arguments(arguments))
    return load_file(output_dir / "model.safetensors")


@pytest.fixture(scope="module")
def straight(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return run(settings, tmp_path_factory.mktemp("straight") / "out")


def assert_same(weights: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name


def start(settings: Settings, output_dir: Path, point: str = "", **overrides: Any) -> "subprocess.Popen[str]":
    script = str(Path(__file__).with_name("killed_run.py"))
    arguments = command_line(settings | overrides | {"output_dir": output_dir})
    return subprocess.Popen(
        [sys.executable, script, point, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_at_a_point_ends_with_the_same_weights(
    point: str, settings: Settings, straight: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    process = start(settings, tmp_path / "out", point)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert_same(run(settings, tmp_path / "out"), straight)


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_with_the_same_weights(
    settings: Settings, straight: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for kill in range(3):
        process = start(settings, out, save_steps=1)
        seen = set(out.glob("checkpoint-*"))
        while set(out.glob("checkpoint-*")) == seen and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.03 * kill)
        process.kill()
        process.wait(60)
    assert_same(run(settings, out, save_steps=1), straight)


def test_evaluation_in_between_changes_nothing(
    settings: Settings, straight: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    without = run(settings, tmp_path / "out", eval_strategy="no", predict_with_generate=None, eval_steps=None)
    assert_same(without, straight)


def test_a_run_of_random_batches_goes_on_with_the_same_ones(settings: Settings, tmp_path: Path) -> None:
    by_pairs = settings | {"tokens_per_batch": None, "per_device_train_batch_size": 7}
    straight = run(by_pairs, tmp_path / "straight")
    for last in (2, 6):  # updates: in the first epoch and in the second
        out = tmp_path / f"stopped-{last}"
        stop_after(last, by_pairs, out)
        assert_same(run(by_pairs, out), straight)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"corpus_weights": [1, 2]}, {"dataloader_num_workers": 2}], ids=str)
def test_a_streamed_run_goes_on_with_the_batches_that_would_have_come(
    options: Settings, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By weight, and with two workers that read a corpus each."""
    streamed = settings | options | {"streaming": True}
    for side in ("source", "target"):
        lines = Path(settings[f"train_{side}"]).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / f"more.{side}").write_text("".join(lines[:7]), encoding="utf-8")
        streamed[f"train_{side}"] = [settings[f"train_{side}"], tmp_path / f"more.{side}"]
    monkeypatch.setitem(globals(), "command_line", to_options)  # which takes lists
    straight = run(streamed, tmp_path / "straight")
    stop_after(4, streamed, tmp_path / "out")
    assert (tmp_path / "out/checkpoint-4/stream_position_0.json").exists()
    assert_same(run(streamed, tmp_path / "out"), straight)


@pytest.mark.slow
def test_a_streamed_run_that_is_killed_ends_with_the_same_weights(settings: Settings, tmp_path: Path) -> None:
    streamed = settings | {"streaming": True}
    process = start(streamed, tmp_path / "out", "in the third epoch")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert_same(run(streamed, tmp_path / "out"), run(streamed, tmp_path / "straight"))


def stop_after(update: int, settings: Settings, output_dir: Path) -> None:
    """Runs and stops as Ctrl-C does, after an update."""
    from hf_seq2seq.training.interruption import StopOnSignal

    class StopAfter(StopOnSignal):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == update:
                os.kill(os.getpid(), signal.SIGINT)
            super().on_step_end(args, state, control, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_seq2seq.training.interruption.StopOnSignal", StopAfter)
        with pytest.raises(KeyboardInterrupt, match=rf"Stopped after update {update} of 9. The same.*-{update}\.$"):
            run(settings, output_dir)


def test_ctrl_c_saves_a_checkpoint_from_which_the_run_goes_on(
    settings: Settings, straight: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    stop_after(4, settings, tmp_path / "out")
    assert (tmp_path / "out" / "checkpoint-4").exists()
    assert signal.getsignal(signal.SIGINT) is handler
    assert_same(run(settings, tmp_path / "out"), straight)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_a_checkpoint(
    number: signal.Signals, settings: Settings, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    endless: dict[str, Any] = {"max_steps": 100_000, "save_steps": 50_000, "eval_strategy": "no", "eval_steps": None}
    process = start(settings, out, **endless, logging_steps=1)
    assert process.stdout is not None
    while "'loss'" not in process.stdout.readline():  # until it trains
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"{number.name}: a checkpoint will be saved" in errors
    assert re.search(r"The same command goes on from .*checkpoint-\d+\.", errors)
    assert len(list(out.glob("checkpoint-*"))) == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut short": lambda folder: truncate(folder / "model.safetensors"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "optimizer cut short": lambda folder: truncate(folder / "optimizer.pt"),
    "no optimizer": lambda folder: (folder / "optimizer.pt").unlink(),
    "random numbers cut short": lambda folder: truncate(folder / "rng_state.pth"),
    "no random numbers": lambda folder: (folder / "rng_state.pth").unlink(),
    "schedule empty": lambda folder: (folder / "scheduler.pt").write_bytes(b""),
    "trainer's state cut short": lambda folder: truncate(folder / "trainer_state.json"),
    "no trainer's state": lambda folder: (folder / "trainer_state.json").unlink(),
    "tokenizer cut short": lambda folder: truncate(folder / "tokenizer.json"),
}


@pytest.fixture(scope="module")
def stopped(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its seventh update."""
    output_dir = tmp_path_factory.mktemp("stopped") / "out"
    stop_after(7, settings, output_dir)
    return output_dir


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_left_out_with_a_warning_and_the_one_before_used(
    damage: str,
    settings: Settings,
    straight: dict[str, torch.Tensor],
    stopped: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(stopped, tmp_path / "out")
    DAMAGES[damage](tmp_path / "out" / "checkpoint-7")
    caplog.set_level("INFO", "hf_seq2seq")
    weights = run(settings, tmp_path / "out")
    assert f"{tmp_path / 'out' / 'checkpoint-7'} is left out: it is not whole" in caplog.text
    assert f"Going on from {tmp_path / 'out' / 'checkpoint-6'}" in caplog.text
    assert_same(weights, straight)


def test_a_checkpoint_saved_at_a_signal_is_in_no_average(settings: Settings, tmp_path: Path) -> None:
    averaged = settings | {"average_checkpoints": 3, "save_total_limit": 1}
    straight = run(averaged, tmp_path / "straight")
    stop_after(5, averaged, tmp_path / "out")
    stop_after(8, averaged, tmp_path / "out")
    assert_same(run(averaged, tmp_path / "out"), straight)
    kept = sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*"))
    assert kept == ["checkpoint-3", "checkpoint-6", "checkpoint-8", "checkpoint-9"]


def test_a_dry_run_deletes_no_checkpoint(settings: Settings, tmp_path: Path) -> None:
    stop_after(5, settings, tmp_path / "out")
    shutil.copytree(tmp_path / "out" / "checkpoint-5", tmp_path / "out" / "checkpoint-4")
    before = sorted(tmp_path.rglob("*"))
    run_training(*parse_arguments(command_line(settings | {"output_dir": tmp_path / "out", "dry_run": True})))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("strategy", ["epoch", "best"])
def test_a_signal_within_an_epoch_changes_nothing_of_what_is_due_at_its_end(
    strategy: str, settings: Settings, tmp_path: Path
) -> None:
    by_epoch = settings | {"save_strategy": strategy, "eval_strategy": "epoch", "eval_steps": None, "save_steps": None}
    by_epoch |= {"metric_for_best_model": "loss"} if strategy == "best" else {}
    straight = run(by_epoch, tmp_path / "straight")
    stop_after(5, by_epoch, tmp_path / "out")
    assert_same(run(by_epoch, tmp_path / "out"), straight)
