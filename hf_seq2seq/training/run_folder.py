"""The folder of a run: its settings, the data it was begun with, its checkpoints and its results."""

import json
import logging
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout

from hf_seq2seq.atomic_writing import finished_names, write_text

from .checkpoints import is_complete, last_whole_checkpoint, list_checkpoints, was_saved_at_a_signal


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)

SETTINGS_FILE = "training_settings.json"
DATA_FILE = "training_data.json"
RESULTS_FILE = "training_results.json"  # written last: a run that has it is finished
LOCK_FILE = ".lock"

FILE_SETTINGS = (
    *("train_source", "train_target", "train_file"),
    *("validation_source", "validation_target", "validation_file"),
)

# What a run may be continued with in another way: where it is, what it logs, where it is published, what machine it
# runs on and how many checkpoints are kept. No weight depends on these.
SETTINGS_WITHOUT_INFLUENCE = """
output_dir resume_from_checkpoint do_train do_eval do_predict local_rank dry_run preprocessing_num_workers
logging_strategy logging_steps logging_first_step logging_nan_inf_filter log_on_each_node log_level
log_level_replica disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id
trackio_static_space_id include_num_input_tokens_seen skip_memory_metrics
push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
use_cpu dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor dataloader_multiprocessing_context
ddp_backend ddp_timeout ddp_bucket_cap_mb
save_total_limit save_on_each_node enable_jit_checkpoint eval_accumulation_steps per_device_eval_batch_size
""".split()  # noqa: SIM905


class RunFolder:
    """The `output_dir` of `hf-seq2seq train`.

    Args:
        path: The folder, which need not exist yet.

    Raises:
        NotADirectoryError: If it is a file.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(f"`output_dir` must be a folder, but {str(path)!r} is a file. Name another.")
        self.path = path
        self._lock: FileLock | None = None

    def check(self, settings: dict[str, Any]) -> None:
        """Checks that the folder is empty or holds a run with these settings.

        A run that ended before its first checkpoint has nothing to lose, so its settings may be mended. A run may go
        on with another number of processes, which it is warned of.

        Raises:
            ValueError: If it holds something else, or a run with other settings.
        """
        if (self.path / SETTINGS_FILE).exists():
            if self._has_progress():
                self._compare(settings)
            return
        found = finished_names(self.path) if self.path.exists() else []
        foreign = sorted(set(found) - {LOCK_FILE})
        if foreign:
            raise ValueError(
                "`output_dir` must be a new or empty folder, or hold a run of `hf-seq2seq train`, but "
                f"{str(self.path)!r} holds {foreign[0]!r} and no {SETTINGS_FILE}. Name another."
            )

    def _compare(self, settings: dict[str, Any]) -> None:
        before, now = self._read(SETTINGS_FILE), json.loads(_to_json(settings))
        ignored = {*SETTINGS_WITHOUT_INFLUENCE, "world_size"}
        if not now.get("streaming"):
            ignored |= {*FILE_SETTINGS}  # what they hold is compared in their place
        if now.get("tokens_per_update") is not None:
            ignored.add("gradient_accumulation_steps")  # follows from the number of processes then
        for name, value in before.items():
            if name in now and name not in ignored and now[name] != value:
                raise ValueError(
                    f"`{name}` must be {value!r} as in the run that {str(self.path)!r} holds, but is {now[name]!r} "
                    "instead. Give the same settings to go on with that run, or another `output_dir` to begin a new "
                    "one, which `model_name_or_path` can start from this one's model."
                )
        if before.get("world_size", 1) != now["world_size"]:
            logger.warning(
                "The run in %s was begun with %d process(es) and goes on with %d: it sees the pairs in another order, "
                "so that its weights differ from those of a run without a break.",
                *(self.path, before.get("world_size", 1), now["world_size"]),
            )

    def open(self, settings: dict[str, Any], keep: str | None = None) -> None:
        """Makes the folder, locks it for this process, and writes the settings.

        Args:
            settings: The settings.
            keep: A checkpoint that is not deleted, though it is superseded.

        Raises:
            ValueError: If another process trains in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.path / LOCK_FILE, blocking=False)  # freed by the system however the process ends
        try:
            self._lock.acquire()
        except Timeout:
            raise ValueError(
                f"`output_dir` must hold no run that is going on, but another process trains in {str(self.path)!r}. "
                "Wait for it, or name another folder."
            ) from None
        self.write(SETTINGS_FILE, settings)
        self._delete_superseded(keep)

    def _delete_superseded(self, keep: str | None) -> None:
        """Deletes whole checkpoints that were saved at a signal, but for the last: they crowd out regular ones."""
        whole = [path for path in list_checkpoints(self.path) if is_complete(path)]
        for earlier in whole[:-1]:
            if was_saved_at_a_signal(earlier) and (keep is None or not earlier.samefile(keep)):
                shutil.rmtree(earlier)

    def close(self) -> None:
        """Lets other processes train in the folder."""
        if self._lock is not None:
            self._lock.release()

    def has_same_files(self, settings: dict[str, Any]) -> bool:
        """Tells, by size and time of change, whether the files of pairs are those of the run so far."""
        states = _states_of_files(settings)
        return bool(states) and (self.path / DATA_FILE).exists() and self._read(DATA_FILE)["files"] == states

    def check_data(self, settings: dict[str, Any], datasets: "dict[str, Dataset]") -> None:
        """Checks that a run goes on with the pairs it was begun with, or notes them down.

        Args:
            settings: What names the files.
            datasets: The tokenized pairs of "train" and, if there are such, "validation".

        Raises:
            ValueError: If they differ.
        """
        now = {part: _digest(pairs) for part, pairs in datasets.items()}
        before = self._read(DATA_FILE) if self._has_progress() and (self.path / DATA_FILE).exists() else {}
        for part in datasets:
            if part in before and before[part] != now[part]:
                raise ValueError(
                    f"The {part} pairs must be those that the run in {str(self.path)!r} was begun with "
                    f"({_describe(before[part])}), but have changed ({_describe(now[part])}). Put the old files back "
                    "to go on with that run, or give another `output_dir` to begin a new one."
                )
        self.write(DATA_FILE, {"files": _states_of_files(settings), **now})

    def checkpoint(self) -> str | None:
        """Returns the last whole checkpoint, if there is one."""
        last = last_whole_checkpoint(self.path)
        return None if last is None else str(last)

    def results(self) -> dict[str, Any] | None:
        """Returns the results of a finished run, or None."""
        return self._read(RESULTS_FILE) if (self.path / RESULTS_FILE).exists() else None

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Writes a JSON file whole or not at all."""
        self.write_text(name, _to_json(values))

    def write_text(self, name: str, text: str) -> None:
        """Writes a file whole or not at all."""
        write_text(self.path / name, text)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"`{self.path / name}` must be what `hf-seq2seq train` wrote, but is damaged ({error}). Put it back "
                "or, to begin anew, name another `output_dir`."
            ) from error
        return values

    def _has_progress(self) -> bool:
        return (self.path / RESULTS_FILE).exists() or bool(list_checkpoints(self.path))


def _to_json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, default=str) + "\n"


def _states_of_files(settings: dict[str, Any]) -> list[list[Any]]:
    """Returns path, size and time of change of each file of pairs, in the order in which they are named."""
    named = (settings.get(name) for name in FILE_SETTINGS)
    paths = [path for value in named if value for path in ([value] if isinstance(value, str) else value)]
    stats = [(str(Path(path).resolve()), Path(path).stat()) for path in paths if Path(path).is_file()]
    return [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]


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
