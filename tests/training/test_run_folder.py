"""The folder of a run tells which settings it was begun with, and which of them may change."""

from pathlib import Path
from typing import Any

import pytest

from hf_seq2seq.training.run_folder import RunFolder


def begin_run(path: Path, settings: dict[str, Any]) -> RunFolder:
    """Makes the folder of a run that has saved a checkpoint."""
    with RunFolder(path) as folder:
        folder.open(settings)
    (path / "checkpoint-1").mkdir()
    return folder


def settings_of(world_size: int, tokens_per_batch: int) -> dict[str, Any]:
    return {
        "tokens_per_update": 2048,
        "tokens_per_batch": tokens_per_batch,
        "gradient_accumulation_steps": round(2048 / tokens_per_batch / world_size),
        "world_size": world_size,
    }


def test_batches_that_follow_from_the_number_of_processes_may_change_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = begin_run(tmp_path, settings_of(world_size=1, tokens_per_batch=2048))
    folder.check(settings_of(world_size=2, tokens_per_batch=1024))
    assert "was begun with 1 process(es) and goes on with 2" in caplog.text


def test_batches_that_were_chosen_may_not_change(tmp_path: Path) -> None:
    folder = begin_run(tmp_path, settings_of(world_size=1, tokens_per_batch=512))
    folder.check(settings_of(world_size=2, tokens_per_batch=512))
    with pytest.raises(ValueError, match=r"^`tokens_per_batch` must be 512 as in the run .*, but is 1024 instead"):
        folder.check(settings_of(world_size=1, tokens_per_batch=1024))


def test_a_stream_that_was_begun_before_its_setting_was_filled_in_goes_on(tmp_path: Path) -> None:
    old: dict[str, Any] = {"streaming": True, "ignore_data_skip": False, "world_size": 1}
    folder = begin_run(tmp_path, old)
    folder.check(old | {"ignore_data_skip": True})
    with pytest.raises(ValueError, match="`streaming` must be True"):
        folder.check(old | {"streaming": False})
