"""Keeps what a run was given in its folder, so that it is not gone on with by mistake as another run."""

import json
from pathlib import Path
from typing import Any


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
    write_lines(file, [json.dumps(given)])


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


def write_lines(file: Path, lines: list[str]) -> None:
    """Writes a text file whole or not at all, in a folder that is made.

    What stands there already is left: by a file's date others see whether it has changed.
    """
    text = "".join(f"{line}\n" for line in lines).encode()
    if file.is_file() and file.read_bytes() == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_bytes(text)
    unfinished.replace(file)
