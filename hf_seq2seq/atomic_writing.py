"""Writes files and folders whole or not at all, with errors that say what could not be written."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .error_messages import first_line


PathLike = str | os.PathLike[str]

UNFINISHED = ".unfinished"  # ends the name of a file or folder that is being written


def check_link(path: PathLike) -> None:
    """Checks that a folder or file that is to be written is no link to a missing one, as to a disk not mounted.

    Raises:
        FileNotFoundError: If it is.
    """
    if Path(path).is_symlink() and not Path(path).exists():
        raise FileNotFoundError(
            f"`{path}` must be what can be written, but is a link to {Path(path).resolve()}, which does not exist. "
            "Make that, or remove the link."
        )


def check_new_folder(folder: PathLike) -> None:
    """Checks that a folder is empty or does not exist.

    Raises:
        FileNotFoundError: If it is a link to a folder that does not exist.
        NotADirectoryError: If there is a file of that name.
        ValueError: If there is a folder of that name that is not empty.
    """
    check_link(folder)
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"`{folder}` must be a new or empty folder, but is a file. Name another folder.")
    found = next(iter(finished_names(path)), None) if path.exists() else None
    if found is not None:
        raise ValueError(f"`{folder}` must be a new or empty folder, but holds {found!r}. Name another folder.")


def finished_names(folder: Path) -> list[str]:
    """Returns the sorted names in a folder, without the files and folders that are half written."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(UNFINISHED))


@contextmanager
def new_folder(folder: PathLike) -> Iterator[Path]:
    """Yields a temporary folder that becomes `folder` on success and is deleted on failure.

    Raises:
        NotADirectoryError: If there is a file of that name.
        OSError: If it cannot be written.
        ValueError: If there is a folder of that name that is not empty, or another process writes it.
    """
    check_new_folder(folder)
    with replaced_files(folder) as unfinished:
        yield unfinished
        check_new_folder(folder)  # something else may have written it meanwhile


@contextmanager
def replaced_files(folder: PathLike) -> Iterator[Path]:
    """Yields a temporary folder whose files replace those in `folder` on success. On failure, they stay as they were.

    Args:
        folder: Where the files go. It need not exist yet.

    Raises:
        OSError: If they cannot be written.
        ValueError: If another process writes the folder.
    """
    check_link(folder)
    path = Path(folder).resolve()
    # A folder that exists stays: it may be a mount point, the current one, or all that the user may write to.
    exists = path.exists()
    place = path if exists else path.parent
    place.mkdir(parents=True, exist_ok=True)
    unfinished = place / f".{path.name}{UNFINISHED}"
    with only_writer(path, place):
        shutil.rmtree(unfinished, ignore_errors=True)  # a killed process left it
        try:
            unfinished.mkdir()
            with writing(folder):
                yield unfinished
            if exists:
                # The config comes last, since a folder that has one counts as a model.
                for file in sorted(unfinished.iterdir(), key=lambda file: file.name == "config.json"):
                    file.replace(path / file.name)
            else:
                unfinished.rename(path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def only_writer(path: Path, place: Path) -> Iterator[None]:
    """Holds a lock on a folder or file, which the system frees however the process ends.

    Args:
        path: The folder or file to write.
        place: The folder that holds the lock's file.

    Raises:
        ValueError: If another process holds it.
    """
    lock_file = place / f".{path.name}.lock{UNFINISHED}"
    lock = FileLock(lock_file, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"`{path}` must be written by one process at a time, but another one is writing it. Wait for it, or "
            "name another."
        ) from None
    try:
        yield
    finally:
        # Deleted while it is held, since it may be another process's lock afterwards. Windows keeps the file.
        with suppress(PermissionError):
            lock_file.unlink()
        lock.release()


def write_text(file: PathLike, text: str) -> None:
    """Writes a text file, as `write_bytes` writes any."""
    write_bytes(file, text.encode())


def write_bytes(file: PathLike, data: bytes) -> None:
    """Writes a file whole or not at all, and makes the folder that it is in.

    Raises:
        OSError: If it cannot be written.
    """
    path = Path(file).resolve()  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}{UNFINISHED}")
    try:
        with writing(file):
            unfinished.write_bytes(data)
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def writing(folder: PathLike, *, remove_on_failure: bool = False) -> Iterator[None]:
    """Turns what libraries raise on a full disk into one kind of error. Other errors pass unchanged.

    Args:
        folder: The file or folder that the block writes.
        remove_on_failure: Whether to delete the half-written folder then, so that it takes no room.

    Raises:
        OSError: If there is no room for it.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_room(error):
            raise
        if remove_on_failure:
            shutil.rmtree(folder, ignore_errors=True)
        raise OSError(
            f"`{folder}` must be written whole, but could not be ({first_line(error)}). What was written before is "
            "untouched. Make room on the disk, and run the same command again."
        ) from error


def is_out_of_room(error: Exception) -> bool:
    """Returns whether an error says that a disk is full, or a file as large as it may be."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # safetensors, tokenizers and torch raise exceptions of their own; only their text names the cause.
    signs = ("No space left", "File too large", "quota exceeded", "PytorchStreamWriter", "inline_container")
    return any(sign in str(error) for sign in signs)
