"""The layout and the events of the demo page; `views` makes what it shows.

What a person typed and what the page answered is in `gr.State`: in the session of that browser tab.
"""

import html
import logging
from typing import Any, get_args

import gradio as gr
import torch

from hf_seq2seq.inspection.attention import Head, attention_maps
from hf_seq2seq.inspection.trace import STACK_NAMES, Stack

from .guard import app_options
from .views import (
    LARGEST_BEAM,
    DemoTranslator,
    Translation,
    alignment_map,
    attention_map,
    hypotheses_table,
    tree_picture,
)


logger = logging.getLogger(__name__)

_CSS = """
.gradio-container { max-width: 900px !important; min-width: 0; width: 100%; margin: 0 auto !important; }
.gradio-container .main { padding-left: 12px; padding-right: 12px; }
.block.map, .block.tree { overflow: auto !important; max-height: 85vh; }  /* wide ones scroll in their own place */
.map .modebar { display: none; }  /* the axes are fixed, so that a finger on a map scrolls */
.tree img { max-width: none; display: block; margin: 0; background: white; }
p.message { border-left: 4px solid #c2410c; background: #fff7ed; color: #7c2d12 !important; padding: 10px 14px; }
p.message { margin: 0; overflow-wrap: anywhere; }
.html-container { padding: 0 !important; }
table.hypotheses { width: 100%; border-collapse: collapse; font-size: 15px; }
table.hypotheses th, table.hypotheses td { padding: 6px 8px; text-align: right; vertical-align: top; border: 0; }
table.hypotheses th { font-weight: 600; font-size: 13px; }
table.hypotheses th:nth-child(2), table.hypotheses td:nth-child(2) { text-align: left; overflow-wrap: anywhere; }
table.hypotheses td { border-top: 1px solid var(--border-color-primary); }
"""

# Arguments of `launch`. The fonts are those of the reader's system, since the default theme loads its own from another
# server.
_LAUNCH: dict[str, Any] = {
    "theme": gr.themes.Default(
        primary_hue="emerald",
        neutral_hue="slate",
        font=("system-ui", "sans-serif"),
        font_mono=("ui-monospace", "monospace"),
    ),
    "css": _CSS,
    "footer_links": [],
    "run_history": False,
    "share": False,
    "ssr_mode": False,
    "mcp_server": False,
    "pwa": False,
    "state_session_capacity": 200,  # a session of a large model holds up to about 10 MB
}
_EVENT: dict[str, Any] = {"api_visibility": "private", "show_progress": "minimal"}


class Page(gr.Blocks):
    """The page with its style."""

    def __init__(self) -> None:
        super().__init__(title="Look inside a Transformer", analytics_enabled=False)

    def launch(self, *args: Any, **options: Any) -> Any:
        """Serves the page, as `gradio.Blocks.launch` does."""
        return super().launch(*args, **({"app_kwargs": app_options()} | _LAUNCH | options))

    async def preprocess_data(self, *args: Any, **options: Any) -> Any:
        """Reads what a client sent. What is wrong with it is told to the client, with no traceback in the log."""
        try:
            return await super().preprocess_data(*args, **options)
        except Exception as error:
            message = error.message if isinstance(error, gr.Error) else str(error)
            raise gr.Error(message, print_exception=False) from error


def make_page(translator: DemoTranslator, example: str) -> Page:
    """Returns the page.

    Args:
        translator: The translator of all users.
        example: The first text in the text box.
    """
    page = Page()
    with page:
        Contents(translator, example)
    return page


