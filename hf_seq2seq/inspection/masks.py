"""The causal and padding masks of a batch, as the model applied them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from .attention import AXES
from .figures import FORBIDDEN, Lettering, draw_heat_map, in_our_style, map_size, new_figure, wrapped
from .trace import STACK_NAMES, Trace


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Masks:
    """The masks of one pair of texts: True where a query may attend to a key.

    Attributes:
        source_tokens: The S tokens of the source, padding included.
        input_tokens: The T tokens of the decoder's input, padding included.
        encoder: The mask of the encoder's self-attention, shape (S, S).
        decoder: The mask of the decoder's self-attention, shape (T, T).
        cross: The mask of cross-attention, shape (T, S).
        source: The source text.
    """

    source_tokens: list[str]
    input_tokens: list[str]
    encoder: Tensor
    decoder: Tensor
    cross: Tensor
    source: str


def attention_masks(traces: Sequence[Trace]) -> list[Masks]:
    """Returns the masks of each pair in a batch that `trace` ran; they are the same in all layers of a stack."""
    return [
        Masks(
            trace.source_tokens,
            trace.input_tokens,
            encoder=trace.attention("encoder").allowed,
            decoder=trace.attention("decoder").allowed,
            cross=trace.attention("cross").allowed,
            source=trace.source,
        )
        for trace in traces
    ]


@in_our_style
def draw_masks(masks: Sequence[Masks]) -> "Figure":
    """Draws the masks of a batch: three in a row for each pair of texts, under the source text."""
    from matplotlib.patches import Patch

    lettering = Lettering(*([*pair.source_tokens, *pair.input_tokens, pair.source] for pair in masks))
    sources, inputs = masks[0].source_tokens, masks[0].input_tokens
    shapes = {"encoder": (sources, sources), "decoder": (inputs, inputs), "cross": (inputs, sources)}
    sizes = [map_size(*tokens, is_small=True) for tokens in shapes.values()]
    widths = [width for width, _ in sizes]
    height = max(height for _, height in sizes)
    figure = new_figure(sum(widths) + 0.6, (height + 0.6) * len(masks) + 0.8)
    for pair, part in zip(masks, figure.subfigures(len(masks), 1, squeeze=False).flatten(), strict=True):
        title = wrapped(
            lettering(f"\N{LEFT DOUBLE QUOTATION MARK}{pair.source}\N{RIGHT DOUBLE QUOTATION MARK}"), sum(widths)
        )
        part.suptitle(title, **lettering.style)
        for axes, stack in zip(part.subplots(1, 3, width_ratios=widths), shapes, strict=True):
            allowed: Tensor = getattr(pair, stack)
            rows = pair.source_tokens if stack == "encoder" else pair.input_tokens
            columns = pair.input_tokens if stack == "decoder" else pair.source_tokens
            image = draw_heat_map(axes, allowed.float(), rows, columns, lettering, highest=1.25, allowed=allowed)
            axes.set_title(STACK_NAMES[stack].capitalize())
            axes.set_ylabel(AXES[stack][0].split(" \N{RIGHTWARDS ARROW}")[0])
            axes.set_xlabel(AXES[stack][1])
    colour = image.cmap(1.0 / 1.25)
    legend = [Patch(color=colour, label="may look"), Patch(color=FORBIDDEN, label="masked")]
    figure.legend(handles=legend, loc="outside upper right", ncols=2)
    figure.suptitle("Which tokens may look at which, as in training", ha="left", x=0.01)
    return figure
