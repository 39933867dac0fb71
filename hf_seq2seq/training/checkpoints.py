"""The checkpoints of a run, and which of them are whole."""

import json
import logging
import os
import re
import zipfile
from pathlib import Path

from safetensors import SafetensorError, safe_open


logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

_NAME = re.compile(r"checkpoint-(\d+)")
# In a checkpoint that was saved since a signal asked to stop: it lies outside the run's rhythm.
_SIGNAL_MARK = "saved_at_a_signal"


def list_checkpoints(run_dir: PathLike) -> list[Path]:
    """Returns the folders `checkpoint-N` of a run, by N ascending, whole or not."""
    if not Path(run_dir).is_dir():
        return []
    found = [(_NAME.fullmatch(path.name), path) for path in Path(run_dir).iterdir() if path.is_dir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def last_whole_checkpoint(run_dir: PathLike) -> Path | None:
    """Returns the latest checkpoint that is whole, if any, and warns of those after it, which are not."""
    for folder in reversed(list_checkpoints(run_dir)):
        fault = find_fault(folder)
        if fault is None:
            return folder
        logger.warning("%s is left out: a kill or a full disk cut it short (%s).", folder, fault)
    return None


def mark_as_saved_at_a_signal(checkpoint: PathLike) -> None:
    """Notes down that a checkpoint was saved since a signal asked to stop."""
    (Path(checkpoint) / _SIGNAL_MARK).touch()


def was_saved_at_a_signal(checkpoint: PathLike) -> bool:
    """Tells whether a checkpoint was saved since a signal asked to stop, so that no average may hold it."""
    return (Path(checkpoint) / _SIGNAL_MARK).exists()


def holds_weights_alone(checkpoint: PathLike) -> bool:
    """Tells whether a checkpoint has nothing to go on from exactly, as with `save_only_model`."""
    return not any(path.name.startswith(("optimizer", "global_step")) for path in Path(checkpoint).iterdir())


def is_complete(checkpoint: PathLike) -> bool:
    """Tells whether a checkpoint was written to its end."""
    return find_fault(checkpoint) is None


def find_fault(checkpoint: PathLike) -> str | None:
    """Returns what shows that a checkpoint was not written to its end, or None if nothing does.

    The trainer writes trainer_state.json last. Every other file is looked at too, as far as its format tells its end,
    since a machine that loses power may keep a later file and not an earlier one.
    """
    folder = Path(checkpoint)
    names = {path.name for path in folder.iterdir()}
    state = {
        "optimizer state": any(name.startswith(("optimizer", "global_step")) for name in names),
        "learning rate's state": "scheduler.pt" in names or any(name.startswith("global_step") for name in names),
        "state of random numbers": any(name.startswith("rng_state") for name in names),
    }
    parts = {
        "trainer_state.json": "trainer_state.json" in names,
        "weights": any(
            name.startswith(("model", "pytorch_model_fsdp", "adapter_model", "global_step")) for name in names
        ),
        **(state if any(state.values()) else {}),  # none is there with `save_only_model`
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
        if path.suffix == ".json":
            content = json.loads(path.read_text(encoding="utf-8"))
            if path.name.endswith(".index.json"):
                missing = {name for name in content["weight_map"].values() if not (path.parent / name).exists()}
                return f"{min(missing)} is missing" if missing else None
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt"):
                pass
        elif path.suffix in (".pt", ".pth"):
            with zipfile.ZipFile(path):  # its table of contents is at the end
                pass
    except (OSError, ValueError, KeyError, SafetensorError, zipfile.BadZipFile) as error:
        return str(error).splitlines()[0]
    return None
