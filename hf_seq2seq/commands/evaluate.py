"""The verb `evaluate`: translate a test set and score the translations against its references."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_seq2seq.commands.translate import (
    BatchTokensOption,
    BeamSizeOption,
    DeviceOption,
    ModelArgument,
    check_output,
    progress_bar,
    search_options,
    write_lines,
)


def evaluate(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="The lines to translate, plain or gzipped.")],
    reference: Annotated[Path, typer.Option(help="What each line should become, plain or gzipped.")],
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where to keep the translations; gzipped if named .gz.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")] = False,
    beam_size: BeamSizeOption = None,
    batch_tokens: BatchTokensOption = 1024,
    device: DeviceOption = None,
) -> None:
    """Score a model's translations against references: sacreBLEU's BLEU, chrF and TER, and exact matches."""
    from hf_seq2seq.data.reading import read_lines

    sources, references = list(read_lines(source)), list(read_lines(reference))
    if len(sources) != len(references):
        raise ValueError(
            f"`--source` and `--reference` must have the same number of lines, but {source} has {len(sources)} and "
            f"{reference} has {len(references)} instead."
        )
    check_output(output_file, source, reference)

    from hf_seq2seq.inference.translator import Translator
    from hf_seq2seq.training.metrics import score

    translator = Translator.from_pretrained(model, device=device, batch_tokens=batch_tokens)
    translations: list[str] = []
    with progress_bar(sys.stderr.isatty(), len(sources)) as progress:
        for lines in translator.windows(sources, **search_options(beam_size)):
            translations += lines
            progress.update(len(lines))
    if output_file is not None:
        with output_file.open("wb") as output:
            write_lines(translations, output, output_file)
    scores = score(translations, references) | {"num_sentences": len(sources)}
    typer.echo(json.dumps(scores, indent=2) if as_json else _summary(scores))


def _summary(scores: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"sentences    {scores['num_sentences']:,}",
            f"exact match  {scores['exact_match']:.1f} %",
            f"BLEU         {scores['bleu']:.1f}  {scores['bleu_signature']}",
            f"chrF         {scores['chrf']:.1f}  {scores['chrf_signature']}",
            f"TER          {scores['ter']:.1f}  {scores['ter_signature']}",
        ]
    )
