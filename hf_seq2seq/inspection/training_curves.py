"""Loss, scores and learning rate of a training run, from what its trainer logged."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerState


if TYPE_CHECKING:
    from matplotlib.axes import Axes


PathLike = str | os.PathLike[str]

# What each panel shows: its title, and name and key of each of its curves.
_PANELS = (
    ("loss for each target token", (("training, with label smoothing", "loss"), ("validation", "eval_loss"))),
    ("validation scores", (("BLEU", "eval_bleu"), ("chrF", "eval_chrf"))),
    ("learning rate", (("learning rate", "learning_rate"),)),
)


def plot_training_curves(run: PathLike, output: PathLike) -> None:
    """Draw how the losses, the scores and the learning rate of a run went, by the number of updates.

    Args:
        run: A run's `trainer_state.json`, or a folder that holds it or checkpoints, of which the latest is taken.
        output: The file to write; its ending says how, such as .png or .svg.

    Raises:
        FileNotFoundError: If there is no such file, **or**
        ValueError: If nothing was logged.
    """
    from matplotlib.figure import Figure

    history = TrainerState.load_from_json(str(_find_state(Path(run)))).log_history
    panels = [(title, drawn) for title, curves in _PANELS if (drawn := _logged(history, curves))]
    if not panels:
        raise ValueError(f"`{run}` must hold the log of a run, but nothing was logged. Lower `logging_steps`.")
    figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, title, curves)
    figure.savefig(output, dpi=150)


def _find_state(run: Path) -> Path:
    if run.is_file():
        return run
    states = [run / "trainer_state.json", *run.glob("checkpoint-*/trainer_state.json")]
    found = [state for state in states if state.is_file()]
    if not found:
        raise FileNotFoundError(
            f"`{run}` must be the folder of a training run, with trainer_state.json in it or in a checkpoint, but has "
            "none. Name the `output_dir` of `hf-seq2seq train`."
        )
    return max(found, key=lambda state: TrainerState.load_from_json(str(state)).global_step)


def _logged(
    history: list[dict[str, float]], curves: tuple[tuple[str, str], ...]
) -> dict[str, tuple[list[float], list[float]]]:
    """Returns updates and values of each curve that was logged at all, by its name."""
    drawn = {}
    for name, key in curves:
        points = [(entry["step"], entry[key]) for entry in history if key in entry]
        if points:
            steps, values = zip(*points, strict=True)
            drawn[name] = (list(steps), list(values))
    return drawn


def _draw(axes: "Axes", title: str, curves: dict[str, Any]) -> None:
    for name, (steps, values) in curves.items():
        # A dot for each point where they are few.
        axes.plot(steps, values, label=name, marker="o" if len(steps) <= 40 else None, markersize=3)
    axes.set_title(title)
    axes.set_xlabel("update")
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend()
