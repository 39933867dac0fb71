"""What a run that goes on expects of its data: the pairs that it was begun with, from the next batch on.

- The same pairs: a digest of their ids is in the run's folder, and is compared (`check_same_pairs`).
- The next batch: the trainer skips the batches of the epoch that the checkpoint has seen. The order of the batches
  follows from the number of the epoch, which their sampler must be told (`EpochSetter`).
- A stream is not compared. Each process saves how far it read in each checkpoint (`save_stream_position`), and goes on
  there. So that the trainer does not skip batches too, the settings turn `ignore_data_skip` on with `streaming`.
"""

import json
import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.data.lines import content_digest

from .arguments import FILE_FIELDS
from .run_folder import RunFolder


if TYPE_CHECKING:
    from datasets import Dataset
    from torch.utils.data import DataLoader

    from hf_seq2seq.data.stream_loader import StreamLoader


DATA_FILE = "training_data.json"
_POSITION_FILE = "stream_position_{}.json"  # of each process

logger = logging.getLogger(__name__)


def has_same_files(folder: RunFolder, settings: dict[str, Any]) -> bool:
    """Returns whether all pairs come from files, and those hold what they held in the run so far."""
    states = _states_of_files(settings)
    return settings.get("dataset_name") is None and folder.has(DATA_FILE) and folder.read(DATA_FILE)["files"] == states


def check_same_pairs(folder: RunFolder, settings: dict[str, Any], datasets: "dict[str, Dataset]") -> None:
    """Checks that a run goes on with the pairs that it was begun with, or notes down those of a new run.

    Args:
        folder: The folder of the run.
        settings: The run's settings, which name the files.
        datasets: The tokenized pairs of "train" and, if there are such, "validation".

    Raises:
        ValueError: If the pairs differ.
    """
    now = {part: _digest(pairs) for part, pairs in datasets.items()}
    before = folder.read(DATA_FILE) if folder.has_progress() and folder.has(DATA_FILE) else {}
    for part in datasets:
        if part in before and before[part] != now[part]:
            raise ValueError(
                f"The {part} pairs must be those that the run in {str(folder.path)!r} was begun with "
                f"({_describe(before[part])}), but have changed ({_describe(now[part])}). Put the old files back "
                "to go on with that run, or give another `output_dir` to begin a new one."
            )
    folder.write(DATA_FILE, {"files": _states_of_files(settings), **now})


def save_stream_position(checkpoint: PathLike, args: TrainingArguments, loader: "StreamLoader") -> None:
    """Saves how far this process read its part of a stream."""
    content = json.dumps({"num_ranks": args.world_size, "position": loader.position})
    (Path(checkpoint) / _POSITION_FILE.format(args.process_index)).write_text(content, encoding="utf-8")


def load_stream_position(checkpoint: PathLike, args: TrainingArguments, loader: "StreamLoader") -> None:
    """Sets a loader to where this process had read its part of a stream; warns where that is not known."""
    file = Path(checkpoint) / _POSITION_FILE.format(args.process_index)
    saved = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    num_workers = len(loader.position["workers"])
    if saved.get("num_ranks") == args.world_size and len(saved["position"]["workers"]) == num_workers:
        loader.position = saved["position"]
        return
    logger.warning(
        "The stream begins again from its start, since %s does not tell how far %d process(es) with %d worker(s) each "
        "have read it. The weights will differ from those of a run without a break.",
        *(checkpoint, args.world_size, num_workers),
    )


class EpochSetter(TrainerCallback):
    """Sets the number of each epoch in the samplers of a loader.

    The stock trainer does so too, but not in a run that goes on within an epoch: there a loader that skips batches
    hides the samplers from it.
    """

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self._loader = loader

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Sets the epoch of the batch sampler and of all that it wraps."""
        sampler: Any = self._loader.batch_sampler
        while sampler is not None:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(int(state.epoch or 0))
            sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)


def _states_of_files(settings: dict[str, Any]) -> list[list[Any]]:
    """Returns path and checksum of each file of pairs, in the order in which they are named."""
    named = (settings.get(name) for name in FILE_FIELDS)
    paths = [path for value in named if value for path in ([value] if isinstance(value, str) else value)]
    return [[str(Path(path).resolve()), content_digest(path)] for path in paths if Path(path).is_file()]


def _describe(digest: dict[str, Any]) -> str:
    return f"{digest['num_pairs']:,} pairs, checksum {digest['crc32']}"


def _digest(dataset: "Dataset") -> dict[str, Any]:
    """Returns the number of tokenized pairs and a checksum of their ids."""
    import pyarrow.compute as pc

    checksum = 0
    for batch in dataset.select_columns(["input_ids", "labels"]).with_format("arrow").iter(batch_size=100_000):
        for column in batch.columns:
            for values in (pc.list_value_length(column), pc.list_flatten(column)):
                checksum = zlib.crc32(np.ascontiguousarray(values.to_numpy()).tobytes(), checksum)
    return {"num_pairs": len(dataset), "crc32": f"{checksum:08x}"}
