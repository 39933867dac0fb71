"""The verb `export`: a trained model in the format of another engine."""

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hf_seq2seq.interop.formats import format_function, format_names


if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[*format_names("export_model")]

WEIGHTS = (".argosmodel", ".bin", ".npz", ".onnx", ".data")  # the last is what a large graph keeps beside its file


def export(
    format: Annotated[
        Format, typer.Argument(help=f"The format to write: {' or '.join(format_names('export_model'))}.")
    ],
    source: Annotated[str, typer.Argument(help="A model's folder, or its name on the Hub.", metavar="SRC")],
    output: Annotated[Path, typer.Argument(help="A new or empty folder.", metavar="DST")],
    quantization: Annotated[
        str | None,
        typer.Option(help="The type of CTranslate2's weights, such as int8 or float16; by default float32."),
    ] = None,
    source_language: Annotated[
        str | None, typer.Option(help="For argos: the code of the language that the model reads, such as en.")
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(help="For argos: the code of the language that it writes.")
    ] = None,
    library: Annotated[
        str | None,
        typer.Option(
            help="For web: the folder node_modules that `npm install --ignore-scripts @huggingface/transformers` made."
        ),
    ] = None,
) -> None:
    """Write a trained model and its tokenizer for another engine.

    CTranslate2 is a fast engine for CPUs and GPUs, and ONNX a format that many runtimes read; either needs
    `pip install 'hf-seq2seq[export]'`. `argos` writes a package for Argos Translate and LibreTranslate, and `marian`
    writes model.npz for Marian C++. (For transformers' MarianMTModel, use `hf_seq2seq.interop.to_marian` in Python.)
    """
    from hf_seq2seq.atomic_writing import check_new_folder
    from hf_seq2seq.loading import load_model, load_tokenizer

    check_new_folder(output)
    export_model = format_function(format, "export_model")
    given = {
        "quantization": quantization,
        "source_language": source_language,
        "target_language": target_language,
        "library": library,
    }
    options = {name: value for name, value in given.items() if value is not None}
    for name in options.keys() - signature(export_model).parameters.keys():
        raise ValueError(
            f"`--{name.replace('_', '-')}` must be left out for {format}, but is {given[name]!r} instead."
        )
    model = load_model(source)
    way_to_use = export_model(model, load_tokenizer(source), output, **options)
    source_bytes = sum(parameter.nbytes for parameter in model.parameters())
    typer.echo("\n".join([*_list_files(output, source_bytes), way_to_use]))


def _list_files(output: Path, source_bytes: int) -> list[str]:
    """Returns lines that tell the size of the weights, on their own and of the model's, and the other files."""
    sizes = {path.name: path.stat().st_size for path in sorted(output.iterdir()) if path.suffix in WEIGHTS}
    total = sum(sizes.values())
    others = sorted(path.name for path in output.iterdir() if path.name not in sizes)
    return [
        f"{output}: {total / 1e6:.1f} MB of weights, {100 * total / source_bytes:.0f} % of the model's",
        *(f"  {name}  {size / 1e6:.1f} MB" for name, size in sizes.items()),
        f"  {', '.join(others)}",
    ]
