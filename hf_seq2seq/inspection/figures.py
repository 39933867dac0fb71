"""The common parts of all pictures: files, sizes, heat maps with tokens on the axes, and fonts for every script."""

import logging
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache, wraps
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec
from unicodedata import east_asian_width

from torch import Tensor

from hf_seq2seq.atomic_writing import PathLike, write_bytes, write_text
from hf_seq2seq.json_files import json_of


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


logger = logging.getLogger(__name__)

ENDINGS = (".png", ".svg", ".json")
COLOURS = "viridis"  # perceptually uniform, and safe for colour-blind readers
DIVERGING = "RdBu_r"  # blue below 0, white at 0, red above
FORBIDDEN = "#d9d9d9"  # the colour of masked cells
BEST, FINISHED, OPEN, PALE = "#1f6f43", "#3b528b", "#555555", "#b5b5b5"
RING = "#ff4d4d"
CURVES = (FINISHED, "#d1495b", BEST)  # in this order
STYLE = Path(__file__).with_name("pictures.mplstyle")

_CELL, _SMALL_CELL = 0.27, 0.17  # inches
_LETTER = 0.085  # inches, the width of a letter in a label

# How the file names of fonts with many characters begin. These fonts are preferred to others.
_PREFERRED_FONTS = ("notosans", "sourcehansans", "wqy", "pingfang", "msyh", "arialunicode")
_UNDRAWABLE = "\u25a1"  # an empty square

Arguments = ParamSpec("Arguments")


def in_our_style(draw: "Callable[Arguments, Figure]") -> "Callable[Arguments, Figure]":
    """Returns a function that draws with the settings of pictures.mplstyle, whatever the caller's own are.

    Raises:
        ImportError: When it is called, if matplotlib is not installed.
    """

    @wraps(draw)
    def draw_in_our_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> "Figure":
        with _our_style():
            return draw(*args, **kwargs)

    return draw_in_our_style


def _our_style() -> Any:
    try:
        import matplotlib.figure
        import matplotlib.style
    except ImportError as error:
        raise ImportError(
            "Pictures need the library matplotlib, which is not installed: pip install 'hf-seq2seq[inspect]'"
        ) from error
    return matplotlib.style.context(["default", STYLE])


def check_output(output: PathLike) -> None:
    """Checks that a picture or JSON file can be written, for callers that compute long before they write.

    Raises:
        ValueError: If the ending of the name is unknown, or the folder does not exist.
        ImportError: If it is a picture, and matplotlib is not installed.
    """
    path = Path(output)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"`output` must be a file whose name ends in {', '.join(ENDINGS)}, but is {output} instead. Name it so."
        )
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise ValueError(f"`output` must be a file in an existing folder, but is {output} instead. Make the folder.")
    if path.suffix.lower() != ".json":
        _our_style()


def write_view(view: Any, draw: Callable[[Any], "Figure"], output: PathLike) -> None:
    """Writes the numbers of a view as JSON, or a picture of them.

    Args:
        view: The numbers, as a function of this package returned them.
        draw: The function that draws them.
        output: The file. The ending of its name decides: .json for the numbers, .png or .svg for a picture.

    Raises:
        ValueError: If the ending of the name is unknown, or the folder does not exist.
        ImportError: If it is a picture, and matplotlib is not installed.
        OSError: If it cannot be written whole. What was there before stays.
    """
    check_output(output)
    path = Path(output)
    ending = path.suffix.lower()
    if ending == ".json":
        write_text(path, as_json(view) + "\n")
        return
    written = BytesIO()
    figure = draw(view)
    with _our_style():
        figure.savefig(written, format=ending[1:])
    write_bytes(path, written.getvalue())


def as_json(view: Any) -> str:
    """Returns the numbers of a view as JSON, with tensors as nested lists, and null for what is no finite number."""
    plain = [asdict(item) for item in view] if isinstance(view, list) else asdict(view)
    return json_of(plain, ensure_ascii=False, default=Tensor.tolist)


