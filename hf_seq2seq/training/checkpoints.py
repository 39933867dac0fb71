"""The checkpoints of a run: how they are written, found, checked, marked and deleted.

A checkpoint goes in one of three ways:

- An ordinary one, when there are more than `save_total_limit`: transformers' Trainer deletes the oldest when it saves.
- One that was saved at a signal, once a later one is whole: `delete_superseded`, at the next start of the run.
- One that the disk has no room for, at once: `writing_checkpoint`, by `atomic_writing.writing`.

One that a kill cut short stays until `save_total_limit` reaches it, and is never read.
"""

import json
import logging
import pickle
import re
import shutil
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerState

from hf_seq2seq.atomic_writing import PathLike, writing
from hf_seq2seq.error_messages import first_line


logger = logging.getLogger(__name__)

# What the libraries raise for files that are cut short or are something else.
_ERRORS_OF_DAMAGE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, RuntimeError, EOFError),
    *(SafetensorError, zipfile.BadZipFile, pickle.UnpicklingError),
)

_NAME = re.compile(r"checkpoint-(\d+)")
# A file of this name is in each checkpoint that was saved only because a signal asked to stop.
_SIGNAL_MARK = "saved_at_a_signal"
_STATE_FILE = "trainer_state.json"


def checkpoint_folder(run_dir: PathLike, update: int) -> Path:
    """Returns the folder to which the trainer saves the checkpoint of an update."""
    return Path(run_dir) / f"checkpoint-{update}"


# Writing


def writing_checkpoint(run_dir: PathLike, update: int) -> AbstractContextManager[None]:
    """Returns a context in which a checkpoint is written. It is deleted where the disk has no room for all of it.

    Raises:
        OSError: At the end of the context, if there was no room.
    """
    return writing(checkpoint_folder(run_dir, update), remove_on_failure=True)


def mark_as_saved_at_a_signal(checkpoint: PathLike) -> None:
    """Marks a checkpoint as saved only because a signal asked to stop."""
    (Path(checkpoint) / _SIGNAL_MARK).touch()


def delete_superseded(run_dir: PathLike, keep: PathLike | None = None) -> None:
    """Deletes checkpoints saved at a signal, unless they are the newest whole checkpoint of the run.

    They would take the places of regular ones among the `save_total_limit` that are kept.

    Args:
        run_dir: The folder of the run.
        keep: A checkpoint that is not deleted.
    """
    checkpoints = list_checkpoints(run_dir)
    if not any(was_saved_at_a_signal(path) for path in checkpoints):
        return  # without reading all weights
    whole = [path for path in checkpoints if is_complete(path)]
    for earlier in whole[:-1]:
        if was_saved_at_a_signal(earlier) and (keep is None or not earlier.samefile(keep)):
            shutil.rmtree(earlier)


# Finding


