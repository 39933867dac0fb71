"""Makes what the demo page shows of a text, and checks what was typed, without knowledge of the page itself."""

import base64
import html
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.inference import Hypothesis, Translator
from hf_seq2seq.inspection.attention import AXES, AttentionMaps, SoftAlignment, soft_alignment
from hf_seq2seq.inspection.beams import BeamTree, beam_tree, draw_beam_tree
from hf_seq2seq.inspection.figures import COLOURS, FORBIDDEN, RING
from hf_seq2seq.inspection.tokens import check_texts
from hf_seq2seq.inspection.trace import Model, Trace, trace
from hf_seq2seq.search_defaults import default_search
from hf_seq2seq.token_lookup import encode_sources


if TYPE_CHECKING:
    import plotly.graph_objects as go


LONGEST_TEXT = 100  # tokens
MOST_CHARACTERS = 2000  # checked before the number of tokens, since tokenizing takes time
LARGEST_BEAM = 10
LARGEST_PENALTY = 5.0

# Pixels: the map of a short sentence fits on a phone, and the labels of a long one do not touch.
_MAP, _LARGEST_CELL, _SMALLEST_CELL = 264, 32, 16
_LABEL, _LETTER = 12, 7.5


@dataclass(frozen=True)
class Translation:
    """A translated text, and what the page shows of it.

    Attributes:
        text: The text.
        beam_size: The number of hypotheses kept at each step.
        length_penalty: As in `SearchOptions`.
        hypotheses: The `beam_size` best hypotheses, the best first.
        alignment: The soft alignment of the best hypothesis.
        trace: The trace of the best hypothesis, without logits, which the page does not show.
    """

    text: str
    beam_size: int
    length_penalty: float
    hypotheses: list[Hypothesis]
    alignment: SoftAlignment
    trace: Trace


class DemoTranslator:
    """Translates for all users of a page, one after the other, and keeps nothing of what they type.

    Args:
        model: The model. It is put in evaluation mode.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: Model, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._translator = Translator(model, tokenizer)
        # `Translator` changes the model's settings while it computes attention weights. `trace`, in another thread,
        # must not copy the model meanwhile.
        self._lock = Lock()

    @property
    def default_beam_size(self) -> int:
        """The beam size of the model's settings, or the largest of the page if that is less."""
        return min(int(default_search(self.model.generation_config)["num_beams"]), LARGEST_BEAM)

    @property
    def default_length_penalty(self) -> float:
        """The length penalty of the model's settings."""
        return float(default_search(self.model.generation_config)["length_penalty"])

    @property
    def longest_text(self) -> int:
        """The largest number of tokens of a text: that of the page, or the model's positions if they are fewer."""
        config = self.model.config
        is_learned = config.position_embedding_type == "learned"
        return min(LONGEST_TEXT, config.max_position_embeddings) if is_learned else LONGEST_TEXT

    def translate(self, text: str, beam_size: float | None = None, length_penalty: float | None = None) -> Translation:
        """Translates a text, in which line breaks count as spaces.

        Args:
            text: The text.
            beam_size: The number of hypotheses kept at each step; by default that of the model's settings.
            length_penalty: As in `SearchOptions`; by default that of the model's settings.

        Raises:
            ValueError: If the text is blank, too long or not a text, or an option is out of range.
        """
        text = self._check_text(text)
        beams = check_beam_size(self.default_beam_size if beam_size is None else beam_size)
        penalty = check_length_penalty(self.default_length_penalty if length_penalty is None else length_penalty)
        with self._lock:
            (hypotheses,) = self._translator.hypotheses(
                [text], attention=True, beam_size=beams, length_penalty=penalty, n_best=beams
            )
            (traced,) = trace(self.model, self.tokenizer, [text], hypotheses[:1])
        return Translation(
            *(text, beams, penalty, hypotheses, soft_alignment(self.tokenizer, hypotheses[0])),
            replace(traced, logits=torch.empty(0)),
        )

    def tree(self, translation: Translation) -> BeamTree | None:
        """Returns the tree of a translation's beam search, or None for greedy search, which has no tree."""
        if translation.beam_size == 1:
            return None
        with self._lock:
            return beam_tree(
                *(self.model, self.tokenizer, translation.text),
                beam_size=translation.beam_size,
                length_penalty=translation.length_penalty,
            )

    def _check_text(self, text: str) -> str:
        if isinstance(text, str) and len(text) > MOST_CHARACTERS:
            raise ValueError(_too_long(f"{MOST_CHARACTERS:,} characters", f"{len(text):,}"))
        check_texts("text", [text])
        line = " ".join(text.splitlines())
        number = len(encode_sources(self.tokenizer, [line])[0])
        if number > self.longest_text:
            raise ValueError(_too_long(f"{self.longest_text} tokens", f"{number:,}"))
        if number == 0:
            raise ValueError("`text` must hold something that the tokenizer knows, but does not. Write a sentence.")
        return line


