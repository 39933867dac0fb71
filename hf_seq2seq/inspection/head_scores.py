"""Scaled dot-product attention of one head, from Q K^T to the weights: Vaswani et al. (2017), section 3.2.1."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from .attention import AXES, check_head, row_labels
from .figures import (
    COLOURS,
    DIVERGING,
    Lettering,
    add_colour_bar,
    add_legend_of_masks,
    draw_heat_map,
    in_our_style,
    map_size,
    new_figure,
    wrapped,
)
from .trace import STACK_NAMES, Stack, Trace


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class HeadScores:
    """The attention scores of one head for T queries and S keys: the products Q K^T, and what becomes of them.

    Attributes:
        stack: "encoder", "decoder" or "cross".
        layer: The layer's number, from 1.
        head: The head's number, from 1.
        key_dim: The width d_k of queries and keys.
        query_tokens: The T tokens that attend.
        key_tokens: The S tokens that are attended to.
        allowed: True where a query may attend to a key, shape (T, S).
        products: Q K^T, shape (T, S).
        scaled: Q K^T / sqrt(d_k), shape (T, S).
        weights: The softmax of `scaled` over the allowed keys, shape (T, S), as the model computed it.
        num_layers: How many layers the stack has.
        num_heads: How many heads the layer has.
        written_tokens: What the decoder writes after it has read each of the T tokens; empty for the encoder.
    """

    stack: Stack
    layer: int
    head: int
    key_dim: int
    query_tokens: list[str]
    key_tokens: list[str]
    allowed: Tensor
    products: Tensor
    scaled: Tensor
    weights: Tensor
    num_layers: int
    num_heads: int
    written_tokens: list[str] = field(default_factory=list)


def head_scores(trace: Trace, stack: Stack = "cross", layer: int | None = None, head: int = 1) -> HeadScores:
    """Returns the attention scores of one head: Q K^T, the scaled products, and their softmax.

    Args:
        trace: The trace of a pair of texts.
        stack: "encoder" or "decoder" for self-attention, "cross" for the decoder's attention to the source.
        layer: The layer's number, from 1; by default the last.
        head: The head's number, from 1.

    Raises:
        ValueError: If there is no such stack, layer or head.
    """
    attention = trace.attention(stack, layer)
    num_layers, num_heads = len(getattr(trace, stack)), len(attention.weights)
    check_head(head, num_heads, stack)
    queries, keys = attention.queries[head - 1], attention.keys[head - 1]
    products = queries @ keys.T
    return HeadScores(
        *(stack, num_layers if layer is None else layer, head, queries.shape[-1]),
        *(attention.query_tokens, attention.key_tokens, attention.allowed),
        *(products, products * attention.scaling, attention.weights[head - 1]),
        num_layers=num_layers,
        num_heads=num_heads,
        written_tokens=[] if stack == "encoder" else trace.target_tokens,
    )


@in_our_style
def draw_head_scores(scores: HeadScores) -> "Figure":
    """Draws what becomes of a head's scores beside each other: the products, scaled, masked, and their softmax.

    The step of the mask is left out where nothing is masked.
    """
    labels = row_labels(scores.query_tokens, scores.written_tokens)
    lettering = Lettering(labels, scores.key_tokens)
    is_masked = not bool(scores.allowed.all())
    panels = {
        "scores: Q K^T": (scores.products, None),
        f"scaled: Q K^T / sqrt({scores.key_dim})": (scores.scaled, None),
        **({"masked": (scores.scaled, scores.allowed)} if is_masked else {}),
        "softmax: the weights": (scores.weights, scores.allowed),
    }
    width, height = map_size(labels, scores.key_tokens, is_small=True)
    columns = 1 if width > 7 else 3 if len(panels) == 3 and width < 5 else 2
    rows = -(-len(panels) // columns)
    figure = new_figure(columns * (width + 1.0), rows * (height + 0.3) + 0.8)
    places = figure.subplots(rows, columns, squeeze=False).flatten()
    queries, keys = AXES[scores.stack]
    for index, (axes, (title, (values, allowed))) in enumerate(zip(places, panels.items(), strict=False)):
        is_weight = values is scores.weights
        bound = 1.0 if is_weight else float(values.abs().max())
        image = draw_heat_map(
            *(axes, values, labels, scores.key_tokens, lettering),
            lowest=0.0 if is_weight else -bound,
            highest=bound,
            colours=COLOURS if is_weight else DIVERGING,
            allowed=allowed,
        )
        axes.set_title(title)
        axes.set_xlabel(keys)
        if index % columns == 0:
            axes.set_ylabel(queries)
        add_colour_bar(figure, image, [axes], "")
    for axes in places[len(panels) :]:
        axes.remove()
    which = f"layer {scores.layer} of {scores.num_layers}, head {scores.head} of {scores.num_heads}"
    title = f"{STACK_NAMES[scores.stack]}, {which}: from scores to weights".capitalize()
    figure.suptitle(wrapped(title, figure.get_figwidth()))
    if is_masked:
        add_legend_of_masks(figure)
    return figure
