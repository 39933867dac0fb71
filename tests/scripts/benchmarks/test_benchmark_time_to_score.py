"""The benchmark trains each model to a score and goes on where it stopped, on models so small that seconds do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks import benchmark_time_to_score
from scripts.benchmarks.benchmark_models import ModelSizes
from scripts.benchmarks.benchmark_time_to_score import RUNS, main


SIZES = ModelSizes(vocab_size=300, d_model=16, layers=1, ffn_dim=16, heads=2)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line without what ends the runs; 60 pairs in two batches an epoch."""
    monkeypatch.setattr(benchmark_time_to_score, "SIZES", SIZES)
    monkeypatch.setattr(benchmark_time_to_score, "TOKENS_PER_BATCH", 300)
    for name, (kind, sizes) in RUNS.items():
        monkeypatch.setitem(RUNS, name, (kind, replace(SIZES, norm_position=sizes.norm_position)))
    lines = "".join(f"{'word ' * (n % 3)}number {n}\n" for n in range(60))
    sides = [tmp_path / name for name in ("source", "target")]
    for side in sides:
        side.write_text(lines)
    files = [str(side) for side in sides]
    return ["--train", *files, "--validation", *files, "--output", str(tmp_path / "out")]


def epochs_of(folder: Path, name: str) -> list[dict[str, Any]]:
    epochs: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
    return epochs


def test_each_model_goes_on_where_it_stopped(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*command, "--max-epochs", "2"])
    first = {name: epochs_of(tmp_path / "out", name) for name in RUNS}
    checkpoints = tmp_path / "out" / "checkpoints"
    (checkpoints / "marian-random" / "checkpoint-6").mkdir()  # a kill while it was saved
    shutil.rmtree(checkpoints / "ours-pre-norm")  # a kill before it was: the epochs are ahead of the checkpoint
    main([*command, "--max-epochs", "3"])
    for name in RUNS:
        epochs = epochs_of(tmp_path / "out", name)
        assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
        assert epochs[2]["seconds"] > epochs[1]["seconds"] > epochs[0]["seconds"] > 0
        assert (epochs[:2] == first[name]) == (name != "ours-pre-norm")
    assert (tmp_path / "out" / "time_to_score.png").stat().st_size > 1000
    rows = capsys.readouterr().out.splitlines()[-len(RUNS) :]
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {name}", "3"] for name in RUNS]
    assert all("stopped before the score" in row for row in rows)


def test_a_model_that_has_reached_the_score_is_done(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = None
    for _ in range(2):
        main([*command, "--max-epochs", "2", "--score", "0", "--models", "marian-random"])
        (epoch,) = epochs_of(tmp_path / "out", "marian-random")
        seconds = seconds or epoch["seconds"]
        assert epoch["seconds"] == seconds  # the second time nothing is trained

    file = tmp_path / "out" / "marian-random.json"
    file.write_text(json.dumps([{"epoch": n, "seconds": 60.0 * n, "bleu": 10.0 * n} for n in (1, 2, 3)]))
    for options, row in (
        (["--score", "15"], "| marian-random | 2 | 20.00 | 2.0 |"),
        (["--score", "25", "--max-epochs", "1"], "| marian-random | 1 | 10.00 (stopped before the score) | 1.0 |"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(benchmark_time_to_score, "last_whole_checkpoint", lambda folder: tmp_path)
            (tmp_path / "trainer_state.json").write_text('{"epoch": 3.0}')
            main([*command, "--models", "marian-random", *options])
        assert capsys.readouterr().out.splitlines()[-1] == row


def test_a_run_with_another_seed_is_an_error(command: list[str], tmp_path: Path) -> None:
    main([*command, "--max-epochs", "1", "--models", "ours-pre-norm"])
    with pytest.raises(ValueError, match=r"`seed` must be 1 as in the run that .* holds, but is 2 instead"):
        main([*command, "--max-epochs", "1", "--models", "ours-pre-norm", "--seed", "2"])


def test_validation_sides_of_different_lengths_are_an_error(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "longer").write_text("word\n" * 61)
    longer = ["--validation", str(tmp_path / "source"), str(tmp_path / "longer")]
    with pytest.raises(ValueError, match=r"source has 60 and .*longer has 61 instead"):
        main([*command, *longer])
    main([*command, "--max-epochs", "1", "--models", "ours-pre-norm"])  # nothing was begun with those


def test_epochs_end_at_the_most(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--max-epochs", "0"])
    assert "--max-epochs must be at least 1, but is 0" in capsys.readouterr().err
