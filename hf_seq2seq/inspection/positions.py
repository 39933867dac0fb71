"""A model's position vectors, and how like each other they are."""

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
        side: Whose they are: "source" or "target". Sinusoids are the same.
        vectors: Shape (L, D).
        similarity: The cosine of each two, shape (L, L). Between sinusoids it depends on their distance alone: Vaswani
            et al. (2017), section 3.5.
    """

    kind: str
    side: Side
    vectors: Tensor
    similarity: Tensor


def position_vectors(model: Model, num_positions: int = 100, side: Side = "source") -> Positions:
    """Return the position vectors that a model adds to its embeddings.

    Args:
        model: The model.
        num_positions: How many, from position 0.
        side: "source" for the encoder's, "target" for the decoder's.

    Raises:
        ValueError: If there are no positions, or a learned table has fewer.
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
    """Draw the table of positions, and the similarity of each two of them."""
    length, width = positions.vectors.shape
    figure = new_figure(12, 5.2)
    table, similarity = figure.subplots(1, 2, width_ratios=[1.25, 1])
    # Both are centred on 0: what is lighter than the middle is positive.
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
