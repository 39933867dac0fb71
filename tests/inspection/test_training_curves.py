"""The curves of a run are what its trainer logged, each by its updates."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from hf_seq2seq.inspection import Curve, Panel, draw_training_curves, training_curves


HISTORY = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-4},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-4},
    {"step": 20, "eval_loss": 3.5, "eval_bleu": 12.0, "eval_chrf": 30.0},
    {"step": 20, "train_loss": 4.5, "train_runtime": 1.0},
]


def write_state(folder: Path, history: list[dict[str, float]], step: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": step}))


def test_each_curve_is_what_was_logged(tmp_path: Path) -> None:
    write_state(tmp_path / "run" / "checkpoint-9", HISTORY[:1], 9)
    write_state(tmp_path / "run" / "checkpoint-20", HISTORY, 20)  # the latest, though "20" sorts before "9"
    panels = training_curves(tmp_path / "run")
    assert panels == [
        Panel(
            "loss for each target token",
            [Curve("training, with label smoothing", [10, 20], [5.0, 4.0]), Curve("validation", [20], [3.5])],
        ),
        Panel("validation scores", [Curve("BLEU", [20], [12.0]), Curve("chrF", [20], [30.0])]),
        Panel("learning rate", [Curve("learning rate", [10, 20], [1e-4, 2e-4])]),
    ]
    for axes, panel in zip(draw_training_curves(panels).axes, panels, strict=True):
        assert axes.get_title() == panel.title
        drawn = [Curve(str(line.get_label()), list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]  # type: ignore[arg-type]
        assert drawn == panel.curves


def test_the_training_loss_stands_beside_the_least_that_it_can_be(tmp_path: Path) -> None:
    """The floor is torch's own loss of the best prediction there is: the smoothed distribution itself."""
    write_state(tmp_path, HISTORY, 20)
    (tmp_path / "training_settings.json").write_text(json.dumps({"label_smoothing_factor": 0.1}))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 50}))
    best = torch.full((1, 50), 0.1 / 50, dtype=torch.float64)
    best[0, 7] += 0.9
    floor = torch.nn.functional.cross_entropy(best.log(), torch.tensor([7]), label_smoothing=0.1).item()
    curve = training_curves(tmp_path)[0].curves[-1]
    assert (curve.name, curve.updates) == ("the least that it can be", [10, 20])
    assert curve.values == pytest.approx([floor, floor])
    (tmp_path / "training_settings.json").write_text(json.dumps({"label_smoothing_factor": 0.0}))
    assert len(training_curves(tmp_path)[0].curves) == 2


def test_a_run_without_validation_has_no_empty_panel(tmp_path: Path) -> None:
    write_state(tmp_path, HISTORY[:2], 20)
    panels = training_curves(tmp_path / "trainer_state.json")
    assert [curve.name for panel in panels for curve in panel.curves] == [
        "training, with label smoothing",
        "learning rate",
    ]


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be the folder of a training run, with trainer_state\.json"):
        training_curves(tmp_path)
    write_state(tmp_path, [], 0)
    with pytest.raises(ValueError, match="but nothing was logged"):
        training_curves(tmp_path)


def test_what_a_kill_cut_short_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_state(tmp_path / "checkpoint-9", HISTORY[:1], 9)
    for step, text in ((20, ""), (30, '{"log_history": [{"st')):
        write_state(tmp_path / f"checkpoint-{step}", HISTORY, step)
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    assert training_curves(tmp_path)[0].curves[0].updates == [10]
    assert "checkpoint-30/trainer_state.json` is left out, since it is damaged" in caplog.text
    shutil.rmtree(tmp_path / "checkpoint-9")
    with pytest.raises(ValueError, match=r"has none that is whole"):
        training_curves(tmp_path)
