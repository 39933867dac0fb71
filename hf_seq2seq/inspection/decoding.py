"""Greedy decoding step by step, with the likeliest tokens of each step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.inference import SearchOptions
from hf_seq2seq.inference.segment import Ids
from hf_seq2seq.inference.settings import DecodingSettings
from hf_seq2seq.inference.torch_search import TorchSearch, generate_arguments
from hf_seq2seq.model.private_copy import private_copy
from hf_seq2seq.output_limits import longest_output
from hf_seq2seq.token_lookup import encode_sources, unknown_id

from .figures import COLOURS, Lettering, in_our_style, new_figure
from .tokens import check_texts, readable_ids
from .trace import Model


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Step:
    """One step of a greedy decode.

    Attributes:
        token: The token that was chosen.
        probability: The model's probability of that token, given the tokens before it.
        tokens: The likeliest tokens, the likeliest first.
        probabilities: The probability of each of these.
    """

    token: str
    probability: float
    tokens: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class GreedyDecode:
    """A greedy decode of a text.

    Attributes:
        source: The text.
        translation: The translation.
        steps: A step for each of its tokens, the end token included.
    """

    source: str
    translation: str
    steps: list[Step]


def greedy_steps(model: Model, tokenizer: PreTrainedTokenizerBase, text: str, number: int = 5) -> GreedyDecode:
    """Translates a text greedily, and returns the likeliest tokens of each step.

    Args:
        model: The model. It is not changed, and other threads may use it at the same time.
        tokenizer: Its tokenizer.
        text: The text.
        number: The number of tokens to return for each step.

    Raises:
        ValueError: If the text is blank, or `number` is not positive.
    """
    check_texts("text", [text])
    vocab_size = model.config.decoder_vocab_size or model.config.vocab_size
    if not 1 <= number <= vocab_size:
        raise ValueError(f"`number` must be at least 1 and at most {vocab_size}, but is {number} instead.")
    # The logits are the model's own; in generate's `scores`, banned tokens have minus infinity.
    output = run_search(model, tokenizer, text, {"beam_size": 1}, output_logits=True)
    chosen: Ids = output.sequences[0, 1:].tolist()
    steps = []
    for token, logits in zip(chosen, output.logits, strict=True):
        probabilities = logits[0].double().softmax(dim=-1)
        best, ids = probabilities.topk(number)
        steps.append(
            Step(
                *(readable_ids(tokenizer, [token], "target")[0], float(probabilities[token])),
                *(readable_ids(tokenizer, ids.tolist(), "target"), best.tolist()),
            )
        )
    return GreedyDecode(text, str(tokenizer.decode(chosen, skip_special_tokens=True)), steps)


def run_search(
    model: Model, tokenizer: PreTrainedTokenizerBase, text: str, options: SearchOptions, **more: Any
) -> Any:
    """Returns the output of `generate` for one text, with the length limit of `Translator`.

    Args:
        model: The model. It is not changed.
        tokenizer: Its tokenizer.
        text: The text.
        options: Options of the search.
        **more: More arguments of `generate`.

    Raises:
        ValueError: If an option is out of range.
    """
    observed = private_copy(model).eval()
    settings = DecodingSettings.resolve(
        options, observed.generation_config, unknown_id=unknown_id(tokenizer, "target")
    )
    [ids] = encode_sources(tokenizer, [text])
    input_ids = torch.tensor([ids], device=model.device)
    with torch.inference_mode():
        generate: Any = observed.generate
        return generate(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_length=1 + longest_output(len(ids), TorchSearch(observed).num_positions),  # with the start token
            **(generate_arguments(settings, observed.generation_config) | {"return_dict_in_generate": True} | more),
        )


def _format_probability(probability: float) -> str:
    return f"{probability:.3f}" if probability >= 0.0005 else "<0.001"


@in_our_style
def draw_greedy_steps(decode: GreedyDecode) -> "Figure":
    """Draws a greedy decode as a table: a row for each step, with the likeliest tokens and their probabilities."""
    import numpy as np

    lettering = Lettering(*([step.token, *step.tokens] for step in decode.steps))
    probabilities = np.array([step.probabilities for step in decode.steps])
    rows, columns = probabilities.shape
    longest = max(len(token) for step in decode.steps for token in step.tokens)
    figure = new_figure(max(columns * (0.09 * longest + 0.6) + 2.4, 6), 0.27 * rows + 1.2)
    axes = figure.subplots()
    image = axes.imshow(probabilities, cmap=COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for row, step in enumerate(decode.steps):
        for column, (token, probability) in enumerate(zip(step.tokens, step.probabilities, strict=True)):
            axes.text(
                column,
                row,
                lettering(f"{token}  {_format_probability(probability)}"),
                color="black" if probability > 0.6 else "white",
                fontsize=9,
                ha="center",
                va="center",
                **lettering.style,
            )
    axes.set_yticks(
        range(rows),
        [f"{number}:  {lettering(step.token)}" for number, step in enumerate(decode.steps, start=1)],
        fontsize=9,
        **lettering.style,
    )
    axes.set_xticks(range(columns), [str(column + 1) for column in range(columns)])
    axes.set(xlabel="the likeliest tokens, by rank", ylabel="step and chosen token")
    axes.set_title("Greedy decoding: probabilities of each step")
    figure.colorbar(image, ax=axes, label="probability", fraction=0.05, pad=0.02)
    return figure
