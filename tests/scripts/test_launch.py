"""What scripts/launch/ holds can be copied and run: accelerate knows every key, and the scripts pass options on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.model import modeling_seq2seq_transformer


LAUNCH = Path(__file__).parents[2] / "scripts" / "launch"
CONFIGS = sorted(LAUNCH.glob("*.yaml"))
SCRIPTS = sorted(LAUNCH.glob("*.sh"))
DDP, ZERO2, ZERO3, FSDP2 = (LAUNCH / f"{name}.yaml" for name in ("ddp", "deepspeed_zero2", "deepspeed_zero3", "fsdp2"))
every_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
every_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
OPTIONS = ["--output_dir", "a folder", "--max_steps=3"]


def stub(folder: Path, name: str, text: str) -> None:
    """A command that stands for the one of its name where the folder comes first in PATH."""
    (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
    (folder / name).chmod(0o755)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PROCESSES", "NODES", "MAIN_PORT")}
    return inherited | {"PATH": f"{folder}:{os.environ['PATH']}"} | variables


def test_each_way_to_launch_has_its_file() -> None:
    assert [path.name for path in CONFIGS] == [
        "ddp.yaml",
        "deepspeed_zero2.yaml",
        "deepspeed_zero3.yaml",
        "fsdp2.yaml",
    ]
    assert [path.name for path in SCRIPTS] == ["slurm.sh", "torchrun_single_node.sh", "torchrun_two_nodes.sh"]


# Configurations of accelerate


@every_config
def test_accelerate_knows_every_key(path: Path) -> None:
    config = load_config_from_file(str(path))  # raises where one of the outer keys is unknown
    options = vars(launch_command_parser().parse_args(["script"]))
    inner = {**config.fsdp_config, **config.deepspeed_config}
    assert [key for key in inner if key not in options] == []


@every_config
def test_mixed_precision_is_left_to_the_options_of_train(path: Path) -> None:
    assert load_config_from_file(str(path)).mixed_precision == "no"


def test_each_configuration_is_of_its_kind() -> None:
    kinds = [load_config_from_file(str(path)).distributed_type.value for path in (DDP, FSDP2, ZERO2, ZERO3)]
    assert kinds == ["MULTI_GPU", "FSDP", "DEEPSPEED", "DEEPSPEED"]
    assert load_config_from_file(str(FSDP2)).fsdp_config["fsdp_version"] == 2
    stages = [load_config_from_file(str(path)).deepspeed_config["zero_stage"] for path in (ZERO2, ZERO3)]
    assert stages == [2, 3]


def test_the_layers_that_are_sharded_are_the_models_layers() -> None:
    names = load_config_from_file(str(FSDP2)).fsdp_config["fsdp_transformer_layer_cls_to_wrap"].split(",")
    assert all(hasattr(modeling_seq2seq_transformer, name) for name in names)
    assert names == Seq2SeqTransformerForConditionalGeneration._no_split_modules


def test_whole_weights_are_saved_where_they_are_sharded() -> None:
    assert load_config_from_file(str(FSDP2)).fsdp_config["fsdp_state_dict_type"] == "FULL_STATE_DICT"
    assert load_config_from_file(str(ZERO3)).deepspeed_config["zero3_save_16bit_model"] is True


# Shell scripts


@every_script
def test_a_script_is_executable_bash(path: Path) -> None:
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)


def test_torchrun_on_one_machine_gets_all_options(tmp_path: Path) -> None:
    stub(tmp_path, "torchrun", "printf '%s\\n' \"$@\"")
    command = [str(LAUNCH / "torchrun_single_node.sh"), *OPTIONS]
    for variables, processes in (({}, "gpu"), ({"PROCESSES": "2"}, "2")):
        lines = subprocess.check_output(command, text=True, env=environment(tmp_path, **variables)).splitlines()
        assert lines == ["--standalone", "--nproc-per-node", processes, "-m", "hf_seq2seq", "train", *OPTIONS]


def test_torchrun_on_one_machine_starts_the_command(tmp_path: Path) -> None:
    stub(tmp_path, "torchrun", f'while [ "$1" != -m ]; do shift; done; exec "{sys.executable}" "$@"')
    command = [str(LAUNCH / "torchrun_single_node.sh"), "--help"]
    output = subprocess.check_output(command, text=True, env=environment(tmp_path))
    assert "hf-seq2seq train" in output
    assert "--train_source" in output


def test_torchrun_on_two_machines_meets_at_the_main_one(tmp_path: Path) -> None:
    stub(tmp_path, "torchrun", "printf '%s\\n' \"$@\"")
    command = [str(LAUNCH / "torchrun_two_nodes.sh"), *OPTIONS]
    lines = subprocess.check_output(command, text=True, env=environment(tmp_path, MAIN_HOST="node1")).splitlines()
    assert lines[:4] == ["--nnodes", "2", "--nproc-per-node", "gpu"]
    assert lines[lines.index("--rdzv-endpoint") + 1] == "node1:29500"
    assert lines[-len(OPTIONS) - 3 :] == ["-m", "hf_seq2seq", "train", *OPTIONS]


def test_torchrun_on_two_machines_needs_the_main_ones_name(tmp_path: Path) -> None:
    result = subprocess.run(
        [LAUNCH / "torchrun_two_nodes.sh"], env=environment(tmp_path, MAIN_HOST=""), capture_output=True, text=True
    )
    assert result.returncode != 0
    assert "MAIN_HOST: must be the name of one of the machines" in result.stderr


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment whose Slurm commands are stubs: a step runs until SIGTERM, or ends with $STEP_STATUS."""
    stub(
        tmp_path,
        "scontrol",
        f'[ "$1" = show ] && printf "node%s\\n" 7 8 || printf "%s " "$@" >> "{tmp_path / "controlled"}"',
    )
    stub(
        tmp_path,
        "srun",
        f'printf "%s\\n" "$@" > "{tmp_path / "arguments"}"\n'
        f'printf "$SRUN_CPUS_PER_TASK" > "{tmp_path / "cpus"}"\n'
        '[ -z "$STEP_STATUS" ] || exit "$STEP_STATUS"\n'
        f"trap 'touch \"{tmp_path / 'saved'}\"; exit 143' TERM\n"
        f'touch "{tmp_path / "started"}"\n'
        "while true; do sleep 0.05; done",
    )
    job = {"SLURM_JOB_ID": "11", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_CPUS_PER_TASK": "32"}
    return environment(tmp_path, STEP_STATUS="", **job)


@pytest.mark.parametrize("status", [0, 3])
def test_a_slurm_job_ends_as_its_step_does(status: int, slurm: dict[str, str], tmp_path: Path) -> None:
    result = subprocess.run([LAUNCH / "slurm.sh", *OPTIONS], env=slurm | {"STEP_STATUS": str(status)})
    assert result.returncode == status
    assert not (tmp_path / "controlled").exists()
    assert (tmp_path / "cpus").read_text() == "32"
    lines = (tmp_path / "arguments").read_text().splitlines()
    assert lines[:3] == ["torchrun", "--nnodes", "2"]
    assert lines[lines.index("--rdzv-endpoint") + 1] == "node7:29500"
    assert lines[-len(OPTIONS) - 3 :] == ["-m", "hf_seq2seq", "train", *OPTIONS]


def test_a_slurm_job_whose_time_is_up_stops_its_step_and_is_queued_again(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    assert "#SBATCH --signal=B:USR1@120\n" in (LAUNCH / "slurm.sh").read_text()
    with subprocess.Popen([LAUNCH / "slurm.sh"], env=slurm) as job:
        while not (tmp_path / "started").exists():
            time.sleep(0.02)
        job.send_signal(signal.SIGUSR1)
        job.wait(30)
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "controlled").read_text() == "requeue 11 "
