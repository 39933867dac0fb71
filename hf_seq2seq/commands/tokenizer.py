"""The verb `tokenizer`: train a tokenizer on text files and save its folder."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hf_seq2seq.text_lines import is_blank


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Kind = Literal["bpe", "unigram", "char", "word"]

# What a tokenizer's folder may hold: the first two are written here, the others by other versions of transformers.
TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"}

SAMPLE_LENGTH = 80  # characters


def tokenizer(
    output: Annotated[Path, typer.Option(help="Folder to save to; an earlier tokenizer in it is replaced.")],
    first_files: Annotated[
        list[Path] | None, typer.Option("--input", help="Text to train on, plain or gzipped: --input FILE [FILE]...")
    ] = None,
    more_files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", hidden=True)] = None,
    vocab_size: Annotated[int, typer.Option(help="Number of tokens, special and extra ones included.")] = 8000,
    kind: Annotated[Kind, typer.Option(help="What a token is.")] = "bpe",
    extra_token: Annotated[
        list[str] | None, typer.Option(help="A token that is never cut, such as '>>de<<'; may be repeated.")
    ] = None,
) -> None:
    """Train a tokenizer on text files, such as both sides of a corpus.

    The folder loads with AutoTokenizer.from_pretrained.
    """
    # Click's options take a fixed number of values, so what follows the first file of --input arrives as arguments.
    files = [*(first_files or []), *(more_files or [])]
    if not files:
        raise ValueError("`--input` must name at least one text file, but is missing. Write --input FILE [FILE]...")
    _check_output(output)

    from hf_seq2seq.atomic_writing import replaced_files
    from hf_seq2seq.data import read_lines
    from hf_seq2seq.tokenization import train_tokenizer

    trained = train_tokenizer(files, vocab_size=vocab_size, kind=kind, extra_tokens=extra_token or ())
    with replaced_files(output) as unfinished:
        trained.save_pretrained(unfinished)
    typer.echo(f"{output}: a {kind} tokenizer with {len(trained)} tokens, trained on {len(files)} file(s)")
    sample = next(line for line in chain.from_iterable(map(read_lines, files)) if not is_blank(line))
    typer.echo(_encoded(trained, sample[:SAMPLE_LENGTH]))


def _check_output(output: Path) -> None:
    from hf_seq2seq.atomic_writing import finished_names

    if output.exists() and not output.is_dir():
        raise ValueError(f"`--output` must be a folder, but {output} is a file instead. Name another folder.")
    foreign = sorted(set(finished_names(output)) - TOKENIZER_FILES) if output.exists() else []
    if foreign:
        raise ValueError(
            f"`--output` must be a new or empty folder or that of a tokenizer, but {output} holds {foreign[0]!r}. "
            "Name another folder."
        )


def _encoded(trained: "PreTrainedTokenizerFast", sample: str) -> str:
    ids = trained.encode(sample)
    # A piece that is only a part of a character shows as a replacement character.
    pieces = "|".join(trained.batch_decode([[id] for id in ids]))
    return f"text:   {sample}\ntokens: {pieces}\nids:    {' '.join(map(str, ids))}"
