"""The curves of a run are what its trainer logged, each by its updates."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from hf_seq2seq.inspection import plot_training_curves


HISTORY = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-4},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-4},
    {"step": 20, "eval_loss": 3.5, "eval_bleu": 12.0, "eval_chrf": 30.0},
    {"step": 20, "train_loss": 4.5, "train_runtime": 1.0},
]


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[list[float], list[float]]]:
    """What is drawn from now on: updates and values of each curve."""
    drawn: dict[str, Any] = {}
    plot = Axes.plot

    def recorded(self: Axes, steps: list[float], values: list[float], **options: Any) -> Any:
        drawn[options["label"]] = (steps, values)
        return plot(self, steps, values, **options)

    monkeypatch.setattr(Axes, "plot", recorded)
    return drawn


def write_state(folder: Path, history: list[dict[str, float]], step: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": step}))


def test_each_curve_is_what_was_logged(curves: dict[str, Any], tmp_path: Path) -> None:
    write_state(tmp_path / "run" / "checkpoint-9", HISTORY[:1], 9)
    write_state(tmp_path / "run" / "checkpoint-20", HISTORY, 20)  # the latest, though "20" sorts before "9"
    for name in ("curves.png", "curves.svg"):
        plot_training_curves(tmp_path / "run", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert curves == {
        "training, with label smoothing": ([10, 20], [5.0, 4.0]),
        "validation": ([20], [3.5]),
        "BLEU": ([20], [12.0]),
        "chrF": ([20], [30.0]),
        "learning rate": ([10, 20], [1e-4, 2e-4]),
    }


def test_a_run_without_validation_has_no_empty_panel(curves: dict[str, Any], tmp_path: Path) -> None:
    write_state(tmp_path, HISTORY[:2], 20)
    plot_training_curves(tmp_path / "trainer_state.json", tmp_path / "curves.png")
    assert list(curves) == ["training, with label smoothing", "learning rate"]


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be the folder of a training run, with trainer_state\.json"):
        plot_training_curves(tmp_path, tmp_path / "curves.png")
    write_state(tmp_path, [], 0)
    with pytest.raises(ValueError, match="but nothing was logged"):
        plot_training_curves(tmp_path, tmp_path / "curves.png")
