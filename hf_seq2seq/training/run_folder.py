"""The folder of a run: its lock, its settings and its results."""

import json
import logging
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_seq2seq.atomic_writing import check_link, finished_names, write_text
from hf_seq2seq.json_files import parse_json

from .checkpoints import delete_superseded, list_checkpoints
from .settings import changeable_settings


logger = logging.getLogger(__name__)

SETTINGS_FILE = "training_settings.json"
RESULTS_FILE = "training_results.json"  # written last: a run that has it is finished
LOCK_FILE = ".lock"


class RunFolder:
    """The `output_dir` of a run. As a context manager it ends with the folder unlocked.

    What is written is kept in memory too, so that `restore` can write it again.

    Args:
        path: The folder, which need not exist yet.

    Raises:
        FileNotFoundError: If it is a link to a folder that does not exist.
        NotADirectoryError: If it is a file.
    """

    def __init__(self, path: Path) -> None:
        check_link(path)
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(f"`output_dir` must be a folder, but {str(path)!r} is a file. Name another.")
        self.path = path
        self._lock: FileLock | None = None
        self._identity: int | None = None  # of the lock file: a folder that was made again has another one
        self._written: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def check(self, settings: dict[str, Any]) -> None:
        """Checks that the folder is empty or holds a run with these settings.

        A run that ended before its first checkpoint has nothing to lose, so its settings may change. A run may go on
        with another number of processes, with a warning.

        Raises:
            ValueError: If it holds something else, or a run with other settings.
        """
        if self.has(SETTINGS_FILE):
            if self.has_progress():
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
        before, now = self.read(SETTINGS_FILE), json.loads(_to_json(settings))
        ignored = changeable_settings(before, now)
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
        """Makes the folder, locks it for this process, writes the settings and deletes superseded checkpoints.

        Args:
            settings: The settings.
            keep: A checkpoint that is not deleted.

        Raises:
            ValueError: If another process trains in the folder.
        """
        self._acquire()
        self.write(SETTINGS_FILE, settings)
        delete_superseded(self.path, keep)

    def _acquire(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        lock_file = self.path / LOCK_FILE
        self._lock = FileLock(lock_file, blocking=False)  # freed by the system however the process ends
        try:
            self._lock.acquire()
        except Timeout:
            raise ValueError(
                f"`output_dir` must hold no run that is going on, but another process trains in {str(self.path)!r}. "
                "Wait for it, or name another folder."
            ) from None
        self._identity = lock_file.stat().st_ino

    def restore(self) -> bool:
        """Makes the folder again where it was deleted while it was open, with all that this run wrote into it.

        Returns:
            Whether it had been deleted.

        Raises:
            ValueError: If another process trains in a folder of its name by now.
        """
        lock_file = self.path / LOCK_FILE
        if self._lock is None or (lock_file.exists() and lock_file.stat().st_ino == self._identity):
            return False
        self._lock.release()
        self._acquire()
        for name, text in self._written.items():
            write_text(self.path / name, text)
        return True

    def results(self) -> dict[str, Any] | None:
        """Returns the results of a finished run, or None."""
        return self.read(RESULTS_FILE) if self.has(RESULTS_FILE) else None

    def has(self, name: str) -> bool:
        """Returns whether there is a file of that name."""
        return (self.path / name).exists()

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Writes a JSON file whole or not at all."""
        self.write_text(name, _to_json(values))

    def write_text(self, name: str, text: str) -> None:
        """Writes a file whole or not at all."""
        write_text(self.path / name, text)
        self._written[name] = text

    def read(self, name: str) -> dict[str, Any]:
        """Returns what a JSON file of the folder holds.

        Raises:
            ValueError: If it is damaged.
        """
        try:
            values: dict[str, Any] = dict(parse_json((self.path / name).read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"`{self.path / name}` must be what `hf-seq2seq train` wrote, but is damaged ({error}). Put it back "
                "or, to begin anew, name another `output_dir`."
            ) from error
        return values

    def has_progress(self) -> bool:
        """Returns whether there is something to lose: results or a checkpoint."""
        return self.has(RESULTS_FILE) or bool(list_checkpoints(self.path))


class FolderKeeper(TrainerCallback):
    """Makes the folder of a run again where it was deleted, so that the run can go on from its next checkpoint.

    Args:
        folder: The folder, which this process has opened.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Looks whether the folder is there, after each update."""
        if self._folder.restore():
            kwargs["processing_class"].save_pretrained(self._folder.path)
            logger.warning(
                "%s was deleted while the run went on. It is made again; its earlier checkpoints are lost.",
                self._folder.path,
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Looks whether the folder is there, before the results are written."""
        self.on_step_end(args, state, control, **kwargs)


def _to_json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, default=str) + "\n"
