"""Scaled dot-product attention of one head, from Q K^T to the weights: Vaswani et al. (2017), section 3.2.1."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from .attention import AXES, check_head
from .figures import Lettering, add_colour_bar, draw_heat_map, map_size, new_figure
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
    check_head(head, len(attention.weights), stack)
    queries, keys = attention.queries[head - 1], attention.keys[head - 1]
    products = queries @ keys.T
    return HeadScores(
        *(stack, len(getattr(trace, stack)) if layer is None else layer, head, queries.shape[-1]),
        *(attention.query_tokens, attention.key_tokens, attention.allowed),
        *(products, products * attention.scaling, attention.weights[head - 1]),
    )


def draw_head_scores(scores: HeadScores) -> "Figure":
    """Draws a head's products, scaled products and weights beside each other; masked cells are grey."""
    lettering = Lettering(scores.query_tokens, scores.key_tokens)
    width, height = map_size(scores.query_tokens, scores.key_tokens, is_small=True)
    columns = 3 if width < 6 else 1  # wide maps are drawn one below the other
    figure = new_figure(columns * (width + 1.0), (3 // columns) * (height + 0.3) + 0.6)
    panels = {
        "Q K^T": scores.products,
        f"Q K^T / sqrt({scores.key_dim})": scores.scaled,
        "softmax of it: the weights": scores.weights,
    }
    queries, keys = AXES[scores.stack]
    for index, (axes, (title, values)) in enumerate(
        zip(figure.subplots(3 // columns, columns), panels.items(), strict=True)
    ):
        image = draw_heat_map(
            axes,
            values,
            scores.query_tokens,
            scores.key_tokens,
            lettering,
            lowest=0.0 if values is scores.weights else None,
            allowed=scores.allowed,
        )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(keys)
        if index % columns == 0:
            axes.set_ylabel(queries)
        add_colour_bar(figure, image, [axes], "")
    figure.suptitle(
        f"{STACK_NAMES[scores.stack]}, layer {scores.layer}, head {scores.head}: from scores to weights".capitalize(),
        fontsize=11,
    )
    return figure
