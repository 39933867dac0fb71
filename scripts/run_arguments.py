"""Keeps what a run was given in its folder, so that it is not gone on with by mistake as another run."""

import json
from pathlib import Path
from typing import Any


ARGUMENTS_FILE = "arguments.json"


def keep_arguments(folder: Path, given: dict[str, Any], free: tuple[str, ...] = ()) -> None:
    """Writes the arguments into the folder, which is made, if it holds no run with others.

    Args:
        folder: The folder of the run.
        given: The arguments by name, as JSON can hold them.
        free: Names of arguments that may change.

    Raises:
        ValueError: If the run that the folder holds was begun with other arguments.
    """
    file = folder / ARGUMENTS_FILE
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name, value in before.items():
        if name not in free and given.get(name) != value:
            raise ValueError(
                f"`{name}` must be {value!r} as in the run that {str(folder)!r} holds, but is {given.get(name)!r} "
                "instead. Give the same arguments, or another `--output`."
            )
    write_lines(file, [json.dumps(given)])


def write_lines(file: Path, lines: list[str]) -> None:
    """Writes a text file whole or not at all, in a folder that is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    unfinished.replace(file)
