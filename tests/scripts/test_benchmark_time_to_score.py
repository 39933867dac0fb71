"""The benchmark trains each model to a score and goes on where it stopped, on models so small that seconds do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmark_time_to_score
import pytest
from benchmark_models import ModelSizes
from benchmark_time_to_score import RUNS, main


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
    main([*command, "--max-epochs", "1"])
    first = {name: epochs_of(tmp_path / "out", name) for name in RUNS}
    (tmp_path / "out" / "checkpoints" / "marian" / "checkpoint-4").mkdir()  # a kill while it was saved
    main([*command, "--max-epochs", "2"])
    for name in RUNS:
        epochs = epochs_of(tmp_path / "out", name)
        assert [epoch["epoch"] for epoch in epochs] == [1, 2]
        assert epochs[0] == first[name][0]
        assert epochs[1]["cpu_seconds"] > epochs[0]["cpu_seconds"] > 0
        assert epochs[1]["wall_seconds"] > epochs[0]["wall_seconds"] > 0
    assert (tmp_path / "out" / "time_to_score.png").stat().st_size > 1000
    rows = capsys.readouterr().out.splitlines()[-len(RUNS) :]
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {name}", "2"] for name in RUNS]
    assert all("stopped before the score" in row for row in rows)


def test_a_model_that_has_reached_the_score_is_done(command: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        main([*command, "--max-epochs", "2", "--score", "0", "--models", "marian"])
        assert len(epochs_of(tmp_path / "out", "marian")) == 1
