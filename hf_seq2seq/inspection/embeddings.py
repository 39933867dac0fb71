"""Tokens in the embedding space: the nearest neighbours of a token, and a projection of chosen tokens on a plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.token_lookup import Side, check_side, vocabulary

from .figures import FINISHED, Lettering, in_our_style, new_figure
from .tokens import find_token, readable_ids
from .trace import Model


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Neighbours:
    """The tokens whose embeddings have the largest cosine with a token's embedding.

    Attributes:
        token: The token.
        side: "source" for embeddings of the encoder, "target" for those of the decoder.
        tokens: The neighbours, the nearest first.
        cosines: The cosine of each neighbour with the token.
    """

    token: str
    side: Side
    tokens: list[str]
    cosines: list[float]


@dataclass(frozen=True)
class Projection:
    """The embeddings of N tokens, projected on the plane in which they differ most.

    Attributes:
        side: "source" for embeddings of the encoder, "target" for those of the decoder.
        tokens: The N tokens.
        points: Their coordinates on the first two principal components, shape (N, 2).
        explained: The share of the variance that each of the two components has.
    """

    side: Side
    tokens: list[str]
    points: Tensor
    explained: list[float]


def nearest_neighbours(
    model: Model, tokenizer: PreTrainedTokenizerBase, token: str, number: int = 10, side: Side = "source"
) -> Neighbours:
    """Returns the tokens nearest to a token, by the cosine of their embeddings.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        token: A token of the vocabulary, or a word that is a single token; ␣ may stand for a space.
        number: The number of neighbours.
        side: "source" for the encoder's embeddings, "target" for the decoder's. They may be the same table.

    Raises:
        ValueError: If there is no such token, or `number` is out of range.
    """
    table = _embeddings(model, tokenizer, side)
    highest = len(table) - 1
    if not 1 <= number <= highest:
        raise ValueError(f"`number` must be at least 1 and at most {highest}, but is {number} instead.")
    chosen = _find_embedding(tokenizer, token, side, len(table))
    cosines = torch.nn.functional.cosine_similarity(table, table[chosen][None])
    cosines[chosen] = -torch.inf
    values, ids = cosines.topk(number)
    names = readable_ids(tokenizer, [chosen, *ids.tolist()], side)
    return Neighbours(names[0], side, names[1:], values.tolist())


def project_tokens(
    model: Model, tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str], side: Side = "source"
) -> Projection:
    """Returns the embeddings of some tokens, projected by principal component analysis.

    The analysis leaves the sign of a component open; here its largest coefficient is positive.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        tokens: At least three different tokens, as for `nearest_neighbours`.
        side: "source" for the encoder's embeddings, "target" for the decoder's.

    Raises:
        ValueError: If a token is unknown, or there are fewer than three.
    """
    table = _embeddings(model, tokenizer, side)
    ids = list(dict.fromkeys(_find_embedding(tokenizer, token, side, len(table)) for token in tokens))
    if len(ids) < 3:
        raise ValueError(f"`tokens` must be at least 3 different tokens, but are {len(ids)} instead. Name more.")
    vectors = table[ids]
    _, sizes, components = torch.linalg.svd(vectors - vectors.mean(dim=0), full_matrices=False)
    components, sizes = components[:2], sizes**2
    components = components * components.gather(1, components.abs().argmax(dim=1, keepdim=True)).sign()
    points = (vectors - vectors.mean(dim=0)) @ components.T  # (N, D) -> (N, 2)
    explained = (sizes[:2] / sizes.sum().clamp(min=torch.finfo(sizes.dtype).tiny)).tolist()
    return Projection(side, readable_ids(tokenizer, ids, side), points, explained)


def _embeddings(model: Model, tokenizer: PreTrainedTokenizerBase, side: Side) -> Tensor:
    """Returns the table of embeddings, shape (V, D), up to the last row that belongs to a token."""
    check_side(side)
    table = model.get_input_embeddings() if side == "source" else model.get_decoder_input_embeddings()
    weight: Tensor = table.weight
    return weight.detach()[: 1 + max(vocabulary(tokenizer, side).values())].cpu().double()


def _find_embedding(tokenizer: PreTrainedTokenizerBase, token: str, side: Side, num_embeddings: int) -> int:
    number = find_token(tokenizer, token, side)
    if number >= num_embeddings:
        raise ValueError(
            f"`token` must be one that the model has an embedding for ({num_embeddings} tokens), but {token!r} is "
            f"number {number}. Use the tokenizer that the model was trained with."
        )
    return number


@in_our_style
def draw_neighbours(neighbours: Sequence[Neighbours]) -> "Figure":
    """Draws the nearest neighbours of some tokens: a panel for each token, with the cosines as bars."""
    columns = min(len(neighbours), 3)
    rows = -(-len(neighbours) // columns)
    lettering = Lettering(*([of_one.token, *of_one.tokens] for of_one in neighbours))
    number = len(neighbours[0].tokens)
    figure = new_figure(max(4.2 * columns, 5), rows * (0.27 * number + 0.9) + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, of_one in zip(panels, neighbours, strict=False):
        axes.barh(range(number), of_one.cosines, color=FINISHED)
        axes.set_yticks(range(number), list(map(lettering, of_one.tokens)), fontsize=9, **lettering.style)
        axes.invert_yaxis()
        for place, cosine in enumerate(of_one.cosines):
            axes.annotate(f" {cosine:.2f}", (max(cosine, 0), place), va="center", fontsize=8)
        axes.set_xlim(min(0.0, *of_one.cosines), max(*of_one.cosines, 0.1) * 1.15)
        axes.set_title(lettering(f"nearest to {of_one.token}"), **lettering.style)
        axes.set_xlabel("cosine")
    for axes in panels[len(neighbours) :]:
        axes.remove()
    figure.suptitle(f"Neighbours in the embedding space ({neighbours[0].side} side)")
    return figure


@in_our_style
def draw_projection(projection: Projection) -> "Figure":
    """Draws tokens as points on the plane in which their embeddings differ most."""
    lettering = Lettering(projection.tokens)
    figure = new_figure(8, 6.4)
    axes = figure.subplots()
    axes.scatter(projection.points[:, 0], projection.points[:, 1], s=18, color=FINISHED)
    axes.margins(0.12)
    axes.grid(visible=True)
    _label_points(axes, projection.points, projection.tokens, lettering)
    for name, share in zip(("x", "y"), projection.explained, strict=True):
        which = "first" if name == "x" else "second"
        axes.set(**{f"{name}label": f"{which} principal component ({100 * share:.0f} % of the variance)"})
    axes.set_title(f"Embeddings of {len(projection.tokens)} tokens ({projection.side} side)")
    return figure


def _label_points(axes: "Axes", points: Tensor, labels: Sequence[str], lettering: Lettering) -> None:
    """Writes a label beside each point, at the side where it covers the least of points and other labels."""
    figure: Any = axes.figure
    figure.draw_without_rendering()  # computes the place of the axes
    dots = axes.transData.transform(points.tolist()) * 72 / figure.dpi  # in points of a printer
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in dots]
    for (x, y), label, point in zip(dots, labels, points.tolist(), strict=True):
        width, height = 6.2 * len(label), 11.0
        beside = [(left, low) for left in (5.0, -5.0 - width) for low in (-4.0, 4.0, -12.0, 14.0, -22.0)]
        offsets = [*beside, (-width / 2, 6.0), (-width / 2, -16.0)]
        boxes = [(x + left, y + low, x + left + width, y + low + height) for left, low in offsets]
        covered = [sum(_common_area(box, other) for other in taken) for box in boxes]
        chosen = min(range(len(boxes)), key=covered.__getitem__)
        taken.append(boxes[chosen])
        axes.annotate(
            lettering(label),
            point,
            xytext=offsets[chosen],
            textcoords="offset points",
            va="bottom",
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2},
            **lettering.style,
        )


Box = tuple[float, float, float, float]


def _common_area(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
