"""Describes what a figure holds, in lines that a person can compare with stored ones."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle


def describe(figure: Figure) -> str:
    """Returns the texts, curves, bars, points and heat maps of a figure, with their colours and sizes."""
    width, height = figure.get_size_inches()
    lines = [f"figure {width:.2f} x {height:.2f}"]
    for part in [figure, *figure.subfigs]:
        title = getattr(part, "_suptitle", None)
        lines += [f"title {title.get_text()!r}"] if title else []
        for legend in part.legends:
            lines.append(f"legend {[text.get_text() for text in legend.get_texts()]}")
    for axes in figure.axes:
        lines += ["", *_describe_axes(axes)]
    return "\n".join(lines) + "\n"


def _describe_axes(axes: Axes) -> list[str]:
    lines = [f"axes {axes.get_title()!r}, x {axes.get_xlabel()!r}, y {axes.get_ylabel()!r}"]
    for name, labels in (("x", axes.get_xticklabels()), ("y", axes.get_yticklabels())):
        words = [(label.get_text(), int(label.get_rotation())) for label in labels]
        if any(any(sign.isalpha() for sign in word) for word, _ in words):
            lines.append(f"{name} labels {words}")
    for image in axes.images:
        values: Any = image.get_array()
        rows = [" ".join("masked" if cell is np.ma.masked else f"{cell:.2f}" for cell in row) for row in values]
        lines += [f"map {image.cmap.name} from {image.norm.vmin:.2f} to {image.norm.vmax:.2f}", *rows]
    for line in axes.lines:
        points = " ".join(f"({x:.2f},{y:.2f})" for x, y in np.asarray(line.get_xydata()))
        lines.append(f"line {to_hex(line.get_color())} {line.get_linestyle()} {line.get_linewidth()} {points}")
    for bar in axes.patches:
        assert isinstance(bar, Rectangle)
        lines.append(f"bar {to_hex(bar.get_facecolor())}, {bar.get_width():.2f} long")
    for text in axes.texts:
        place = " ".join(f"{number:.2f}" for number in getattr(text, "xy", text.get_position()))
        lines.append(f"text {text.get_text()!r} {to_hex(text.get_color())} at {place}")
    legend = axes.get_legend()
    return lines + ([f"legend {[text.get_text() for text in legend.get_texts()]}"] if legend else [])
