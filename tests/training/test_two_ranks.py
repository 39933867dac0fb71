"""Two processes over gloo, started by torchrun, train and evaluate as one does."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_runs import Settings, command_line, tiny_settings
from safetensors.torch import load_file
from training.two_ranks import evaluate, losses_and_weights, step

from hf_seq2seq.training.command_line import parse_arguments
from hf_seq2seq.training.run import run_training


pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank of one launch did."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {"PYTHONPATH": str(HERE.parent), "PATH": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([*TORCHRUN, str(HERE / "two_ranks.py"), str(folder)], check=True, timeout=250, env=environment)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def test_they_share_the_pairs_of_each_epoch_and_of_a_resumed_one(ranks: list[dict[str, Any]]) -> None:
    everything = [[source, target] for source in range(1, 11) for target in range(1, 11)]
    num_updates = len(ranks[0]["straight"])
    assert num_updates == len(ranks[1]["straight"])
    for epoch in (slice(0, num_updates // 2), slice(num_updates // 2, num_updates)):
        seen = [pair for rank in ranks for batch in rank["straight"][epoch] for pair in batch]
        assert sorted(seen) == everything
    for rank in ranks:
        assert rank["first"] + rank["second"] == rank["straight"]


@pytest.mark.parametrize(("batch_size", "accumulated"), [(8, 1), (4, 2), (1, 8)])
def test_losses_and_weights_are_those_of_one_process_with_the_same_global_batch(
    ranks: list[dict[str, Any]], batch_size: int, accumulated: int, tmp_path: Path
) -> None:
    """With unequal lengths, so that the ranks have unequal numbers of target tokens; the third update is a short one.

    https://github.com/huggingface/transformers/issues/46731
    """
    alone = losses_and_weights(tmp_path, batch_size, accumulated)
    assert len(alone["losses"]) == 6
    for rank in ranks:
        for name in ("losses", "grad_norms"):
            assert rank["training"][name] == pytest.approx(alone[name], abs=2e-5)
        assert rank["training"]["weights"] == pytest.approx(alone["weights"], abs=1e-4)


@pytest.mark.parametrize("number", [1, 5, 8])
def test_evaluation_has_each_hypothesis_once_in_order_and_the_same_scores(
    ranks: list[dict[str, Any]], number: int, tmp_path: Path
) -> None:
    """https://github.com/huggingface/accelerate/issues/125, https://github.com/huggingface/accelerate/issues/952."""
    alone = evaluate(tmp_path, number)
    assert len(alone["hypotheses"]) == number
    for rank in ranks:
        assert rank["evaluation"][str(number)]["hypotheses"] == alone["hypotheses"]
        assert rank["evaluation"][str(number)]["metrics"] == pytest.approx(alone["metrics"], abs=1e-5)


def test_a_sharded_model_takes_the_same_step_and_generates_the_same(ranks: list[dict[str, Any]]) -> None:
    alone = step(sharded=False)
    for rank in ranks:
        sharded = rank["sharded"]
        assert sharded["loss"] == pytest.approx(alone["loss"], abs=1e-6)
        assert sharded["generated"] == alone["generated"]
        assert sharded["weights"].keys() == alone["weights"].keys()
        for name, weight in alone["weights"].items():
            assert sharded["weights"][name] == pytest.approx(weight, abs=1e-5), name


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return {
        **tiny_settings(tmp_path_factory.mktemp("pairs")),
        "tokens_per_batch": 130,
        "max_steps": 9,
        "eval_steps": 3,
        "predict_with_generate": True,
        "generation_num_beams": 1,
    }


def launch(settings: Settings, output_dir: Path, point: str = "") -> int:
    arguments = command_line(settings | {"output_dir": output_dir})
    command = [*TORCHRUN, str(HERE / "killed_run.py"), point, *arguments]
    return subprocess.run(command, timeout=250, capture_output=True).returncode


def run_alone(settings: Settings, output_dir: Path) -> dict[str, torch.Tensor]:
    run_training(*parse_arguments(command_line(settings | {"output_dir": output_dir})))
    return load_file(output_dir / "model.safetensors")


def test_a_killed_run_ends_with_the_same_weights_and_another_number_of_ranks_can_take_it_over(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    straight, killed, alone = tmp_path / "straight", tmp_path / "killed", tmp_path / "alone"
    assert launch(settings, straight) == 0
    assert launch(settings, killed, "in the third epoch") != 0
    assert sorted(path.name for path in killed.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    shutil.copytree(killed, alone)

    assert launch(settings, killed) == 0
    expected = load_file(straight / "model.safetensors")
    resumed = load_file(killed / "model.safetensors")
    assert all(torch.equal(resumed[name], weight) for name, weight in expected.items())

    caplog.set_level(logging.WARNING, "hf_seq2seq")
    weights = run_alone(settings, alone)
    assert "was begun with 2 process(es) and goes on with 1" in caplog.text
    assert (alone / "checkpoint-9").exists()
    assert all(weight.isfinite().all() for weight in weights.values())


def test_a_run_of_one_process_goes_on_in_two(settings: Settings, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "killed_run.py"), "in the third epoch"]
    arguments = command_line(settings | {"output_dir": tmp_path / "out"})
    assert subprocess.run([*command, *arguments], timeout=120, capture_output=True).returncode != 0
    assert (tmp_path / "out" / "checkpoint-6").exists()
    assert launch(settings, tmp_path / "out") == 0
    results = json.loads((tmp_path / "out" / "training_results.json").read_text())
    assert results["num_steps"] == 9
    assert results["num_scored_pairs"] == 12