def _too_long(limit: str, found: str) -> str:
    return (
        f"`text` must have at most {limit}, but has {found} instead. Maps and trees of longer ones could not be read, "
        "and others would wait for them. Shorten it, or cut it in two."
    )


def check_beam_size(beam_size: float) -> int:
    """Returns a beam size as a whole number.

    Raises:
        ValueError: If it is none that the page offers.
    """
    if not (isinstance(beam_size, int | float) and 1 <= beam_size <= LARGEST_BEAM and beam_size == int(beam_size)):
        raise ValueError(
            f"`beam size` must be a whole number from 1 to {LARGEST_BEAM}, but is {_shown(beam_size)} instead. Choose "
            "one of these: larger ones take longer and hardly find better translations."
        )
    return int(beam_size)


def check_length_penalty(length_penalty: float) -> float:
    """Returns a length penalty.

    Raises:
        ValueError: If it is none that the page offers.
    """
    if not (isinstance(length_penalty, int | float) and abs(length_penalty) <= LARGEST_PENALTY):
        raise ValueError(
            f"`length penalty` must be a number from {-LARGEST_PENALTY:g} to {LARGEST_PENALTY:g}, but is "
            f"{_shown(length_penalty)} instead. Beyond these only the length would decide."
        )
    return float(length_penalty)


def _shown(value: Any) -> str:
    """Returns a value that a client sent, of any kind and size, in short."""
    is_usual = isinstance(value, int | float) and abs(value) < 1e15
    return f"{value:,.10g}" if is_usual else reprlib.repr(value)


def hypotheses_table(translation: Translation) -> str:
    """Returns the hypotheses as an HTML table: rank, text, log-probability and, for beam search, the score."""
    score_column = "<th>Score</th>" if translation.beam_size > 1 else ""
    head = f"<tr><th>#</th><th>Translation</th><th>Log-prob.</th>{score_column}</tr>"
    rows = []
    for rank, hypothesis in enumerate(translation.hypotheses, start=1):
        cells = [str(rank), html.escape(hypothesis.text), _format_number(hypothesis.sum_log_prob or 0.0)]
        if translation.beam_size > 1:
            cells.append(_format_number(hypothesis.score or 0.0))
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<table class="hypotheses"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def tree_picture(tree: BeamTree) -> str:
    """Returns a picture of a tree as an HTML element. Text of a user inside a picture cannot be code."""
    written = BytesIO()
    figure = draw_beam_tree(tree)
    figure.axes[0].set_title("")  # the page has a title, and that of a wide tree would begin out of sight
    figure.savefig(written, format="svg")
    data = base64.b64encode(written.getvalue()).decode()
    words = f"Tree of a beam search with {tree.beam_size} beams, whose best hypothesis is: {tree.translation}"
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(words)}">'