def new_figure(width: float, height: float) -> "Figure":
    """Returns an empty figure without a window. The size is in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def wrapped(text: str, width: float) -> str:
    """Returns a title in lines that fit a figure of some inches."""
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, max(int(width * 11), 24)))


class Lettering:
    """Chooses fonts that have the characters of a figure's tokens.

    A character that no font of this machine has is drawn as a square, and a warning names it.

    Attributes:
        style: Arguments for the functions of matplotlib that write text.

    Args:
        *texts: All tokens of the figure.
    """

    def __init__(self, *texts: Iterable[str]) -> None:
        characters = {character for of_axis in texts for text in of_axis for character in text}
        families, missing = _find_fonts(frozenset(characters))
        self.style: dict[str, Any] = {"fontfamily": list(families), "parse_math": False}
        self._squares = dict.fromkeys(map(ord, missing), _UNDRAWABLE)
        if missing:
            logger.warning(
                "No font of this machine has the characters %s: they are drawn as %s. Install one that has, such as "
                "Noto Sans CJK for Chinese, Japanese and Korean (on Debian and Ubuntu: apt-get install "
                "fonts-noto-cjk).",
                *(" ".join(sorted(missing)), _UNDRAWABLE),
            )

    def __call__(self, text: str) -> str:
        """Returns a text with a square in place of each character that cannot be drawn."""
        return text.translate(self._squares)


@cache
def _find_fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns fonts that together have the characters, matplotlib's own first, and the characters that no font has."""
    from matplotlib import font_manager

    missing = set(map(ord, characters)) - _characters_of(font_manager.findfont("DejaVu Sans"))
    families = ["DejaVu Sans"]
    if missing:
        # The list that matplotlib keeps on disk lacks fonts that were installed later, so the folders are searched.
        for path in sorted(font_manager.findSystemFonts(), key=_by_preference):
            found = missing & _characters_of(path)
            if found:
                font_manager.fontManager.addfont(path)
                families.append(font_manager.FontProperties(fname=path).get_name())
                missing -= found
            if not missing:
                break
    return tuple(families), frozenset(map(chr, missing))


def _by_preference(path: str) -> tuple[int, str]:
    name = Path(path).name.lower().replace(" ", "").replace("-", "")
    ranks = [rank for rank, font in enumerate(_PREFERRED_FONTS) if name.startswith(font)]
    is_plain = not any(style in name for style in ("bold", "italic", "oblique", "light", "black", "thin"))
    return min(ranks, default=len(_PREFERRED_FONTS)) + (0 if is_plain else 100), path


@cache
def _characters_of(path: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (RuntimeError, OSError):  # a font that matplotlib cannot read
        return frozenset()


def map_size(rows: Sequence[str], columns: Sequence[str], *, is_small: bool = False) -> tuple[float, float]:
    """Returns the width and height in inches of a heat map whose tokens can be read."""
    cell = _SMALL_CELL if is_small else _CELL
    letter = _LETTER * (0.8 if is_small else 1)
    row_labels, column_labels = (letter * max(map(len, tokens), default=0) for tokens in (rows, columns))
    width = cell * len(columns) + row_labels + (0.5 if is_small else 1.6)
    height = cell * len(rows) + column_labels + (0.5 if is_small else 1.0)
    return max(width, 2.6 if is_small else 5.0), max(height, 2.2 if is_small else 3.4)


def draw_heat_map(
    axes: "Axes",
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    lettering: Lettering,
    *,
    lowest: float = 0.0,
    highest: float = 1.0,
    colours: str = COLOURS,
    allowed: Tensor | None = None,
) -> "AxesImage":
    """Draws a matrix as a heat map, with a token at each row and column.

    Args:
        axes: The axes to draw in.
        values: The matrix, shape (rows, columns).
        rows: The tokens of the rows, from the top.
        columns: The tokens of the columns.
        lettering: The fonts of the tokens.
        lowest: The value of the first colour.
        highest: The value of the last colour.
        colours: The name of matplotlib's map of colours.
        allowed: True for the cells to draw, same shape; the others are grey.

    Returns:
        The image, which `add_colour_bar` takes.
    """
    import numpy as np

    cells = np.ma.masked_array(values.numpy(), mask=False if allowed is None else ~allowed.numpy())
    image = axes.imshow(cells, cmap=colours, vmin=lowest, vmax=highest, interpolation="nearest", aspect="equal")
    axes.set_facecolor(FORBIDDEN)
    size = 9 if max(len(rows), len(columns)) <= 24 else 8
    axes.set_xticks(range(len(columns)), list(map(lettering, columns)), fontsize=size, **lettering.style)
    for column, label in zip(columns, axes.get_xticklabels(), strict=True):
        label.set_rotation(0 if _fits_upright(column) else 90)
    axes.set_yticks(range(len(rows)), list(map(lettering, rows)), fontsize=size, **lettering.style)
    return image


def _fits_upright(label: str) -> bool:
    """Returns whether a label is as narrow as a cell: a character, or two wide ones, as of Chinese."""
    return len(label) == 1 or (len(label) == 2 and all(east_asian_width(sign) in "WF" for sign in label))


def add_colour_bar(figure: "Figure", image: "AxesImage", panels: "list[Axes]", label: str) -> None:
    """Adds a bar that explains the colours, to the right of some panels."""
    # At most a fifth of an inch wide, however tall the picture is.
    aspect = max(20.0, 0.8 * figure.get_figheight() / 0.2)
    where = panels if len(panels) > 1 else panels[0]
    bar = figure.colorbar(image, ax=where, label=label, shrink=0.8, aspect=aspect, pad=0.02)
    bar.outline.set_visible(False)


def add_legend_of_masks(figure: "Figure") -> None:
    """Adds a line under the panels that names the grey of masked cells."""
    from matplotlib.patches import Patch

    figure.legend(handles=[Patch(color=FORBIDDEN, label="masked: may not be looked at")], loc="outside lower right")
