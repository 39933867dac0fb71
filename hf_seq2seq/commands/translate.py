"""The verb `translate`: lines of text in, their translations out, in order and as they are made."""

import sys
from collections.abc import Callable
from contextlib import closing
from enum import Enum, StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .long_job import facts_of_job, long_job
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
from .streams import InputLines, check_output, open_output, progress_bar, write_lines


if TYPE_CHECKING:
    from hf_seq2seq.inference.documents import Document


class Format(StrEnum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"


class Utility(StrEnum):
    """What a translation is worth where another is right."""

    chrf = "chrf"
    bleu = "bleu"


class InlineTags(StrEnum):
    """What becomes of codes inside the segments of a TMX file."""

    drop = "drop"
    keep = "keep"


class OverLong(Enum):
    """What becomes of a line that is too long."""

    cut = "cut"
    split = "split"
    skip = "skip"


def translate(
    context: typer.Context,
    model: ModelArgument,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="What to translate, plain or gzipped: lines, a table with --source-column, or a .tmx file. By "
            "default lines of standard input.",
        ),
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where to write; gzipped if named .gz. By default standard output.")
    ] = None,
    source_column: Annotated[
        str | None,
        typer.Option(
            help="Column of a TSV, CSV or JSON file to translate, by its name, or by its number where there is no "
            "header; translation.en is nested. The other columns are kept."
        ),
    ] = None,
    target_column: Annotated[
        str | None,
        typer.Option(help='Column to write; by default "target", or a new one where there is no header.'),
    ] = None,
    source_language: Annotated[
        str | None, typer.Option(help='Language of a .tmx file to translate; "en" stands for en-GB and EN-US too.')
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language to fill in there, where a unit has no text in it.")
    ] = None,
    inline_tags: Annotated[
        InlineTags | None,
        typer.Option(help="Leave out the codes inside its segments (drop, the default), or read them as text."),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="One line of text, or one JSON object, for each line of the input.")
    ] = Format.text,
    n_best: Annotated[
        int, typer.Option(min=1, help="Hypotheses for each line, the best first; as text, a line for each.")
    ] = 1,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Add the score that ranks hypotheses: the log-probability divided by the length penalty; as text, "
            "after a tab. With --format jsonl the log-probabilities are there too.",
        ),
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add which word of the line each word attended to most, as numbers from 0 such as 0-0 2-1; as text, "
            "after a tab. With --format jsonl those of the tokens, with the attention, are there too.",
        ),
    ] = False,
    prefix: Annotated[
        str | None, typer.Option(help="What each translation begins with, such as a language tag.")
    ] = None,
    terms: Annotated[
        Path | None,
        typer.Option(
            help="A glossary: on each line a term, a tab, and the translation that it must have where a line has it."
        ),
    ] = None,
    bad_words: Annotated[
        Path | None, typer.Option(help="A file of words and phrases, one a line, that no translation has in it.")
    ] = None,
    split_language: Annotated[
        str | None,
        typer.Option(
            help='Cut each line into its sentences first, by the rules of this language, such as "en", or by general '
            "ones where it has none."
        ),
    ] = None,
    max_source_tokens: Annotated[
        int, typer.Option(min=2, help="The most tokens of a line, or of a sentence, that are translated at once.")
    ] = 1024,
    over_long: Annotated[
        OverLong,
        typer.Option(help="What becomes of a longer one: translate its first tokens, or its parts, or a blank line."),
    ] = OverLong.cut,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    gnmt_penalty: GnmtPenaltyOption = None,
    diversity_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Make the hypotheses of a search differ more: what the k-th best continuation of one loses, times k.",
        ),
    ] = None,
    mbr: Annotated[
        bool,
        typer.Option(
            "--mbr",
            help="Choose by minimum Bayes risk among hypotheses or samples; the score is the expected utility.",
        ),
    ] = False,
    mbr_utility: Annotated[
        Utility | None, typer.Option(help="What a translation is worth where another is right; by default chrf.")
    ] = None,
    mbr_candidates: Annotated[
        int | None, typer.Option(min=1, help="Choose among so many; by default as many as beams, or 32 samples.")
    ] = None,
    min_new_tokens: Annotated[
        int | None, typer.Option(min=0, help="The fewest tokens of a translation after its prefix.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="The most tokens of a translation; by default 50 more than its line has."),
    ] = None,
    do_sample: Annotated[
        bool, typer.Option("--do-sample", help="Draw tokens by their probability in place of a search.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1, likely tokens are drawn more often; above 1, more rarely.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help="Draw among so many of the likeliest tokens; 0 for all, by default 50.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw among the likeliest tokens that have this probability together.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The same number draws the same samples, whatever the batches are.")
    ] = None,
    ensemble: EnsembleOption = None,
    batch_tokens: BatchTokensOption = 1024,
    backend: BackendOption = Backend.torch,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    revision: RevisionOption = None,
) -> None:
    """Translate lines of text with a trained model.

    Each line in is one line out, a blank one for a blank one, in UTF-8. Translations appear as they are made. Started
    on several devices by torchrun or `accelerate launch`, the processes share the lines of a file.

    From a file into a file, the translations are in OUTPUT.unfinished until all are there. Where that was killed, the
    same command goes on (long_job.py).
    """
    from hf_seq2seq.data.lines import check_file

    check_revision(revision, backend)
    if input_file is not None:
        check_file(input_file)  # before seconds of imports
    check_output(output_file, input_file)
    from hf_seq2seq.inference import Translator
    from hf_seq2seq.inference.documents import read_segments
    from hf_seq2seq.inference.processes import Processes
    from hf_seq2seq.inference.terms import read_terms, read_words
    from hf_seq2seq.inference.windows import in_windows

    columns = {"source_column": source_column, "target_column": target_column}
    languages = {"source_language": source_language, "target_language": target_language, "inline_tags": inline_tags}
    told = {"n_best": n_best > 1, "scores": scores, "alignments": alignments}
    document, is_waited_for = _open_document(input_file, output_format, columns | languages, told)
    processes = Processes()
    if processes.number > 1:
        _check_sharing(processes.number, input_file, device)
    translator = Translator.from_pretrained(
        [model, *ensemble] if ensemble else model,
        device=processes.join(device),
        dtype=dtype,
        batch_tokens=batch_tokens,
        backend=backend.value,
        revision=revision,
    )
    settings = translator.settings(
        scores=scores,
        attention=alignments,
        beam_size=beam_size,
        length_penalty=length_penalty,
        gnmt_penalty=gnmt_penalty,
        terms=None if terms is None else read_terms(terms),
        bad_words=None if bad_words is None else read_words(bad_words),
        diversity_rate=diversity_rate,
        mbr=mbr,
        mbr_utility=None if mbr_utility is None else mbr_utility.value,
        mbr_candidates=mbr_candidates,
        min_new_tokens=min_new_tokens,
        max_new_tokens=max_new_tokens,
        do_sample=do_sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        n_best=n_best,
        split_language=split_language,
        max_source_tokens=max_source_tokens,
        over_long=over_long.value,
    )
    facts = facts_of_job(context, input_file, output_file)
    windows = in_windows(read_segments(document, prefix), translator.window, is_waited_for)
    translate_lines = partial(translator.translate_lines, settings=settings)
    shows_progress = processes.is_first and sys.stderr.isatty() and not (output_file is None and sys.stdout.isatty())
    with (
        long_job(output_file, facts, processes.is_first) as job,
        open_output(job.file, job.num_bytes) as output,
        progress_bar(shows_progress, num_done=job.num_lines) as progress,
        closing(processes.map(translate_lines, islice(windows, job.num_windows, None))) as translated,
    ):
        for window in translated:
            rows = [] if job.num_windows else document.start(settings)
            write_lines(rows + [row for line in window for row in document.rows(line, settings)], output, output_file)
            job.advance(output, len(window))
            progress.update(len(window))
        rows = ([] if job.num_windows else document.start(settings)) + document.end()
        if rows:
            write_lines(rows, output, output_file)


def _open_document(
    input_file: Path | None, output_format: Format, options: dict[str, Any], told: dict[str, bool]
) -> tuple["Document", Callable[[], bool] | None]:
    """Returns what is translated, and what tells whether someone waits for its next translation.

    Args:
        input_file: The file; None for standard input.
        output_format: How plain lines are written.
        options: Those that say what a file is.
        told: What is told of a hypothesis beside its text, and whether it is asked for.
    """
    from hf_seq2seq.inference.documents import Lines, TranslationMemory, open_file

    document = open_file(input_file, **options)
    if document is None:
        lines = InputLines(input_file)
        return Lines(lines, as_json=output_format is Format.jsonl), lines.is_waited_for
    if output_format is Format.jsonl:
        raise ValueError(f"`--format` must be left out where `{input_file}` is written in its own format.")
    if isinstance(document, TranslationMemory):
        for name, is_asked in told.items():
            if is_asked:
                option = name.replace("_", "-")
                raise ValueError(f"`--{option}` must be left out with a TMX file, which has no place for it.")
    return document, None


def _check_sharing(num_processes: int, input_file: Path | None, device: str | None) -> None:
    """Raises ValueError if several processes are to share standard input or one device."""
    if input_file is None:
        raise ValueError(f"`--input` must name a file where {num_processes} processes share its lines.")
    if device is not None and ":" in device:
        raise ValueError(
            f"`--device` must have no number where {num_processes} processes share the lines, each on a device of "
            f"its own, but is {device} instead. Leave it out."
        )
