"""The verb `demo`: a page in the browser that translates and shows what the model does."""

from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from .address import HostOption, bind


FIRST_PORT = 7860  # gradio's own


def demo(
    model: Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="MODEL")],
    host: HostOption = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help=f"The port. By default the first free one from {FIRST_PORT}."),
    ] = None,
    example: Annotated[str | None, typer.Option(help="What stands in the text box at first.")] = None,
    space: Annotated[
        Path | None,
        typer.Option(help="A new folder for the files of a Hugging Face Space with this page; nothing is started."),
    ] = None,
) -> None:
    """Show a page where a model translates: n-best, alignment, attention, beam tree.

    Several people can use it at once. Ctrl-C ends it. It needs `pip install 'hf-seq2seq[inspect]'`.
    """
    from hf_seq2seq.demo.app import EXAMPLE, check_libraries, make_demo, write_space

    check_libraries()
    example = EXAMPLE if example is None else example
    if space is not None:
        for name in write_space(model, space, example=example):
            typer.echo(f"Written: {space / name}")
        return
    bind(host, port).close()  # tells what is wrong with the address before a model is loaded

    from hf_seq2seq.inference import Translator

    translator = Translator.from_pretrained(model)
    page = make_demo(translator.model, translator.tokenizer, example=example)
    page.launch(server_name=host, server_port=port, prevent_thread_lock=True, quiet=True)
    try:
        typer.echo(f"The page is at {page.local_url} (Ctrl-C ends it)")
        Event().wait()
    finally:
        page.close(verbose=False)
