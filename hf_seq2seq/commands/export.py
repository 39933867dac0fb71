"""The verb `export`: a trained model as another engine reads it."""

from pathlib import Path
from typing import Annotated, Literal

import typer


Format = Literal["ctranslate2", "onnx"]

WEIGHTS = (".bin", ".onnx", ".data")  # the last is what a large graph keeps beside its file

NEXT = {
    "ctranslate2": "Try it with `hf-seq2seq translate {folder} --backend ctranslate2`.",
    "onnx": "Load each graph with `onnxruntime.InferenceSession`, and the tokenizer with AutoTokenizer.",
}


def export(
    format: Annotated[Format, typer.Argument(help="The engine that is to read it: ctranslate2 or onnx.")],
    source: Annotated[str, typer.Argument(help="A model's folder, or its name on the Hub.", metavar="SRC")],
    output: Annotated[Path, typer.Argument(help="A new or empty folder.", metavar="DST")],
    quantization: Annotated[
        str | None,
        typer.Option(help="The type of CTranslate2's weights, such as int8 or float16; by default float32."),
    ] = None,
) -> None:
    """Write a trained model and its tokenizer for CTranslate2 or for ONNX.

    CTranslate2 is a fast engine for CPUs and GPUs, ONNX a format that many runtimes read. Either needs
    `pip install 'hf-seq2seq[export]'`.
    """
    if quantization is not None and format != "ctranslate2":
        raise ValueError(
            f"`--quantization` must be given with ctranslate2 alone, but the format is {format}. Leave it out."
        )

    from hf_seq2seq.atomic_writing import check_new_folder
    from hf_seq2seq.loading import load_model, load_tokenizer

    check_new_folder(output)
    model, tokenizer = load_model(source), load_tokenizer(source)
    if format == "ctranslate2":
        from hf_seq2seq.interop import to_ctranslate2

        to_ctranslate2(model, tokenizer, output, quantization)
    else:
        from hf_seq2seq.interop import to_onnx

        to_onnx(model, tokenizer, output)
    typer.echo(_summary(format, output, sum(parameter.nbytes for parameter in model.parameters())))


def _summary(format: Format, output: Path, source_bytes: int) -> str:
    sizes = {path.name: path.stat().st_size for path in sorted(output.iterdir()) if path.suffix in WEIGHTS}
    total = sum(sizes.values())
    others = sorted(path.name for path in output.iterdir() if path.name not in sizes)
    lines = [
        f"{output}: {total / 1e6:.1f} MB of weights, {100 * total / source_bytes:.0f} % of the model's",
        *(f"  {name}  {size / 1e6:.1f} MB" for name, size in sizes.items()),
        f"  {', '.join(others)}",
        NEXT[format].format(folder=output),
    ]
    return "\n".join(lines)
