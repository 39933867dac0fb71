"""The verb `translate`: lines of text in, their translations out, in order and as they are made."""

import errno
import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer


if TYPE_CHECKING:
    from hf_seq2seq.inference.translator import SearchOptions


ModelArgument = Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="MODEL")]
BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy search. By default the model's own."),
]
BatchTokensOption = Annotated[
    int, typer.Option(min=1, help="The most source tokens, with padding, that are translated at once.")
]
DeviceOption = Annotated[
    str | None, typer.Option(help='Such as "cpu" or "cuda:1". By default an accelerator where there is one.')
]


def translate(
    model: ModelArgument,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="The lines to translate, plain or gzipped. By default standard input."),
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where to write; gzipped if named .gz. By default standard output.")
    ] = None,
    beam_size: BeamSizeOption = None,
    batch_tokens: BatchTokensOption = 1024,
    device: DeviceOption = None,
) -> None:
    """Translate lines of text with a trained model.

    Each line in is one line out, a blank one for a blank one, in UTF-8. Translations appear as they are made.
    """
    from hf_seq2seq.data.reading import read_lines

    lines = read_lines(sys.stdin.buffer if input_file is None else input_file)
    if input_file is not None:
        lines = chain([next(lines)], lines)  # what is wrong with it is told now, not after the model is loaded
    check_output(output_file, input_file)

    from hf_seq2seq.inference.translator import Translator

    translator = Translator.from_pretrained(model, device=device, batch_tokens=batch_tokens)
    is_typed = input_file is None and sys.stdin.isatty()
    window = 1 if is_typed else None  # whoever types a line waits for its translation
    translations = translator.windows(lines, window=window, **search_options(beam_size))
    shows_progress = sys.stderr.isatty() and not (output_file is None and sys.stdout.isatty())
    with _open_output(output_file) as output, progress_bar(shows_progress) as progress:
        for some_translations in translations:
            write_lines(some_translations, output, output_file)
            progress.update(len(some_translations))


def progress_bar(is_shown: bool, num_sentences: int | None = None) -> Any:
    """Return a bar on standard error that tells the sentences a second."""
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    return tqdm(total=num_sentences, unit=" sentences", disable=not is_shown)


def search_options(beam_size: int | None) -> "SearchOptions":
    """Return the options that were given."""
    return {} if beam_size is None else {"beam_size": beam_size}


def check_output(output_file: Path | None, *input_files: Path | None) -> None:
    """Raise ValueError if the output cannot be written or is one of the inputs, of which None is standard input."""
    if output_file is None:
        return
    if output_file.is_dir() or not output_file.parent.is_dir():
        raise ValueError(f"`--output` must be a file in an existing folder, but is {output_file} instead.")
    for input_file in input_files:
        input_stat = os.fstat(0) if input_file is None else input_file.stat()
        if output_file.is_file() and os.path.samestat(output_file.stat(), input_stat):
            raise ValueError(f"`--output` must be another file than the input, but both are {output_file}.")


@contextmanager
def _open_output(output_file: Path | None) -> Iterator[BinaryIO]:
    if output_file is None:
        yield sys.stdout.buffer
    else:
        try:
            with output_file.open("wb") as output:
                yield output
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise OSError(
                f"No space is left for `{output_file}`. The lines before are kept; free some space."
            ) from error


def write_lines(lines: list[str], output: BinaryIO, output_file: Path | None) -> None:
    """Write lines so that they can be read at once, whatever happens later: a gzip file is whole after each call."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if output_file is not None and output_file.suffix.lower() == ".gz":
        data = gzip.compress(data)  # a gzip file may have several of these, one after the other
    output.write(data)
    output.flush()
