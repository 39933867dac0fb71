"""The curves of a training run that its trainer logged: loss, validation metrics and learning rate."""

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import TrainerState

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.evaluation import METRICS

from .figures import CURVES, in_our_style, new_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


logger = logging.getLogger(__name__)

_SMOOTHED = "training, with label smoothing"
_FLOOR = "the least that it can be"

_NOT_DRAWN = ("ter", "exact_match")  # they say what the other scores of translation say

# What each panel shows: its title, and name and key of each of its curves.
_PANELS = (
    ("loss for each target token", ((_SMOOTHED, "loss"), ("validation", "eval_loss"))),
    (
        "validation scores",
        tuple((row.title, f"eval_{name}") for name, row in METRICS.items() if name not in _NOT_DRAWN),
    ),
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
    _add_floor(panels, Path(run))
    if not panels:
        raise ValueError(f"`{run}` must hold the log of a run, but nothing was logged. Lower `logging_steps`.")
    return panels


def _add_floor(panels: list[Panel], run: Path) -> None:
    """Adds the least that a loss with label smoothing can be, where the folder tells: training's comes down to it.

    With smoothing eps and V tokens it is the entropy of the target distribution, 1 - eps + eps / V on the right token
    and eps / V on each other one (Vaswani et al., 2017, section 5.4). The validation loss has no smoothing.
    """
    settings, config = run / "training_settings.json", run / "config.json"
    if not (panels and panels[0].curves[0].name == _SMOOTHED and settings.is_file() and config.is_file()):
        return
    smoothing = json.loads(settings.read_text(encoding="utf-8")).get("label_smoothing_factor")
    sizes = json.loads(config.read_text(encoding="utf-8"))
    vocab_size = sizes.get("decoder_vocab_size") or sizes.get("vocab_size")
    if not smoothing or not vocab_size:
        return
    rest = smoothing / vocab_size
    right = 1 - smoothing + rest
    floor = -right * math.log(right) - (vocab_size - 1) * rest * math.log(rest)
    updates = [update for curve in panels[0].curves for update in curve.updates]
    panels[0].curves.append(Curve(_FLOOR, [min(updates), max(updates)], [floor, floor]))


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


@in_our_style
def draw_training_curves(panels: list[Panel]) -> "Figure":
    """Draws the curves of a run over the number of updates."""
    figure = new_figure(5 * len(panels), 3.6)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: "Axes", panel: Panel) -> None:
    for number, curve in enumerate(panel.curves):
        # A curve of few points has a dot for each. The floor is the training loss's own, so it has its colour.
        is_floor = curve.name == _FLOOR
        axes.plot(
            *(curve.updates, curve.values),
            label=curve.name,
            marker="o" if len(curve.updates) <= 40 and not is_floor else None,
            markersize=3,
            color=CURVES[0 if is_floor else number],
            linestyle=":" if is_floor else "-",
        )
    axes.set_title(panel.title)
    axes.set_xlabel("update")
    axes.grid(visible=True)
    if len(panel.curves) > 1:
        axes.legend()
