"""The verb `translate`: lines of text in, their translations out, in order and as they are made."""

import errno
import gzip
import io
import json
import os
import select
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer


if TYPE_CHECKING:
    from hf_seq2seq.inference import Hypothesis, SearchOptions, Translator


class Format(StrEnum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"


class Backend(StrEnum):
    """What computes."""

    torch = "torch"
    ctranslate2 = "ctranslate2"


ModelArgument = Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="MODEL")]
BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy search. By default the model's own."),
]
LengthPenaltyOption = Annotated[
    float | None, typer.Option(help="Above the model's own for longer outputs, below it for shorter ones.")
]
BatchTokensOption = Annotated[
    int, typer.Option(min=1, help="The most source tokens, with padding, that are translated at once.")
]
DeviceOption = Annotated[
    str | None, typer.Option(help='Such as "cpu" or "cuda:1". By default an accelerator where there is one.')
]
DtypeOption = Annotated[
    str | None, typer.Option(help='Type of the weights, such as "bfloat16". By default the one they were saved in.')
]
BackendOption = Annotated[
    Backend, typer.Option(help="ctranslate2 for a folder that `hf-seq2seq export ctranslate2` wrote.")
]
RevisionOption = Annotated[
    str | None, typer.Option(help="Branch, tag or commit of MODEL on the Hub; by default main.")
]
SplitLanguageOption = Annotated[
    str | None,
    typer.Option(
        help='Cut each line into its sentences first, by the rules of this language, such as "en", or by general ones '
        "where it has none."
    ),
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
    output_format: Annotated[
        Format, typer.Option("--format", help="One line of text, or one JSON object, for each line of the input.")
    ] = Format.text,
    n_best: Annotated[
        int, typer.Option(min=1, help="Hypotheses for each line, the best first; as text, a line for each.")
    ] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Add the log-probability; as text, after a tab.")] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add which source token each token attended to most, as numbers from 0 such as 0-0 2-1; as text, "
            "after a tab. With --format jsonl the tokens are there too.",
        ),
    ] = False,
    prefix: Annotated[
        str | None, typer.Option(help="What each translation begins with, such as a language tag.")
    ] = None,
    split_language: SplitLanguageOption = None,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
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
    windows = _read_windows(input_file, max(1, batch_tokens // 2))
    check_output(output_file, input_file)
    ranks = _Ranks(input_file, device)

    from hf_seq2seq.inference.translator import Translator

    translator = Translator.from_pretrained(
        model,
        device=ranks.device,
        dtype=dtype,
        batch_tokens=batch_tokens,
        backend=backend.value,
        revision=revision,
    )
    options: dict[str, Any] = {"scores": scores, "attention": alignments, "prefix": prefix}
    options |= search_options(
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        split_language=split_language,
    )
    translator.hypotheses([], **options)  # what is wrong with them is told before a line is waited for
    shows_progress = ranks.is_first and sys.stderr.isatty() and not (output_file is None and sys.stdout.isatty())
    with (
        open_output(output_file if ranks.is_first else Path(os.devnull)) as output,
        progress_bar(shows_progress) as progress,
        closing(ranks.translate(translator, windows, options)) as translated,
    ):
        for texts, found in translated:
            rows = zip(texts, found, strict=True)
            write_lines(
                [line for text, hypotheses in rows for line in _format(text, hypotheses, output_format)],
                output,
                output_file,
            )
            progress.update(len(texts))


def _read_windows(input_file: Path | None, largest: int) -> Iterator[list[str]]:
    """Returns an iterator over lists of lines; what is wrong with a file is told now, before the model is loaded."""
    from hf_seq2seq.data.reading import read_lines
    from hf_seq2seq.inference.windows import growing_sizes, in_lists

    if input_file is not None:
        lines = read_lines(input_file)
        return in_lists(chain([next(lines)], lines), growing_sizes(largest))
    standard_input = _StandardInput()
    lines = read_lines(io.BufferedReader(standard_input))
    return in_lists(lines, growing_sizes(largest), standard_input.is_waited_for)


class _StandardInput(io.RawIOBase):
    """Standard input, given out a line at a time, so that what has come of it is known."""

    def __init__(self) -> None:
        self.name, self._come = "<stdin>", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._come = self._come or os.read(sys.stdin.fileno(), io.DEFAULT_BUFFER_SIZE)
        line_end = self._come.find(b"\n") + 1 or len(self._come)
        number = min(line_end, len(buffer))
        buffer[:number], self._come = self._come[:number], self._come[number:]
        return number

    def is_waited_for(self) -> bool:
        """Tells whether nothing has come that was not given out: who is to write more may wait for an answer."""
        try:
            return not self._come and not select.select([sys.stdin], [], [], 0)[0]
        except OSError:  # Windows selects among sockets alone
            return True


class _Ranks:
    """The processes that share the lines of a file, or the one that has them all.

    Args:
        input_file: The file, None for standard input.
        device: The device that was asked for, if one was.

    Raises:
        ValueError: If several processes are to share standard input or one device.
    """

    def __init__(self, input_file: Path | None, device: str | None) -> None:
        self.number, self.rank, self.device = int(os.environ.get("WORLD_SIZE", "1")), 0, device
        if self.number == 1:
            return
        if input_file is None:
            raise ValueError(f"`--input` must name a file where {self.number} processes share its lines.")
        if device is not None and ":" in device:
            raise ValueError(
                f"`--device` must have no number where {self.number} processes share the lines, each on a device of "
                f"its own, but is {device} instead. Leave it out."
            )
        import torch
        from accelerate import PartialState

        state = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
        self.rank, self.device = state.process_index, str(state.device)

    @property
    def is_first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def translate(
        self, translator: "Translator", windows: Iterable[list[str]], options: dict[str, Any]
    ) -> Generator[tuple[list[str], list[list["Hypothesis"]]]]:
        """Yields lines with their hypotheses, in order; in the first process those of all."""
        if self.number == 1:
            first_number = 1
            for texts in windows:
                yield texts, translator.hypotheses(texts, first_number=first_number, **options)
                first_number += len(texts)
            return
        from accelerate import PartialState

        try:
            yield from self._share(translator, windows, options)
        except GeneratorExit:  # nobody reads on: the others wait for another turn
            self._goes_on(False)
            raise
        finally:
            PartialState().destroy_process_group()

    def _share(
        self, translator: "Translator", windows: Iterable[list[str]], options: dict[str, Any]
    ) -> Iterator[tuple[list[str], list[list["Hypothesis"]]]]:
        """Yields what all processes make of a turn, in which each has one window."""
        from accelerate.utils import gather_object

        from hf_seq2seq.inference.windows import in_lists

        first_number = 1
        for turn in in_lists(windows, repeat(self.number)):
            if not self._goes_on(True):
                return
            mine = turn[self.rank] if self.rank < len(turn) else []
            my_number = first_number + sum(map(len, turn[: self.rank]))
            gathered = gather_object([translator.hypotheses(mine, first_number=my_number, **options)])
            if self.is_first:
                yield from zip(turn, gathered, strict=False)  # in the last turn some have nothing
            first_number += sum(map(len, turn))
        self._goes_on(True)  # as the first process may have to say no after the last turn too

    @staticmethod
    def _goes_on(wants_to: bool) -> bool:
        """Tells every process whether the first one wants to go on."""
        from accelerate.utils import broadcast_object_list

        answer: list[bool] = broadcast_object_list([wants_to])
        return answer[0]


def _format(source: str, hypotheses: list["Hypothesis"], output_format: Format) -> list[str]:
    """Returns the lines that tell of one line's hypotheses."""
    if output_format is Format.jsonl:
        described = [_describe(hypothesis) for hypothesis in hypotheses]
        row = {"source": source, "translation": hypotheses[0].text, "hypotheses": described}
        return [json.dumps(row, ensure_ascii=False)]
    lines = []
    for hypothesis in hypotheses:
        cells = [hypothesis.text]
        if hypothesis.score is not None:
            cells.append(f"{hypothesis.score:.4f}")
        if hypothesis.alignment is not None:
            cells.append(" ".join(f"{source}-{target}" for source, target in hypothesis.alignment))
        lines.append("\t".join(cells))
    return lines


def _describe(hypothesis: "Hypothesis") -> dict[str, Any]:
    described: dict[str, Any] = {"text": hypothesis.text, "tokens": hypothesis.tokens}
    if hypothesis.score is not None:
        described |= {"score": hypothesis.score, "token_log_probs": hypothesis.token_log_probs}
    if hypothesis.alignment is not None:
        described |= {"source_tokens": hypothesis.source_tokens, "alignment": hypothesis.alignment}
    return described


def progress_bar(is_shown: bool, num_sentences: int | None = None) -> Any:
    """Return a bar on standard error that tells the sentences a second."""
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    return tqdm(total=num_sentences, unit=" sentences", disable=not is_shown)


def search_options(**options: Any) -> "SearchOptions":
    """Return the options that were given."""
    given: Any = {name: value for name, value in options.items() if value is not None}
    return given  # type: ignore[no-any-return]


def check_revision(revision: str | None, backend: Backend) -> None:
    """Raise ValueError if a revision is named of what is no repository."""
    if revision is not None and backend is Backend.ctranslate2:
        raise ValueError(
            "`--revision` must be left out with `--backend ctranslate2`, which reads a folder, but is "
            f"{revision!r} instead."
        )


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
def open_output(output_file: Path | None) -> Iterator[BinaryIO]:
    """Open a file to write to, or give out standard output; a full disk is an error that names it."""
    try:
        if output_file is None:
            yield sys.stdout.buffer
        else:
            with output_file.open("wb") as output:
                yield output
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        name = "standard output" if output_file is None else f"`{output_file}`"
        raise OSError(f"No space is left for {name}. The lines before are kept; free some space.") from error


def write_lines(lines: list[str], output: BinaryIO, output_file: Path | None) -> None:
    """Write lines so that they can be read at once, whatever happens later: a gzip file is whole after each call."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if output_file is not None and output_file.suffix.lower() == ".gz":
        data = gzip.compress(data)  # a gzip file may have several of these, one after the other
    output.write(data)
    output.flush()