def list_checkpoints(run_dir: PathLike) -> list[Path]:
    """Returns the folders `checkpoint-N` of a run, by N ascending, whole or not."""
    if not Path(run_dir).is_dir():
        return []
    found = [(_NAME.fullmatch(path.name), path) for path in Path(run_dir).iterdir() if path.is_dir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def last_whole_checkpoint(run_dir: PathLike) -> Path | None:
    """Returns the latest checkpoint that is whole, if there is one, and warns of later ones that are not."""
    for folder in reversed(list_checkpoints(run_dir)):
        fault = find_fault(folder)
        if fault is None:
            return folder
        logger.warning("%s is left out: it is not whole (%s).", folder, fault)
    return None


def last_regular_checkpoints(run_dir: PathLike, number: int) -> list[Path]:
    """Returns the last whole checkpoints of a run, without those saved at a signal; the newest is last.

    Args:
        run_dir: The folder of the run.
        number: How many are wanted. Fewer are returned where the run has fewer.
    """
    found: list[Path] = []
    for folder in reversed(list_checkpoints(run_dir)):
        if len(found) == number:
            break
        if was_saved_at_a_signal(folder):
            logger.info("%s is left out: it was saved since the run was told to stop.", folder)
        elif is_complete(folder):
            found.append(folder)
        else:
            logger.warning("%s is left out: it is not whole.", folder)
    return found[::-1]


def last_checkpoints(run_dir: PathLike, number: int) -> list[Path]:
    """Returns as many checkpoints as are asked for, as `last_regular_checkpoints` does.

    Args:
        run_dir: The folder of the run.
        number: How many.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it holds fewer, or `number` is below 1.
    """
    if number < 1:
        raise ValueError(f"`number` of checkpoints must be at least 1, but is {number} instead.")
    if not Path(run_dir).is_dir():
        raise FileNotFoundError(f"`{run_dir}` must be the folder of a run, but there is none. Check the path.")
    found = last_regular_checkpoints(run_dir, number)
    if len(found) < number:
        raise ValueError(
            f"`{run_dir}` must hold at least {number} whole checkpoints, but holds {len(found)} instead. Ask for "
            "fewer, or train with smaller `save_steps` and a `save_total_limit`, the number that is kept, of at least "
            f"{number}."
        )
    return found


def named_checkpoint(name: str | None) -> str | None:
    """Returns the checkpoint that `resume_from_checkpoint` names, if it names one.

    Args:
        name: The setting's value. "true" is how the last checkpoint is often asked for, and names none.

    Raises:
        ValueError: If it names something that is no whole checkpoint.
    """
    if name is None or str(name).lower() == "true":
        return None
    fault = find_fault(name) if Path(name).is_dir() else "there is no such folder"
    if fault is not None:
        raise ValueError(
            f"`resume_from_checkpoint` must be the folder of a whole checkpoint, but is {str(name)!r} ({fault}). "
            "Name another, or leave it out: a run goes on from its last checkpoint by itself."
        )
    return str(name)


def checkpoint_to_go_on_from(run_dir: PathLike, named: str | None) -> str | None:
    """Returns the checkpoint that was named, or else the last whole one of a run, if there is one.

    Warns where it holds only weights.
    """
    last = named or last_whole_checkpoint(run_dir)
    if last is not None and holds_weights_alone(last):
        logger.warning(
            "%s holds only weights: the optimizer begins anew, so that the run ends with other weights than without "
            "a break. Leave `save_only_model` out to go on exactly.",
            last,
        )
    return None if last is None else str(last)


# What a checkpoint tells


def load_state(checkpoint: PathLike) -> TrainerState:
    """Returns the trainer's state of a checkpoint: its update, its log and the state of callbacks."""
    state: TrainerState = TrainerState.load_from_json(str(Path(checkpoint) / _STATE_FILE))
    return state


def ends_its_run(checkpoint: PathLike, early_stopping_patience: int | None = None) -> bool:
    """Returns whether training had ended when a checkpoint was saved, by its updates or by early stopping."""
    state = load_state(checkpoint)
    callbacks: Any = state.stateful_callbacks or {}
    stopping = callbacks.get("EarlyStoppingCallback", {})
    waited = stopping.get("attributes", {}).get("early_stopping_patience_counter", 0)
    is_stopped = early_stopping_patience is not None and waited >= early_stopping_patience
    return state.global_step >= state.max_steps or is_stopped


def was_saved_at_a_signal(checkpoint: PathLike) -> bool:
    """Returns whether a checkpoint was saved only because a signal asked to stop.

    Such a checkpoint lies outside the run's rhythm, so that no average may hold it.
    """
    return (Path(checkpoint) / _SIGNAL_MARK).exists()


def holds_weights_alone(checkpoint: PathLike) -> bool:
    """Returns whether a checkpoint has no state of an optimizer, as those of `save_only_model`."""
    return not any(path.name.startswith(("optimizer", "global_step")) for path in Path(checkpoint).iterdir())


def is_complete(checkpoint: PathLike) -> bool:
    """Returns whether a run can go on from a checkpoint, as far as its files show."""
    return find_fault(checkpoint) is None


def find_fault(checkpoint: PathLike) -> str | None:
    """Returns why a run cannot go on from a checkpoint, or None if nothing shows that.

    The trainer writes trainer_state.json last. But a machine that loses power may keep a later file and lose an
    earlier one, so every file whose format shows where it ends is looked at too. Weights must be finite numbers: from
    others no training leads back. A file of torch that would run code is not read.
    """
    folder = Path(checkpoint)
    names = {path.name for path in folder.iterdir()}
    state = {
        "optimizer state": any(name.startswith(("optimizer", "global_step")) for name in names),
        "learning rate's state": "scheduler.pt" in names or any(name.startswith("global_step") for name in names),
        "state of random numbers": any(name.startswith("rng_state") for name in names),
    }
    parts = {
        _STATE_FILE: _STATE_FILE in names,
        "weights": any(
            name.startswith(("model", "pytorch_model_fsdp", "adapter_model", "global_step")) for name in names
        ),
        **(state if any(state.values()) else {}),  # `save_only_model` saves none of them
    }
    for part, is_there in parts.items():
        if not is_there:
            return f"it has no {part}"
    for path in sorted(folder.iterdir()):
        fault = _fault_of_file(path)
        if fault is not None:
            return f"{path.name}: {fault}"
    return None


def _fault_of_file(path: Path) -> str | None:
    try:
        if path.name == _STATE_FILE:
            load_state(path.parent)
        elif path.suffix == ".json":
            return _fault_of_json(path)
        elif path.suffix == ".safetensors":
            return _fault_of_weights(path)
        elif path.suffix == ".pt":
            code = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            return f"it would run code, {code[0]}" if code else None
        elif path.suffix == ".pth":
            with zipfile.ZipFile(path):  # its table of contents is at the end
                pass
    except _ERRORS_OF_DAMAGE as error:
        return first_line(error)
    return None


def _fault_of_json(path: Path) -> str | None:
    content: Any = json.loads(path.read_text(encoding="utf-8"))
    if not path.name.endswith(".index.json"):
        return None
    names = {str(name) for name in content["weight_map"].values()}
    missing = {name for name in names if not (path.parent / name).exists()}
    return f"{min(missing)} is missing" if missing else None


def _fault_of_weights(path: Path) -> str | None:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # it is no dict
            if not file.get_tensor(name).isfinite().all():
                return f"{name} holds values that are no finite numbers"
    return None
