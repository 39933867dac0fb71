"""Write folders whole or not at all, with errors that say what could not be written."""

import errno
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


PathLike = str | os.PathLike[str]

UNFINISHED = ".unfinished"  # ends the name of a file or folder while it is written


def check_new_folder(folder: PathLike) -> None:
    """Checks that there is nothing yet in a folder.

    Raises:
        NotADirectoryError: If there is a file of that name, **or**
        ValueError: If there is a folder of that name that is not empty.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"`{folder}` must be a new or empty folder, but is a file. Name another folder.")
    found = next(iter(finished_names(path)), None) if path.exists() else None
    if found is not None:
        raise ValueError(f"`{folder}` must be a new or empty folder, but holds {found!r}. Name another folder.")


def finished_names(folder: Path) -> list[str]:
    """Returns the names of what is in a folder, but for what is being written, or was when a run was killed."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(UNFINISHED))


@contextmanager
def new_folder(folder: PathLike) -> Iterator[Path]:
    """Gives a folder to write to, whose files then are in the one of that name; where writing fails, nothing is left.

    Raises:
        OSError: If it cannot be written, **or** as `check_new_folder` does.
        ValueError: As `check_new_folder` does.
    """
    check_new_folder(folder)
    with replaced_files(folder) as unfinished:
        yield unfinished
        check_new_folder(folder)  # it may have been written meanwhile


@contextmanager
def replaced_files(folder: PathLike) -> Iterator[Path]:
    """Gives a folder to write to, whose files then replace those in another, which may be new.

    Where writing fails, all is as it was.

    Raises:
        OSError: If they cannot be written.
    """
    path = Path(folder).resolve()
    # A folder that is there stays: it may be a mount point, the current one, or all that the user may write to.
    is_there = path.exists()
    place = path if is_there else path.parent
    _delete_left(place, path.name)
    unfinished = place / f".{path.name}.{os.getpid()}{UNFINISHED}"
    unfinished.mkdir(parents=True)
    try:
        with writing(folder):
            yield unfinished
        if is_there:
            # The config, by which a folder is known as a model, comes last.
            for file in sorted(unfinished.iterdir(), key=lambda file: file.name == "config.json"):
                file.replace(path / file.name)
        else:
            unfinished.rename(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _delete_left(place: Path, name: str) -> None:
    """Deletes what runs that were killed have left."""
    for left in place.glob(f".{glob.escape(name)}.*{UNFINISHED}"):
        process = left.name.split(".")[-2]
        # In a container the next run often has the number of the one that was killed.
        if process.isdecimal() and (int(process) == os.getpid() or not psutil.pid_exists(int(process))):
            shutil.rmtree(left, ignore_errors=True)


def write_text(file: PathLike, text: str) -> None:
    """Writes a file whole or not at all, in a folder that is made.

    Raises:
        OSError: If it cannot be written.
    """
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}{UNFINISHED}")
    try:
        with writing(path):
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def writing(folder: PathLike, *, remove_on_failure: bool = False) -> Iterator[None]:
    """Turns what libraries raise on a full disk into an error that says it; other errors pass.

    Args:
        folder: What is written.
        remove_on_failure: Whether what has been written of it is deleted then, so that it takes no room.

    Raises:
        OSError: If there is no room for it.
    """
    try:
        yield
    except Exception as error:
        if not _is_out_of_room(error):
            raise
        if remove_on_failure:
            shutil.rmtree(folder, ignore_errors=True)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OSError(
            f"`{folder}` must be written whole, but could not be ({reason}). What was written before is untouched. "
            "Make room on the disk, and run the same command again."
        ) from error


def _is_out_of_room(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # safetensors, tokenizers and torch raise exceptions of their own, which tell of it in words alone.
    signs = ("No space left", "File too large", "quota exceeded", "PytorchStreamWriter", "inline_container")
    return any(sign in str(error) for sign in signs)
