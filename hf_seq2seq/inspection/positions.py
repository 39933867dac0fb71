"""The position vectors of a model, and how similar they are to each other."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hf_seq2seq.token_lookup import Side, check_side

from .figures import COLOURS, CURVES, DIVERGING, add_colour_bar, in_our_style, new_figure
from .trace import Model


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Positions:
    """The vectors of positions 0 to L - 1, each D wide.

    Attributes:
        kind: "sinusoidal" or "learned".
        side: "source" for those of the encoder, "target" for those of the decoder. Sinusoids are the same in both.
        vectors: Shape (L, D).
        similarity: The cosine of each two vectors, shape (L, L). For sinusoids it depends only on the distance of
            the two positions: Vaswani et al. (2017), section 3.5.
    """

    kind: str
    side: Side
    vectors: Tensor
    similarity: Tensor


def position_vectors(model: Model, num_positions: int = 100, side: Side = "source") -> Positions:
    """Returns the position vectors that a model adds to its embeddings.

    Args:
        model: The model.
        num_positions: The number of positions, from position 0.
        side: "source" for those of the encoder, "target" for those of the decoder.

    Raises:
        ValueError: If `num_positions` is less than 1, or more than a learned table has.
    """
    if num_positions < 1:
        raise ValueError(f"`num_positions` must be at least 1, but is {num_positions} instead.")
    check_side(side)
    stack: Any = model.model.encoder if side == "source" else model.model.decoder
    with torch.inference_mode():
        position_ids = torch.arange(num_positions, device=model.device)
        vectors = stack.embed_positions(position_ids[None])[0].cpu().double().clone()
    directions = torch.nn.functional.normalize(vectors, dim=-1)
    return Positions(model.config.position_embedding_type, side, vectors, directions @ directions.T)


@in_our_style
def draw_positions(positions: Positions) -> "Figure":
    """Draws the position vectors as a table and as curves of a few dimensions, and the similarity of each two.

    The table has the even dimensions, which are sines, apart from the odd ones, which are cosines.
    """
    length, width = positions.vectors.shape
    is_sinusoidal = positions.kind == "sinusoidal"
    parts = {"Even dimensions: sines": slice(0, None, 2), "Odd dimensions: cosines": slice(1, None, 2)}
    if not is_sinusoidal:
        parts = {"Position vectors": slice(None)}
    figure = new_figure(13, 8.6)
    grid = figure.add_gridspec(2, 2)
    bound = float(positions.vectors.abs().max())
    for column, (name, dimensions) in enumerate(parts.items()):
        table = figure.add_subplot(grid[0, column] if is_sinusoidal else grid[0, :])
        image = table.imshow(
            positions.vectors[:, dimensions],
            cmap=DIVERGING,
            aspect="auto",
            interpolation="nearest",
            vmin=-bound,
            vmax=bound,
            extent=(column - 1, column - 1 + width, length - 0.5, -0.5) if is_sinusoidal else None,
        )
        table.set(title=name, xlabel=f"dimension (of {width})", ylabel="position")
        add_colour_bar(figure, image, [table], "value")
    _draw_curves(figure.add_subplot(grid[1, 0]), positions)
    similarity = figure.add_subplot(grid[1, 1])
    image = similarity.imshow(positions.similarity, cmap=COLOURS, interpolation="nearest", vmax=1.0)
    similarity.set(title="Similarity of positions", xlabel="position", ylabel="position")
    add_colour_bar(figure, image, [similarity], "cosine")
    kind = positions.kind if is_sinusoidal else f"{positions.kind}, {positions.side}"
    figure.suptitle(f"Positions 0 to {length - 1} ({kind})")
    return figure


def _draw_curves(axes: "Axes", positions: Positions) -> None:
    """Draws a few pairs of neighbouring dimensions over the position: even ones solid, odd ones dashed."""
    width = positions.vectors.shape[1]
    for curve, colour in enumerate(CURVES):
        even = 2 * (
            curve * width // (4 * len(CURVES))
        )  # from the first half, where the waves are short enough to be seen
        for dimension in (even, even + 1):
            style = "--" if dimension % 2 else "-"
            name = f"dimension {dimension}"
            axes.plot(positions.vectors[:, dimension], color=colour, linewidth=1.2, linestyle=style, label=name)
    axes.set(title="A few dimensions", xlabel="position", ylabel="value")
    axes.grid(visible=True)
    axes.legend(ncols=len(CURVES), loc="upper center", bbox_to_anchor=(0.5, -0.12))
