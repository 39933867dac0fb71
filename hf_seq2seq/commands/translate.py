"""The verb `translate`: lines of text in, their translations out, in order and as they are made."""

import os
import sys
from contextlib import closing
from enum import Enum, StrEnum
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_seq2seq.json_files import json_of
from hf_seq2seq.text_lines import LINE_ENDS

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
    from hf_seq2seq.inference import Hypothesis
    from hf_seq2seq.inference.segment import Segment
    from hf_seq2seq.inference.settings import DecodingSettings


class Format(StrEnum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"


class Utility(StrEnum):
    """What a translation is worth where another is right."""

    chrf = "chrf"
    bleu = "bleu"


class OverLong(Enum):
    """What becomes of a line that is too long."""

    cut = "cut"
    split = "split"
    skip = "skip"


def translate(
    model: ModelArgument,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="The lines to translate, plain or gzipped. By default standard input."),
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where to write; gzipped if named .gz. By default standard output.")
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
    """
    check_revision(revision, backend)
    lines = InputLines(input_file)
    check_output(output_file, input_file)
    from hf_seq2seq.inference import Translator
    from hf_seq2seq.inference.processes import Processes
    from hf_seq2seq.inference.segment import number_lines
    from hf_seq2seq.inference.windows import in_windows

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
    windows = in_windows(number_lines(lines, repeat(prefix)), translator.window, lines.is_waited_for)
    shows_progress = processes.is_first and sys.stderr.isatty() and not (output_file is None and sys.stdout.isatty())
    with (
        open_output(output_file if processes.is_first else Path(os.devnull)) as output,
        progress_bar(shows_progress) as progress,
        closing(processes.map(lambda lines: translator.translate_lines(lines, settings), windows)) as translated,
    ):
        for window in translated:
            written = [row for line in window for row in _format(line, settings, output_format)]
            write_lines(written, output, output_file)
            progress.update(len(window))


def _check_sharing(num_processes: int, input_file: Path | None, device: str | None) -> None:
    """Raises ValueError if several processes are to share standard input or one device."""
    if input_file is None:
        raise ValueError(f"`--input` must name a file where {num_processes} processes share its lines.")
    if device is not None and ":" in device:
        raise ValueError(
            f"`--device` must have no number where {num_processes} processes share the lines, each on a device of "
            f"its own, but is {device} instead. Leave it out."
        )


def _format(line: "Segment", settings: "DecodingSettings", output_format: Format) -> list[str]:
    """Returns what is written for one line. As text, a blank one has as many cells as others."""
    if output_format is Format.jsonl:
        described = [_describe(hypothesis) for hypothesis in line.hypotheses]
        row = {"source": line.text, "translation": line.hypotheses[0].text, "hypotheses": described}
        return [_as_json_line(row)]
    rows = []
    for hypothesis in line.hypotheses:
        cells = []
        if settings.scores:
            cells.append("" if hypothesis.score is None else f"{hypothesis.score:.4f}")
        if settings.attention:
            cells.append(" ".join(f"{source}-{target}" for source, target in hypothesis.alignment or ()))
        text = hypothesis.text.replace("\t", " ") if cells else hypothesis.text
        rows.append("\t".join([text, *cells]))
    return rows


def _as_json_line(row: dict[str, Any]) -> str:
    """Returns JSON on one line for every reader: what may end a line is escaped."""
    line = json_of(row, ensure_ascii=False)
    return line.translate({ord(character): f"\\u{ord(character):04x}" for character in LINE_ENDS})


def _describe(hypothesis: "Hypothesis") -> dict[str, Any]:
    described: dict[str, Any] = {"text": hypothesis.text, "tokens": hypothesis.tokens}
    if hypothesis.token_log_probs is not None:
        described |= {
            "score": hypothesis.score,
            "sum_log_prob": hypothesis.sum_log_prob,
            "token_log_probs": hypothesis.token_log_probs,
        }
    if hypothesis.token_alignment is not None:
        described |= {
            "source_tokens": hypothesis.source_tokens,
            "alignment": hypothesis.alignment,
            "token_alignment": hypothesis.token_alignment,
        }
    return described