def alignment_map(alignment: SoftAlignment) -> "go.Figure":
    """Returns a soft alignment as an interactive heat map, with a ring at the most attended token of each row."""
    figure = heat_map(
        alignment.weights,
        (alignment.target_tokens, alignment.source_tokens),
        ("token written", "source token looked at"),
    )
    figure.add_scatter(
        x=alignment.best,
        y=list(range(len(alignment.best))),
        mode="markers",
        marker={"symbol": "circle-open", "size": 9, "color": RING, "line": {"width": 1.6}},
        hoverinfo="skip",
        showlegend=False,
    )
    return figure


def attention_map(maps: AttentionMaps) -> "go.Figure":
    """Returns the first attention map as an interactive heat map; masked cells are grey."""
    return heat_map(maps.weights[0], (maps.row_labels, maps.key_tokens), AXES[maps.stack], maps.allowed)


def heat_map(
    weights: Tensor,
    tokens: tuple[Sequence[str], Sequence[str]],
    titles: tuple[str, str],
    allowed: Tensor | None = None,
) -> "go.Figure":
    """Returns attention weights as a heat map that shows the value of a cell that the reader points at.

    Colours go from 0 to 1. Its size is fixed, so that its labels can be read; the page lets the reader scroll it.

    Args:
        weights: The weights, shape (T, S).
        tokens: The T tokens of the rows, from the top, and the S tokens of the columns.
        titles: The titles of rows and columns.
        allowed: True for the cells to draw, shape (T, S); the others are grey.
    """
    import plotly.graph_objects as go

    rows, columns = tokens
    cells: list[list[float | None]] = weights.tolist()
    if allowed is not None:
        cells = [
            [cell if is_allowed else None for cell, is_allowed in zip(*of_row, strict=True)]
            for of_row in zip(cells, allowed.tolist(), strict=True)
        ]
    figure = go.Figure(
        go.Heatmap(
            z=cells,
            zmin=0.0,
            zmax=1.0,
            colorscale=COLOURS,
            hoverongaps=False,
            hovertemplate=f"{titles[0]}: <b>%{{y}}</b><br>{titles[1]}: <b>%{{x}}</b><br>weight: <b>%{{z:.4f}}</b>"
            "<extra></extra>",
            colorbar={
                "title": {"text": "attention weight", "side": "top", "font": {"size": _LABEL}},
                **{"orientation": "h", "thickness": 10, "y": 1.0, "yanchor": "bottom", "ypad": 4},
            },
        )
    )
    cell = min(max(_MAP // max(len(rows), len(columns)), _SMALLEST_CELL), _LARGEST_CELL)
    left, bottom = (_LETTER * max(map(len, labels)) + 34 for labels in (rows, columns))
    figure.update_layout(
        template="simple_white",
        width=max(cell * len(columns), 160) + left + 12,
        height=max(cell * len(rows), 60) + bottom + 54,
        margin={"l": left, "r": 12, "t": 54, "b": bottom},
        font={"family": "system-ui, sans-serif", "size": _LABEL},
        plot_bgcolor=FORBIDDEN,
        hoverlabel={"font_size": 13, "align": "left"},
        dragmode=False,  # so that a finger that moves over the map scrolls the page
    )
    figure.update_xaxes(_axis(columns, titles[1]), tickangle=0 if _are_letters(columns) else -90)
    figure.update_yaxes(_axis(rows, titles[0]), range=[len(rows) - 0.5, -0.5])  # from the top
    return figure


def _axis(tokens: Sequence[str], title: str) -> dict[str, Any]:
    # Plotly reads some tags, such as <s>, as formatting.
    labels = [html.escape(token, quote=False) for token in tokens]
    return {
        "tickmode": "array",
        "tickvals": list(range(len(tokens))),
        "ticktext": labels,
        "range": [-0.5, len(tokens) - 0.5],
        "title": {"text": title, "font": {"size": _LABEL}},
        "fixedrange": True,
        "showline": False,
        "ticks": "",
    }


def _are_letters(tokens: Sequence[str]) -> bool:
    return all(len(token) == 1 for token in tokens)


def _format_number(number: float) -> str:
    return f"{number:.3f}".replace("-", "\N{MINUS SIGN}")
