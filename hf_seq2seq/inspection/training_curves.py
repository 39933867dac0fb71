"""The curves of a training run that its trainer logged: loss, validation metrics and learning rate."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import TrainerState

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.evaluation import METRICS

from .figures import new_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


logger = logging.getLogger(__name__)

# What each panel shows: its title, and name and key of each of its curves.
_PANELS = (
    ("loss for each target token", (("training, with label smoothing", "loss"), ("validation", "eval_loss"))),
    ("validation scores", tuple((METRICS[name].title, f"eval_{name}") for name in ("bleu", "chrf"))),
    ("learning rate", (("learning rate", "learning_rate"),)),
)


@dataclass(frozen=True)
class Curve:
    """A number that was logged during training.

    Attributes:
        name: The name of the number.
        updates: After how many updates it was logged, each time.
        values: Its value, each time.
    """

    name: str
    updates: list[int]
    values: list[float]


@dataclass(frozen=True)
class Panel:
    """Curves that share an axis.

    Attributes:
        title: What the values are.
        curves: The curves.
    """

    title: str
    curves: list[Curve]


def training_curves(run: PathLike) -> list[Panel]:
    """Returns the curves of loss, validation metrics and learning rate, as far as a run logged them.

    Args:
        run: A `trainer_state.json`, or a folder that holds it or checkpoints. Of several, the latest is read.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, or nothing was logged.
    """
    history = _latest_state(Path(run)).log_history
    panels = [Panel(title, logged) for title, curves in _PANELS if (logged := _logged(history, curves))]
    if not panels:
        raise ValueError(f"`{run}` must hold the log of a run, but nothing was logged. Lower `logging_steps`.")
    return panels


def _latest_state(run: Path) -> TrainerState:
    files = [run] if run.is_file() else [run / "trainer_state.json", *run.glob("checkpoint-*/trainer_state.json")]
    files = [file for file in files if file.is_file()]
    if not files:
        raise FileNotFoundError(
            f"`{run}` must be the folder of a training run, with trainer_state.json in it or in a checkpoint, but has "
            "none. Name the `output_dir` of `hf-seq2seq train`."
        )
    states: list[TrainerState] = []
    for file in files:
        try:
            states.append(TrainerState.load_from_json(str(file)))
        except (ValueError, TypeError):  # no JSON, or of another kind
            logger.warning("`%s` is left out, since it is damaged: a kill may have cut it short.", file)
    if not states:
        raise ValueError(f"`{run}` must hold a trainer_state.json, but has none that is whole. Go on with the run.")
    return max(states, key=lambda state: state.global_step)


def _logged(history: list[dict[str, float]], curves: tuple[tuple[str, str], ...]) -> list[Curve]:
    """Returns the curves that have at least one value."""
    logged = []
    for name, key in curves:
        points = [(int(entry["step"]), entry[key]) for entry in history if key in entry]
        if points:
            updates, values = zip(*points, strict=True)
            logged.append(Curve(name, list(updates), list(values)))
    return logged


def draw_training_curves(panels: list[Panel]) -> "Figure":
    """Draws the curves of a run over the number of updates."""
    figure = new_figure(5 * len(panels), 3.6)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: "Axes", panel: Panel) -> None:
    for curve in panel.curves:
        # A curve of few points has a dot for each.
        marker = "o" if len(curve.updates) <= 40 else None
        axes.plot(curve.updates, curve.values, label=curve.name, marker=marker, markersize=3)
    axes.set_title(panel.title)
    axes.set_xlabel("update")
    axes.grid(alpha=0.3)
    if len(panel.curves) > 1:
        axes.legend()
