"""Keeps the arguments of a run in its folder, so that nobody goes on with it with others by mistake."""

import json
from pathlib import Path
from typing import Any

from hf_seq2seq.atomic_writing import write_text


ARGUMENTS_FILE = "arguments.json"


def keep_arguments(folder: Path, given: dict[str, Any], *, is_begun: bool = True) -> None:
    """Writes the arguments of a run into its folder, and makes the folder.

    Args:
        folder: The folder of the run.
        given: The arguments by name, with values that JSON can hold.
        is_begun: Whether the folder holds results already. If not, other arguments replace those in the folder.

    Raises:
        ValueError: If the folder holds results of a run with other arguments, **or** if the file is damaged.
    """
    file = folder / ARGUMENTS_FILE
    for name, value in (read_arguments(folder) if is_begun and file.exists() else {}).items():
        if given.get(name) != value:
            raise ValueError(
                f"`{name}` must be {value!r} as in the run that {str(folder)!r} holds, but is {given.get(name)!r} "
                "instead. Give the same arguments, or another `--output`."
            )
    write_text(file, f"{json.dumps(given)}\n")


def read_arguments(folder: Path) -> dict[str, Any]:
    """Returns the arguments of the run that the folder holds.

    Raises:
        ValueError: If the file is damaged.
    """
    file = folder / ARGUMENTS_FILE
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise ValueError(
            f"`{file}` must hold what the run was given, as JSON, but does not. Delete it, and give the run's own "
            "arguments."
        ) from None
