"""Write folders whole or not at all, with errors that say what could not be written."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


PathLike = str | os.PathLike[str]

UNFINISHED = ".unfinished"  # ends the name of a file while it is written


def check_new_folder(folder: PathLike) -> None:
    """Checks that there is nothing yet in a folder.

    Raises:
        NotADirectoryError: If there is a file of that name, **or**
        ValueError: If there is a folder of that name that is not empty.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"`{folder}` must be a new or empty folder, but is a file. Name another folder.")
    found = next(path.iterdir(), None) if path.exists() else None
    if found is not None:
        raise ValueError(f"`{folder}` must be a new or empty folder, but holds {found.name!r}. Name another folder.")


@contextmanager
def new_folder(folder: PathLike) -> Iterator[Path]:
    """Gives a folder to write to, which gets its name at the end: where writing fails, nothing is left.

    Raises:
        OSError: If it cannot be written, **or** as `check_new_folder` does.
        ValueError: As `check_new_folder` does.
    """
    check_new_folder(folder)
    path = Path(folder).resolve()
    for left in path.parent.glob(f".{path.name}.*.unfinished"):
        process = left.name.split(".")[-2]
        # Of a run that was killed; in a container the next one often has its number.
        if process.isdecimal() and (int(process) == os.getpid() or not psutil.pid_exists(int(process))):
            shutil.rmtree(left, ignore_errors=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    unfinished.mkdir(parents=True)
    try:
        with writing(folder):
            yield unfinished
        check_new_folder(folder)  # it may have been written meanwhile
        if path.exists():
            path.rmdir()
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


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
