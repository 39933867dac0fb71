"""The causal and padding masks of a batch, as the model applied them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from .attention import AXES
from .figures import FORBIDDEN, Lettering, draw_heat_map, map_size, new_figure
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
    """

    source_tokens: list[str]
    input_tokens: list[str]
    encoder: Tensor
    decoder: Tensor
    cross: Tensor


def attention_masks(traces: Sequence[Trace]) -> list[Masks]:
    """Returns the masks of each pair in a batch that `trace` ran; they are the same in all layers of a stack."""
    return [
        Masks(
            trace.source_tokens,
            trace.input_tokens,
            *(trace.attention(stack).allowed for stack in ("encoder", "decoder", "cross")),
        )
        for trace in traces
    ]


def draw_masks(masks: Sequence[Masks]) -> "Figure":
    """Draws the masks of a batch: three in a row for each pair of texts."""
    from matplotlib.patches import Patch

    lettering = Lettering(*(tokens for pair in masks for tokens in (pair.source_tokens, pair.input_tokens)))
    sources, inputs = masks[0].source_tokens, masks[0].input_tokens
    shapes = {"encoder": (sources, sources), "decoder": (inputs, inputs), "cross": (inputs, sources)}
    sizes = [map_size(*tokens, is_small=True) for tokens in shapes.values()]
    widths = [width for width, _ in sizes]
    height = max(height for _, height in sizes)
    figure = new_figure(sum(widths) + 0.6, (height + 0.2) * len(masks) + 0.8)
    panels = figure.subplots(len(masks), 3, squeeze=False, width_ratios=widths, gridspec_kw={"hspace": 0.1})
    for pair, of_pair in zip(masks, panels, strict=True):
        tokens = {"encoder": pair.source_tokens, "decoder": pair.input_tokens, "cross": pair.input_tokens}
        for axes, (stack, rows) in zip(of_pair, tokens.items(), strict=True):
            allowed: Tensor = getattr(pair, stack)
            columns = pair.input_tokens if stack == "decoder" else pair.source_tokens
            draw_heat_map(axes, allowed.float(), rows, columns, lettering, highest=1.25, allowed=allowed)
            axes.set_title(STACK_NAMES[stack].capitalize(), fontsize=10)
            axes.set_ylabel(AXES[stack][0])
            axes.set_xlabel(AXES[stack][1])
    image = axes.images[0]
    legend = [Patch(color=image.cmap(image.norm(1.0)), label="may look"), Patch(color=FORBIDDEN, label="masked")]
    figure.legend(handles=legend, loc="outside upper right", ncols=2, frameon=False)
    figure.suptitle("Which tokens may look at which", fontsize=11)
    return figure
