"""The verb `import`: a model in a foreign format becomes one of this package, with its tokenizer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hf_seq2seq.interop.formats import format_function, format_names


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    Format = str
else:
    Format = Literal[*format_names("import_model")]


def import_(
    format: Annotated[
        Format, typer.Argument(help=f"What it is now: {' or '.join(format_names('import_model'))}.", metavar="FORMAT")
    ],
    source: Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="SRC")],
    output: Annotated[Path, typer.Argument(help="A new or empty folder for the model.", metavar="DST")],
) -> None:
    """Turn a model in a foreign format into one of this package, with its tokenizer and generation settings.

    It translates as before. A model that cannot be represented is refused, with all reasons.
    """
    from hf_seq2seq.atomic_writing import check_new_folder, new_folder

    check_new_folder(output)
    model, tokenizer = format_function(format, "import_model")(source)
    with new_folder(output) as unfinished:
        model.save_pretrained(unfinished)
        if tokenizer is not None:
            tokenizer.save_pretrained(unfinished)
    typer.echo(_summary(source, output, model, tokenizer))


def _summary(source: str, output: Path, model: Any, tokenizer: "PreTrainedTokenizerBase | None") -> str:
    config = model.config
    lines = [
        f"{output}: {source} as a model of this package, {model.num_parameters():,} weights, vocabularies of "
        f"{config.vocab_size:,} and {config.decoder_vocab_size:,} tokens",
    ]
    if tokenizer is None:
        lines.append("It has no tokenizer, since the other has none. Save one there to translate with it.")
    else:
        lines += [f"with its {type(tokenizer).__name__}. Translate with it:", f"  hf-seq2seq translate {output}"]
    return "\n".join(lines)
