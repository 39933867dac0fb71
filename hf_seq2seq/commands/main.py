"""The command `hf-seq2seq`: one verb for each module of this folder, imported when it is called.

A verb's module imports what the verb needs only when it runs. So help and usage errors come at once, though
transformers and PyTorch take seconds to import.
"""

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Annotated

import typer
from typer.core import TyperGroup
from wrapt import when_imported

from hf_seq2seq import __version__

from .start import INTERRUPTED, interrupts_raised


# Each verb is the function of its name in the module of its name, or an app of several functions; a Python keyword has
# `_` behind it there.
VERBS = {
    "train": "Train a model on pairs of texts, or train one further.",
    "tokenizer": "Train a tokenizer on text files.",
    "translate": "Translate lines of text with a trained model.",
    "evaluate": "Score a model's translations against references.",
    "average": "Average the last checkpoints of a training run.",
    "import": "Turn a model in a foreign format into one of this package.",
    "export": "Write a trained model for another engine.",
    "push": "Upload a trained model to the Hugging Face Hub.",
    "inspect": "See inside a model: attention, scores, embeddings, searches.",
    "serve": "Serve translations over HTTP.",
    "demo": "Open a page where a model translates and shows how.",
}

# `train` reads its arguments itself, since they are the fields of dataclasses.
_HANDED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


class _Verbs(TyperGroup):
    """A group of commands that imports a command's module when it is called, not to list it.

    Typer names no types for what it hands to these methods.
    """

    def list_commands(self, ctx):  # type: ignore[no-untyped-def]
        return list(VERBS)

    def get_command(self, ctx, cmd_name):  # type: ignore[no-untyped-def]
        if cmd_name not in VERBS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        function = getattr(import_module(f"hf_seq2seq.commands.{name}"), name)
        if isinstance(function, typer.Typer):
            return typer.main.get_command(function)
        verb = typer.Typer(add_completion=False, rich_markup_mode=None)
        verb.command(cmd_name, context_settings=_HANDED_ON if cmd_name == "train" else None)(function)
        return typer.main.get_command(verb)

    def format_commands(self, ctx, formatter):  # type: ignore[no-untyped-def]
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx):  # type: ignore[no-untyped-def]
        try:
            with interrupts_raised():
                super().invoke(ctx)
                sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output, such as `head`, has had enough: no error. What Python still holds goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt as interrupt:
            typer.echo(f"\n{str(interrupt) or 'Interrupted.'}", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except typer.Exit:
            raise  # the help of a verb was shown
        except Exception as error:
            mendable = _mendable(error)
            if mendable is None or os.environ.get("HF_SEQ2SEQ_TRACEBACK"):
                raise
            typer.echo(f"Error: {' '.join(str(mendable).split())}", err=True)
            raise typer.Exit(1) from None


def _mendable(error: Exception) -> BaseException | None:
    """Returns the error that a user can mend, or None for another, such as Typer's own or a fault of the program."""
    if isinstance(error, ValueError | OSError | ImportError | FloatingPointError):
        return error
    from huggingface_hub.errors import StrictDataclassError

    if isinstance(error, StrictDataclassError):
        return error.__cause__ or error  # a strict dataclass wraps what its check raised in lines of its own
    return None


app = typer.Typer(cls=_Verbs, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"hf-seq2seq {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def _describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train, run and score encoder-decoder Transformers on pairs of texts. `hf-seq2seq VERB --help` tells more."""


def _disable_progress_bar(logging: ModuleType) -> None:
    """Switches off transformers' bars for reading and writing weights: each checkpoint would show one."""
    logging.disable_progress_bar()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; an error that a user can mend becomes one line on standard error and exit status 1.

    Args:
        arguments: The words after `hf-seq2seq`; by default those that the process was called with.

    Raises:
        SystemExit: Always, with the exit status.
    """
    logging.basicConfig(format="%(message)s")
    is_first_process = os.environ.get("RANK", "0") == "0"  # set by torchrun and accelerate
    logging.getLogger("hf_seq2seq").setLevel(logging.INFO if is_first_process else logging.WARNING)
    when_imported("transformers.utils.logging")(_disable_progress_bar)
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")  # read when datasets is imported
    app(arguments, prog_name="hf-seq2seq")


if __name__ == "__main__":
    main()
