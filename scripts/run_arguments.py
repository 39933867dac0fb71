"""Keeps what a run was given in its folder, so that it is not gone on with by mistake as another run."""

import json
from pathlib import Path
from typing import Any

from hf_seq2seq.atomic_writing import write_text


ARGUMENTS_FILE = "arguments.json"


def keep_arguments(folder: Path, given: dict[str, Any], *, is_begun: bool = True) -> None:
    """Writes the arguments into the folder, which is made, if it holds no run with others.

    Args:
        folder: The folder of the run.
        given: The arguments by name, as JSON can hold them.
        is_begun: Whether the folder holds something that was made with the arguments in it; else they may be mended.

    Raises:
        ValueError: If the run that the folder holds was begun with other arguments, **or** the file is damaged.
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
