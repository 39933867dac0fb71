"""The verb `import`: a MarianMT or FSMT model becomes one of this package, with its tokenizer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Kind = Literal["marian", "fsmt"]


def import_(
    kind: Annotated[Kind, typer.Argument(help="Which model of transformers it is: marian or fsmt.", metavar="KIND")],
    source: Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="SRC")],
    output: Annotated[Path, typer.Argument(help="A new or empty folder for the model.", metavar="DST")],
) -> None:
    """Turn a MarianMT or FSMT model into one of this package, with its tokenizer and generation settings.

    It translates as before. A model that cannot be represented is refused, with all reasons.
    """
    from hf_seq2seq.atomic_writing import check_new_folder, new_folder

    check_new_folder(output)
    model, tokenizer = _load(kind, source)
    with new_folder(output) as unfinished:
        model.save_pretrained(unfinished)
        if tokenizer is not None:
            tokenizer.save_pretrained(unfinished)
    typer.echo(_summary(source, output, model, tokenizer))


def _load(kind: Kind, source: str) -> "tuple[Any, PreTrainedTokenizerBase | None]":
    if kind == "marian":
        from hf_seq2seq.interop.marian import from_marian, load_marian_tokenizer

        return from_marian(source), load_marian_tokenizer(source)
    from hf_seq2seq.interop.fsmt import from_fsmt, load_fsmt_tokenizer

    return from_fsmt(source), load_fsmt_tokenizer(source)


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
