"""Attention maps of one head, of all heads of a layer or of their mean; the soft alignment of a translation.

The scores Q K^T before the softmax are in head_scores.py.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.inference import Hypothesis

from .figures import (
    RING,
    Lettering,
    add_colour_bar,
    add_legend_of_masks,
    draw_heat_map,
    in_our_style,
    map_size,
    new_figure,
    wrapped,
)
from .tokens import readable_tokens
from .trace import STACK_NAMES, Stack, Trace, check_number


if TYPE_CHECKING:
    from matplotlib.figure import Figure


Head = int | Literal["all", "mean"]

# The labels of the two axes, queries and keys, for each stack.
AXES = {
    "encoder": ("source token that looks", "source token looked at"),
    "decoder": ("target token read \N{RIGHTWARDS ARROW} written", "target token looked at"),
    "cross": ("target token read \N{RIGHTWARDS ARROW} written", "source token looked at"),
}
WEIGHT = "attention weight; each row sums to 1"


@dataclass(frozen=True)
class AttentionMaps:
    """N maps of one layer that tell how much each of T tokens attends to each of S tokens.

    Attributes:
        stack: "encoder", "decoder" or "cross".
        layer: The layer's number, from 1.
        num_layers: How many layers the stack has.
        head: The head's number, from 1; "mean" for the mean of all heads, "all" for a map of each head.
        num_heads: How many heads the layer has.
        query_tokens: The T tokens that attend.
        key_tokens: The S tokens that are attended to.
        allowed: True where a query may attend to a key, shape (T, S); the weights are 0 elsewhere.
        weights: Shape (N, T, S), each row summing to 1.
        written_tokens: What the decoder writes after it has read each of the T tokens; empty for the encoder.
    """

    stack: Stack
    layer: int
    num_layers: int
    head: Head
    num_heads: int
    query_tokens: list[str]
    key_tokens: list[str]
    allowed: Tensor
    weights: Tensor
    written_tokens: list[str] = field(default_factory=list)

    @property
    def row_labels(self) -> list[str]:
        """The labels of the T rows: in the decoder the token read, an arrow and the token written."""
        return row_labels(self.query_tokens, self.written_tokens)

    @property
    def title(self) -> str:
        """What the maps show, as a title."""
        which = {"all": f"all {self.num_heads} heads", "mean": f"mean of {self.num_heads} heads"}.get(
            str(self.head), f"head {self.head} of {self.num_heads}"
        )
        return f"{STACK_NAMES[self.stack]}, layer {self.layer} of {self.num_layers}, {which}".capitalize()


@dataclass(frozen=True)
class SoftAlignment:
    """How much each token of a translation attended to each token of the source.

    It is the mean of the heads of the decoder's last layer but one, or of its only layer.

    Attributes:
        translation: The translation.
        source_tokens: The S tokens of the source.
        target_tokens: The T tokens of the translation.
        weights: Shape (T, S), each row summing to 1.
        best: For each target token, the place (from 0) of the source token that it attended to most.
    """

    translation: str
    source_tokens: list[str]
    target_tokens: list[str]
    weights: Tensor
    best: list[int]


def attention_maps(
    trace: Trace, stack: Stack = "cross", layer: int | None = None, head: Head = "all"
) -> AttentionMaps:
    """Returns the attention weights of a layer.

    Args:
        trace: The trace of a pair of texts.
        stack: "encoder" or "decoder" for self-attention, "cross" for the decoder's attention to the source.
        layer: The layer's number, from 1; by default the last.
        head: The head's number, from 1; "all" for a map of each head, "mean" for the mean of the heads.

    Raises:
        ValueError: If there is no such stack, layer or head.
    """
    attention = trace.attention(stack, layer)
    num_layers, num_heads = len(getattr(trace, stack)), len(attention.weights)
    weights = attention.weights
    if head == "mean":
        weights = weights.mean(dim=0, keepdim=True)
    elif head != "all":
        check_head(head, num_heads, stack)
        weights = weights[head - 1 : head]
    return AttentionMaps(
        *(stack, num_layers if layer is None else layer, num_layers, head, num_heads),
        *(attention.query_tokens, attention.key_tokens, attention.allowed, weights),
        written_tokens=[] if stack == "encoder" else trace.target_tokens,
    )


def row_labels(read: list[str], written: list[str]) -> list[str]:
    """Returns labels such as "<s> -> drei" of tokens read and written, or the tokens read if none are written."""
    if not written:
        return read
    return [f"{one} \N{RIGHTWARDS ARROW} {other}" for one, other in zip(read, written, strict=True)]


def soft_alignment(tokenizer: PreTrainedTokenizerBase, hypothesis: Hypothesis) -> SoftAlignment:
    """Returns the soft alignment of a translation: the attention of a `Hypothesis`, with readable tokens.

    Args:
        tokenizer: The translator's tokenizer.
        hypothesis: A hypothesis that `translator.hypotheses([text], attention=True)` returned.

    Raises:
        ValueError: If the hypothesis has no attention.
    """
    if hypothesis.attention is None:
        raise ValueError(
            "`hypothesis` must have an attention, but has none. Ask for it with `translator.hypotheses(texts, "
            "attention=True)`; a blank text has none."
        )
    return SoftAlignment(
        hypothesis.text,
        readable_tokens(tokenizer, hypothesis.source_tokens),
        readable_tokens(tokenizer, hypothesis.tokens),
        hypothesis.attention,
        hypothesis.attention.argmax(dim=-1).tolist(),
    )


def check_head(head: object, num_heads: int, stack: Stack) -> None:
    """Checks the number of a head.

    Raises:
        ValueError: If the layer has no head of that number.
    """
    if not isinstance(head, int):
        raise ValueError(f"`head` must be a number from 1, or all, or mean, but is {head!r} instead.")
    check_number("head", head, num_heads, STACK_NAMES[stack])


@in_our_style
def draw_attention_maps(maps: AttentionMaps) -> "Figure":
    """Draws attention maps as heat maps, side by side if there are several. Their colours go from 0 to 1."""
    number = len(maps.weights)
    columns = math.ceil(math.sqrt(number))
    rows = -(-number // columns)
    labels = maps.row_labels
    lettering = Lettering(labels, maps.key_tokens)
    width, height = map_size(labels, maps.key_tokens, is_small=number > 1)
    figure = new_figure(columns * width + 0.8, rows * height + 0.6)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    queries, keys = AXES[maps.stack]
    for index, (axes, weights) in enumerate(zip(panels, maps.weights, strict=False)):
        image = draw_heat_map(axes, weights, labels, maps.key_tokens, lettering, allowed=maps.allowed)
        if number > 1:
            axes.set_title(f"head {index + 1}")
        if index % columns == 0:
            axes.set_ylabel(queries)
        if index + columns >= number:
            axes.set_xlabel(keys)
    for axes in panels[number:]:
        axes.remove()
    figure.suptitle(wrapped(maps.title, figure.get_figwidth()))
    add_colour_bar(figure, image, list(panels[:number]), WEIGHT)
    if not maps.allowed.all():
        add_legend_of_masks(figure)
    return figure


@in_our_style
def draw_soft_alignment(alignment: SoftAlignment) -> "Figure":
    """Draws a soft alignment as a heat map, with a ring at the most attended token of each row."""
    lettering = Lettering(alignment.source_tokens, alignment.target_tokens, [alignment.translation])
    figure = new_figure(*map_size(alignment.target_tokens, alignment.source_tokens))
    axes = figure.subplots()
    image = draw_heat_map(axes, alignment.weights, alignment.target_tokens, alignment.source_tokens, lettering)
    for target, source in enumerate(alignment.best):
        axes.plot(source, target, "o", markersize=6, markerfacecolor="none", markeredgecolor=RING)
    axes.set_xlabel("source token looked at")
    axes.set_ylabel("token written")
    title = "Soft alignment: mean of all heads of the last layer but one, or of the only layer"
    figure.suptitle(wrapped(f"{title}\nring: the source token looked at most", figure.get_figwidth()))
    add_colour_bar(figure, image, [axes], WEIGHT)
    return figure
