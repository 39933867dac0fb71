"""The position vectors of a model, and how similar they are to each other."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hf_seq2seq.token_lookup import Side, check_side

from .figures import COLOURS, add_colour_bar, new_figure
from .trace import Model


if TYPE_CHECKING:
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


def draw_positions(positions: Positions) -> "Figure":
    """Draws the table of position vectors, and the similarity of each two of them."""
    length, width = positions.vectors.shape
    figure = new_figure(12, 5.2)
    table, similarity = figure.subplots(1, 2, width_ratios=[1.25, 1])
    # The colours are centred on 0: lighter than the middle is positive.
    bound = float(positions.vectors.abs().max())
    image = table.imshow(
        positions.vectors, cmap=COLOURS, aspect="auto", interpolation="nearest", vmin=-bound, vmax=bound
    )
    table.set(title="Position vectors", xlabel=f"dimension (of {width})", ylabel="position")
    add_colour_bar(figure, image, [table], "value")
    image = similarity.imshow(positions.similarity, cmap=COLOURS, interpolation="nearest", vmax=1.0)
    similarity.set(title="Similarity of positions", xlabel="position", ylabel="position")
    add_colour_bar(figure, image, [similarity], "cosine")
    kind = positions.kind if positions.kind == "sinusoidal" else f"{positions.kind}, {positions.side}"
    figure.suptitle(f"Positions 0 to {length - 1} ({kind})", fontsize=11)
    return figure