class Contents:
    """The elements of the page and their events; for use inside `with Page()`.

    Args:
        translator: The translator of all users.
        example: The first text in the text box.
    """

    def __init__(self, translator: DemoTranslator, example: str) -> None:
        self._translator = translator
        self._lay_out(example)
        self._connect()

    def _lay_out(self, example: str) -> None:
        translator = self._translator
        gr.Markdown(f"# Look inside a Transformer\n{_describe(translator.model)}")
        self.text = gr.Textbox(
            example,
            label="Text",
            info=f"One sentence, of at most {translator.longest_text} tokens. Line breaks count as spaces.",
            lines=1,  # so that the enter key translates
            max_lines=6,
        )
        with gr.Accordion("Settings of the search", open=False), gr.Row():
            self.beam_size = gr.Number(
                translator.default_beam_size,
                label="Beam size",
                info=f"Hypotheses kept at each step, 1 to {LARGEST_BEAM}; 1 is greedy search.",
                elem_id="beam-size",
            )
            self.length_penalty = gr.Number(
                translator.default_length_penalty,
                label="Length penalty",
                info="Above 0 for longer outputs, below for shorter ones. Greedy search does not use it.",
                step=0.1,
                elem_id="length-penalty",
            )
        self.start = gr.Button("Translate", variant="primary", elem_id="translate")
        self.message = gr.HTML(visible=False, elem_id="message", padding=False)
        self.translation = gr.State(None)
        with gr.Column(visible=False) as self.results:
            self.best = gr.Textbox(label="Translation", interactive=False, buttons=["copy"], elem_id="best")
            gr.Markdown(
                "### The best hypotheses\nThe hypotheses that the search found, with the logarithm of their "
                "probability and the score that ranks them: that logarithm divided by the length to the power of the "
                "penalty."
            )
            self.hypotheses = gr.HTML(elem_id="hypotheses", padding=False)
            gr.Markdown(
                "### Alignment\nWhich source tokens each token of the translation comes from: the decoder's attention "
                "to the source in its last layer but one (or its only one), as the mean of the heads. A ring marks "
                "the most attended token of a row. Point at a cell, or tap it, for its number."
            )
            self.alignment = gr.Plot(show_label=False, container=False, elem_id="alignment", elem_classes="map")
            self._lay_out_attention()
            gr.Markdown(
                "### Beam tree\nAll hypotheses that the search kept at some step, from the start token down. A number "
                "is the logarithm of the probability of all tokens down to there. The best hypothesis is green. A box "
                "is a finished hypothesis, with its rank and score."
            )
            self.tree = gr.HTML(elem_id="tree", elem_classes="tree", padding=False)

    def _lay_out_attention(self) -> None:
        gr.Markdown(
            "### Attention\nHow much the token of each row attends to the token of each column, in one head of one "
            "layer. Each row sums to 1. Masked cells are grey. In the decoder, `<s> → Ein` is the row in which `<s>` "
            "is read and `Ein` written."
        )
        stacks = [(name.capitalize(), stack) for stack, name in STACK_NAMES.items()]
        self.stack = gr.Radio(stacks, value="cross", label="Stack", elem_id="stack")
        layers, heads = self._choices("cross")
        self.layer = gr.Radio(layers, value=layers[-1], label="Layer, counted from 1", elem_id="layer")
        self.head = gr.Radio(heads, value="mean", label="Head, counted from 1", elem_id="head")
        self.attention = gr.Plot(show_label=False, container=False, elem_id="attention", elem_classes="map")

    def _connect(self) -> None:
        chosen = [self.translation, self.stack, self.layer, self.head]
        shown = [self.translation, self.message, self.results, self.best, self.hypotheses, self.alignment]
        gr.on(
            [self.start.click, self.text.submit],
            self.translate,
            [self.text, self.beam_size, self.length_penalty],
            shown,
            **_EVENT,
        ).then(self.show_attention, chosen, [self.message, self.attention], **_EVENT).then(
            self.show_tree, [self.translation], [self.message, self.tree], **_EVENT
        )
        # The last choice is shown, even if an earlier one was still being drawn when it was made.
        latest = _EVENT | {"trigger_mode": "always_last"}
        self.stack.input(self.choose_stack, chosen, [self.message, self.layer, self.head, self.attention], **latest)
        for choice in (self.layer, self.head):
            choice.input(self.show_attention, chosen, [self.message, self.attention], **latest)

    def translate(self, text: str, beam_size: float | None, length_penalty: float | None) -> dict[Any, Any]:
        """Returns what the page shows first of a text, or a message that tells what is wrong with the text."""
        try:
            translation = self._translator.translate(text, beam_size, length_penalty)
        except (ValueError, torch.OutOfMemoryError) as error:
            return {self.translation: None, self.message: _message(error), self.results: gr.Column(visible=False)}
        return {
            self.translation: translation,
            self.message: _NO_MESSAGE,
            self.results: gr.Column(visible=True),
            self.best: translation.hypotheses[0].text,
            self.hypotheses: hypotheses_table(translation),
            self.alignment: alignment_map(translation.alignment),
        }

    def show_attention(self, translation: Translation | None, stack: Stack, layer: int, head: Head) -> dict[Any, Any]:
        """Returns the heat map of a head's attention, or a message that tells what is wrong with the choice."""
        if translation is None:
            return {self.message: gr.skip()}
        try:
            maps = attention_maps(translation.trace, stack, layer, head)
        except ValueError as error:
            return {self.message: _message(error)}
        return {self.message: _NO_MESSAGE, self.attention: attention_map(maps)}

    def choose_stack(self, translation: Translation | None, stack: Stack, layer: int, head: Head) -> dict[Any, Any]:
        """Returns the layers and heads of a stack to choose from, and the heat map of the nearest choice."""
        if stack not in get_args(Stack):
            return self.show_attention(translation, stack, layer, head)
        layers, heads = self._choices(stack)
        layer = min(layer, len(layers))
        head = head if head in [value for _, value in heads] else "mean"
        choices = {self.layer: gr.Radio(layers, value=layer), self.head: gr.Radio(heads, value=head)}
        return choices | self.show_attention(translation, stack, layer, head)

    def show_tree(self, translation: Translation | None) -> dict[Any, Any]:
        """Returns the picture of a translation's beam tree, or the reason why there is none."""
        if translation is None:
            return {self.message: gr.skip()}
        try:
            tree = self._translator.tree(translation)
        except (ValueError, torch.OutOfMemoryError) as error:
            return {self.message: _message(error), self.tree: ""}
        if tree is None:
            return {
                self.tree: "<p>There is no tree, since the beam size is 1: greedy search keeps one hypothesis at each "
                "step. Choose 2 or more in the settings.</p>"
            }
        return {self.tree: tree_picture(tree)}

    def _choices(self, stack: Stack) -> tuple[list[int], list[tuple[str, Head]]]:
        """Returns the layers and the heads of a stack to choose from."""
        config = self._translator.model.config
        is_encoder = stack == "encoder"
        num_layers = config.encoder_layers if is_encoder else config.decoder_layers
        num_heads = config.encoder_attention_heads if is_encoder else config.decoder_attention_heads
        heads: list[tuple[str, Head]] = [(f"mean of all {num_heads}", "mean")]
        return list(range(1, num_layers + 1)), heads + [(str(head), head) for head in range(1, num_heads + 1)]


_NO_MESSAGE = gr.HTML("", visible=False)


def _message(error: Exception) -> gr.HTML:
    if isinstance(error, torch.OutOfMemoryError):
        logger.warning("%s", error)
        error = ValueError("The memory is too small for this text. Shorten it, or choose a smaller beam size.")
    return gr.HTML(f'<p class="message">{html.escape(str(error))}</p>', visible=True)


def _describe(model: Any) -> str:
    """Returns a sentence about the model's size, and one on what to do."""
    config, number = model.config, model.num_parameters()
    layers = " and ".join(
        f"{getattr(config, f'{side}_layers')} {side} layers ({getattr(config, f'{side}_attention_heads')} heads each)"
        for side in ("encoder", "decoder")
    )
    return f"A model of {layers}, {number / 1e6:,.1f} million parameters. Type a text and see what it does with it."
