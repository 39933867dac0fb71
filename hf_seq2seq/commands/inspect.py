"""The verb `inspect`: pictures of what a model does with a text, or their numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer


if TYPE_CHECKING:
    from hf_seq2seq.inspection import Trace


Stack = Literal["encoder", "decoder", "cross"]
Side = Literal["source", "target"]

OutputOption = Annotated[
    Path | None,
    typer.Option(help="A picture (.png, .svg) or the numbers (.json). By default JSON on standard output."),
]
TextOption = Annotated[str, typer.Option(help="The source text.")]
TargetOption = Annotated[
    str | None, typer.Option(help="The target that the decoder is given. By default the model's own translation.")
]
StackOption = Annotated[
    Stack, typer.Option(help="Self-attention of the encoder or the decoder, or the decoder's attention to the source.")
]
LayerOption = Annotated[int | None, typer.Option(help="The layer, counted from 1. By default the last.")]
SideOption = Annotated[Side, typer.Option(help="Whose table, where encoder and decoder have each one.")]

inspect = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@inspect.callback()
def _keep_model(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="MODEL")],
) -> None:
    """See inside a model: `hf-seq2seq inspect MODEL VIEW --output FILE`. `... MODEL VIEW --help` tells more.

    Layers and heads are counted from 1. Pictures need `pip install 'hf-seq2seq[inspect]'`.
    """
    context.obj = model


@inspect.command()
def positions(
    context: typer.Context,
    number: Annotated[int, typer.Option(help="How many positions.")] = 100,
    side: SideOption = "source",
    output: OutputOption = None,
) -> None:
    """Position vectors, and how similar positions are."""
    _check(output)
    from hf_seq2seq.inspection import draw_positions, position_vectors

    _show(position_vectors(_load(context)[0], number, side), draw_positions, output)


@inspect.command()
def masks(
    context: typer.Context,
    text: Annotated[list[str], typer.Option(help="A source text; given several times, they are one batch.")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="The target of each text, in turn. By default the model's own translations."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Causal and padding masks of a batch.

    They are those that the model applied in a forward pass.
    """
    _check(output)
    from hf_seq2seq.inspection import attention_masks, draw_masks, trace

    _show(attention_masks(trace(*_load(context), text, target or None)), draw_masks, output)


@inspect.command()
def attention(
    context: typer.Context,
    text: TextOption,
    target: TargetOption = None,
    stack: StackOption = "cross",
    layer: LayerOption = None,
    head: Annotated[
        str, typer.Option(help="The head, counted from 1; or all, side by side; or mean, of them.")
    ] = "all",
    output: OutputOption = None,
) -> None:
    """Attention maps of a layer's heads."""
    _check(output)
    from hf_seq2seq.inspection import attention_maps, draw_attention_maps

    chosen: Any = int(head) if head.lstrip("-").isdecimal() else head
    _show(attention_maps(_trace(context, text, target), stack, layer, chosen), draw_attention_maps, output)


@inspect.command()
def alignment(context: typer.Context, text: TextOption, output: OutputOption = None) -> None:
    """Soft alignment of the model's translation.

    It is the cross-attention of the last layer but one (or of the only one), the mean of its heads.
    """
    _check(output)
    from hf_seq2seq.inference import Translator
    from hf_seq2seq.inspection import draw_soft_alignment, soft_alignment
    from hf_seq2seq.inspection.tokens import check_texts

    check_texts("text", [text])
    model, tokenizer = _load(context)
    hypothesis = Translator(model, tokenizer).hypotheses([text], attention=True)[0][0]
    _show(soft_alignment(tokenizer, hypothesis), draw_soft_alignment, output)


@inspect.command()
def scores(
    context: typer.Context,
    text: TextOption,
    target: TargetOption = None,
    stack: StackOption = "cross",
    layer: LayerOption = None,
    head: Annotated[int, typer.Option(help="The head, counted from 1.")] = 1,
    output: OutputOption = None,
) -> None:
    """Scores of one head, scaled, and their softmax.

    Scores are the products of its queries and keys.
    """
    _check(output)
    from hf_seq2seq.inspection import draw_head_scores, head_scores

    _show(head_scores(_trace(context, text, target), stack, layer, head), draw_head_scores, output)


@inspect.command()
def neighbours(
    context: typer.Context,
    token: Annotated[list[str], typer.Option(help="A token, such as dog; may be given several times.")],
    number: Annotated[int, typer.Option(help="How many neighbours of each.")] = 10,
    side: SideOption = "source",
    output: OutputOption = None,
) -> None:
    """Tokens of the nearest embeddings, by cosine."""
    _check(output)
    from hf_seq2seq.inspection import draw_neighbours, nearest_neighbours

    loaded = _load(context)
    _show([nearest_neighbours(*loaded, one, number, side) for one in token], draw_neighbours, output)


@inspect.command()
def projection(
    context: typer.Context,
    token: Annotated[list[str], typer.Option(help="A token, such as dog; given at least three times.")],
    side: SideOption = "source",
    output: OutputOption = None,
) -> None:
    """Embeddings of chosen tokens on a plane.

    It is that of the first two principal components.
    """
    _check(output)
    from hf_seq2seq.inspection import draw_projection, project_tokens

    _show(project_tokens(*_load(context), token, side), draw_projection, output)


@inspect.command()
def steps(
    context: typer.Context,
    text: TextOption,
    number: Annotated[int, typer.Option(help="How many tokens of each step.")] = 5,
    output: OutputOption = None,
) -> None:
    """Likeliest tokens of each greedy step."""
    _check(output)
    from hf_seq2seq.inspection import draw_greedy_steps, greedy_steps

    _show(greedy_steps(*_load(context), text, number), draw_greedy_steps, output)


@inspect.command()
def beams(
    context: typer.Context,
    text: TextOption,
    beam_size: Annotated[int | None, typer.Option(help="Hypotheses kept at each step.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Above the model's own for longer outputs.")] = None,
    output: OutputOption = None,
) -> None:
    """Tree of a beam search, with scores."""
    _check(output)
    from hf_seq2seq.inspection import beam_tree, draw_beam_tree

    tree = beam_tree(*_load(context), text, beam_size=beam_size, length_penalty=length_penalty)
    _show(tree, draw_beam_tree, output)


@inspect.command()
def training(context: typer.Context, output: OutputOption = None) -> None:
    """Curves of the training run in folder MODEL.

    They are loss, validation scores and learning rate, from trainer_state.json.
    """
    _check(output)
    from hf_seq2seq.inspection import draw_training_curves, training_curves

    _show(training_curves(context.obj), draw_training_curves, output)


def _check(output: Path | None) -> None:
    """Tells what is wrong with the output before a model is loaded."""
    from hf_seq2seq.inspection.figures import check_output

    if output is not None:
        check_output(output)


def _load(context: typer.Context) -> tuple[Any, Any]:
    from hf_seq2seq.loading import load_model, load_tokenizer

    return load_model(context.obj), load_tokenizer(context.obj)


def _trace(context: typer.Context, text: str, target: str | None) -> "Trace":
    from hf_seq2seq.inspection import trace

    return trace(*_load(context), [text], None if target is None else [target])[0]


def _show(view: Any, draw: Callable[[Any], Any], output: Path | None) -> None:
    from hf_seq2seq.inspection import as_json, write_view

    if output is None:
        typer.echo(as_json(view))
    else:
        write_view(view, draw, output)
        typer.echo(f"Written: {output}")
