"""The verb `evaluate`: translate a test set, score the translations, and compare them with another system's."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_seq2seq.json_files import json_of

from .options import (
    Backend,
    BackendOption,
    BatchTokensOption,
    BeamSizeOption,
    DeviceOption,
    DtypeOption,
    EnsembleOption,
    GnmtPenaltyOption,
    LengthPenaltyOption,
    ModelArgument,
    RevisionOption,
    check_revision,
)
from .streams import check_output, open_output, progress_bar, write_lines


if TYPE_CHECKING:
    from hf_seq2seq.inference import SearchOptions, Translator


def evaluate(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="The lines to translate, plain or gzipped.")],
    reference: Annotated[
        list[Path],
        typer.Option(
            help="What each line should become, plain or gzipped. Several such files are several references of each "
            "line, and so are the cells of a .tsv file."
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            help="Another model of the same backend, or a file of translations: tells by paired bootstrap whether the "
            "two differ by more than chance."
        ),
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where to keep the translations; gzipped if named .gz.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Scores to compute, with commas between them: bleu, chrf, ter and exact_match (the default), rouge1, "
            "rouge2, rougeL, wer, cer, per, g2p_wer, or a function of your own as module:function."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")] = False,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    gnmt_penalty: GnmtPenaltyOption = None,
    ensemble: EnsembleOption = None,
    batch_tokens: BatchTokensOption = 1024,
    backend: BackendOption = Backend.torch,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    revision: RevisionOption = None,
) -> None:
    """Score a model's outputs against references: BLEU, chrF, TER, ROUGE, error rates, exact matches, or your own."""
    check_revision(revision, backend)
    from hf_seq2seq.data.lines import read_lines
    from hf_seq2seq.evaluation import chosen_metrics, compare, score
    from hf_seq2seq.inference.translator import Translator

    chosen_metrics(metrics)
    sources = list(read_lines(source))
    references = _read_references(reference, sources, source)
    rival: list[str] | Translator | None = None
    rival_file = Path(against) if against is not None and Path(against).is_file() else None
    if rival_file is not None:
        rival = list(read_lines(rival_file))
        _check_same_number(sources, rival, "--source", source, "--against", against)
    check_output(output_file, source, *reference, *([] if rival_file is None else [rival_file]))

    def load(name: str | list[str], revision: str | None = None) -> Translator:
        return Translator.from_pretrained(
            name, device=device, dtype=dtype, batch_tokens=batch_tokens, backend=backend.value, revision=revision
        )

    options: SearchOptions = {"beam_size": beam_size, "length_penalty": length_penalty, "gnmt_penalty": gnmt_penalty}
    translator = load([model, *ensemble] if ensemble else model, revision)
    if against is not None and rival is None:
        rival = _load_rival(load, against)  # before anything is translated, since it may be a typing error
    translations = _translate_all(translator, sources, options)
    if output_file is not None:
        with open_output(output_file) as output:
            write_lines(translations, output, output_file)
    scores = score(translations, references, metrics, sources=sources) | {"num_sentences": len(sources)}
    if rival is not None:
        baseline = _translate_all(rival, sources, options) if isinstance(rival, Translator) else rival
        found = compare(translations, baseline, references, metrics, sources=sources)
        scores["comparison"] = {"against": against, **found}
    typer.echo(json_of(scores, indent=2) if as_json else _summary(scores))


def _read_references(files: list[Path], sources: list[str], source: Path) -> list[list[str]]:
    """Returns the references of each line: of a .tsv or .tsv.gz file its cells, but for empty ones, else the line."""
    from hf_seq2seq.data.lines import read_lines

    references: list[list[str]] = [[] for _ in sources]
    for file in files:
        lines = list(read_lines(file))
        _check_same_number(sources, lines, "--source", source, "--reference", file)
        is_table = file.name.removesuffix(".gz").endswith(".tsv")
        for line, known in zip(lines, references, strict=True):
            known += [cell for cell in line.split("\t") if cell] or [""] if is_table else [line]
    return references


def _load_rival(load: Callable[[str], "Translator"], against: str) -> "Translator":
    try:
        return load(against)
    except OSError as error:
        raise OSError(f"`--against` must be a file of translations, or a model: {error}") from error


def _check_same_number(
    first: list[str], second: list[str], first_option: str, first_file: object, second_option: str, second_file: object
) -> None:
    if len(first) != len(second):
        raise ValueError(
            f"`{first_option}` and `{second_option}` must have the same number of lines, but {first_file} has "
            f"{len(first)} and {second_file} has {len(second)} instead."
        )


def _translate_all(translator: "Translator", sources: list[str], options: "SearchOptions") -> list[str]:
    translations: list[str] = []
    with progress_bar(sys.stderr.isatty(), len(sources)) as progress:
        for found in translator.windows(sources, scores=False, **options):
            translations += [hypotheses[0].text for hypotheses in found]
            progress.update(len(found))
    return translations


def _summary(scores: dict[str, Any]) -> str:
    from hf_seq2seq.evaluation import comparison_lines, report_line, score_lines

    lines = [report_line("sentences", f"{scores['num_sentences']:,}"), *score_lines(scores)]
    comparison = scores.get("comparison")
    if comparison is not None:
        lines.append(f"against {comparison['against']}, by paired bootstrap (95 % intervals):")
        lines += comparison_lines(comparison)
    return "\n".join(lines)
