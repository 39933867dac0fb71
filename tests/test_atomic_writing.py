"""Folders are written whole or not at all, also where they are there already."""

import errno
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hf_seq2seq.atomic_writing import finished_names, new_folder, replaced_files
from hf_seq2seq.training.run_folder import RunFolder


def fill_disk(folder: AbstractContextManager[Path]) -> None:
    with folder as unfinished:
        (unfinished / "a").write_text("new")
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_empty_folder_that_is_there_stays_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a mount point or the current folder, which cannot be renamed or deleted."""
    folder = tmp_path / "here"
    folder.mkdir()
    before = folder.stat().st_ino
    monkeypatch.chdir(folder)
    with new_folder(".") as unfinished:
        assert unfinished.parent == folder  # and nothing is written outside it
        (unfinished / "config.json").write_text("{}")
        (unfinished / "weights").write_text("1")
    assert folder.stat().st_ino == before
    assert sorted(path.name for path in Path().iterdir()) == ["config.json", "weights"]


def test_a_link_to_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "unmounted" / "out")
    message = r"out` must be what can be written, but is a link to .*unmounted/out, which does not exist\. Make that"
    with pytest.raises(FileNotFoundError, match=message), new_folder(tmp_path / "out"):
        pass
    with pytest.raises(FileNotFoundError, match=message):
        RunFolder(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("is_there", [False, True])
def test_what_fails_leaves_nothing(is_there: bool, tmp_path: Path) -> None:
    if is_there:
        (tmp_path / "new").mkdir()
    with pytest.raises(OSError, match="must be written whole"):
        fill_disk(new_folder(tmp_path / "new"))
    assert [path.name for path in tmp_path.rglob("*")] == (["new"] if is_there else [])


def write_until_killed(folder: Path) -> None:
    process = os.fork()
    if process == 0:
        try:
            with new_folder(folder) as unfinished:
                (unfinished / "half").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("is_there", [False, True])
def test_what_a_killed_process_left_is_deleted(is_there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    if is_there:
        folder.mkdir()
    write_until_killed(folder)
    assert list(tmp_path.rglob("half"))
    assert not is_there or finished_names(folder) == []
    with new_folder(folder) as unfinished:
        (unfinished / "whole").touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "whole"]


@pytest.mark.parametrize("is_there", [False, True])
def test_what_another_process_is_writing_is_refused_and_stays(is_there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    if is_there:
        folder.mkdir()
    with new_folder(folder) as unfinished:
        (unfinished / "first").touch()
        with (
            pytest.raises(ValueError, match=r"new` must be written by one process at a time, but another one is writ"),
            new_folder(folder),
        ):
            pass
    assert finished_names(folder) == ["first"]


def test_files_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("old")
    with pytest.raises(OSError, match=r"must be written whole, but could not be .*What was written before is untouc"):
        fill_disk(replaced_files(tmp_path))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old", "c": "old"}
    with replaced_files(tmp_path) as unfinished:
        (unfinished / "a").write_text("new")
        (unfinished / "b").write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new", "c": "old"}
