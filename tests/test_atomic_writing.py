"""Folders are written whole or not at all, also where they are there already."""

import errno
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hf_seq2seq.atomic_writing import finished_names, new_folder, replaced_files


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


@pytest.mark.parametrize("is_there", [False, True])
def test_what_fails_leaves_nothing(is_there: bool, tmp_path: Path) -> None:
    if is_there:
        (tmp_path / "new").mkdir()
    with pytest.raises(OSError, match="must be written whole"):
        fill_disk(new_folder(tmp_path / "new"))
    assert [path.name for path in tmp_path.rglob("*")] == (["new"] if is_there else [])


def test_what_killed_runs_left_in_an_empty_folder_is_deleted(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    other = tmp_path / f".{tmp_path.name}.{os.getppid()}.unfinished"  # of a run that goes on
    for folder in (other, tmp_path / f".{tmp_path.name}.{killed.pid}.unfinished"):
        folder.mkdir()
        (folder / "half").touch()
    with new_folder(tmp_path) as unfinished:
        (unfinished / "whole").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "whole"]
    assert finished_names(tmp_path) == ["whole"]


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
