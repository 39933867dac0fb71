"""What lines come from and translations go to: plain lines, tables whose other columns are kept, and memories."""

import csv
import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import repeat, tee
from pathlib import Path
from typing import Any, Protocol

from hf_seq2seq.data.languages import check_languages
from hf_seq2seq.data.tables import DELIMITED, JSON, DelimitedTable, is_csv, json_text, plain_name, read_json_rows
from hf_seq2seq.data.tmx import InlineTags, Memory, as_xml, fill_target, find_variant, text_of
from hf_seq2seq.json_files import json_of
from hf_seq2seq.text_lines import LINE_ENDS, is_blank

from .hypothesis import Hypothesis
from .segment import Segment, number_lines
from .settings import DecodingSettings


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """A text of a document.

    Attributes:
        text: What is translated.
        number: The number by which messages call it, from 1.
        origin: What the document keeps of it until its translation is written.
    """

    text: str
    number: int
    origin: Any = None


class Document(Protocol):
    """A document that is read and, in the same form, written with translations."""

    def records(self) -> Iterator[Record]:
        """Yields what is translated, in order."""

    def start(self, settings: DecodingSettings) -> list[str]:
        """Returns the lines before the first translation; called after the first record was read, if there is one."""

    def rows(self, line: Segment, settings: DecodingSettings) -> list[str]:
        """Returns the lines that are written for a record, which has its hypotheses now."""

    def end(self) -> list[str]:
        """Returns the lines after the last translation."""


def read_segments(document: Document, prefix: str | None) -> Iterator[Segment]:
    """Yields the records of a document as lines.

    Args:
        document: The document.
        prefix: What each translation begins with, or None.
    """
    records, same = tee(document.records())
    lines = number_lines((record.text for record in records), repeat(prefix))
    for line, record in zip(lines, same, strict=True):
        yield replace(line, line=record.number, origin=record.origin)


class Lines:
    """Plain lines.

    Args:
        lines: The lines.
        as_json: Whether a JSON object is written for each, in place of lines of text.
    """

    def __init__(self, lines: Iterable[str], *, as_json: bool) -> None:
        self._lines, self._as_json = lines, as_json

    def records(self) -> Iterator[Record]:
        """Yields the lines."""
        return (Record(text, number) for number, text in enumerate(self._lines, 1))

    def start(self, settings: DecodingSettings) -> list[str]:
        """Returns nothing."""
        return []

    def rows(self, line: Segment, settings: DecodingSettings) -> list[str]:
        """Returns a line for each hypothesis, or a JSON object. A blank line has as many cells as others."""
        if not self._as_json:
            return ["\t".join(_cells(hypothesis, settings)) for hypothesis in line.hypotheses]
        described = [_describe(hypothesis) for hypothesis in line.hypotheses]
        row = {"source": line.text, "translation": line.hypotheses[0].text, "hypotheses": described}
        return [_as_json_line(row)]

    def end(self) -> list[str]:
        """Returns nothing."""
        return []


class Table(Lines):
    """A TSV or CSV file. Translations replace a column, or are a new one behind the others.

    Args:
        file: The file.
        source_column: The name of the column that is translated, or its number where there is no header.
        target_column: The name or number of the column that is written; by default "target", or a new one.
    """

    def __init__(self, file: Path, source_column: str, target_column: str | None) -> None:
        self._table = table = DelimitedTable.read(file, source_column)
        self._is_csv, num_columns = is_csv(file), len(table.header)
        self._header = list(table.header)
        if table.has_header:
            target_column = target_column or "target"
            self._target = self._header.index(target_column) if target_column in self._header else num_columns
            self._header[self._target : self._target + 1] = [target_column]
            return
        number = target_column or str(num_columns + 1)
        if not number.isdecimal() or not 1 <= int(number) <= num_columns + 1:
            raise ValueError(
                f"`target_column` must be a number from 1 to {num_columns + 1}, since `{file}` has {num_columns} "
                f"columns without names, but is {target_column!r} instead."
            )
        self._target = int(number) - 1

    def records(self) -> Iterator[Record]:
        """Yields the texts of a column."""
        place = self._table.places[0]
        return (Record(cells[place] if any(cells) else "", number, cells) for number, cells in self._table.rows)

    def start(self, settings: DecodingSettings) -> list[str]:
        """Returns the header, if there is one."""
        if not self._table.has_header:
            return []
        more = [name for name, is_there in (("score", settings.scores), ("alignment", settings.attention)) if is_there]
        return [self._join([*self._header, *more])]

    def rows(self, line: Segment, settings: DecodingSettings) -> list[str]:
        """Returns a row for each hypothesis; an empty line for an empty one."""
        if not any(line.origin):
            return [""]
        rows = []
        for hypothesis in line.hypotheses:
            text, *more = _cells(hypothesis, settings)
            cells = list(line.origin)
            cells[self._target : self._target + 1] = [text if self._is_csv else text.replace("\t", " ")]
            rows.append(self._join([*cells, *more]))
        return rows

    def _join(self, cells: Sequence[str]) -> str:
        if not self._is_csv:
            return "\t".join(cells)
        row = io.StringIO()
        csv.writer(row, lineterminator="\n").writerow(cells)
        return row.getvalue().removesuffix("\n")


class JsonTable(Lines):
    """A file of JSON Lines, or a JSON array, of which JSON Lines are written with a field more.

    Args:
        file: The file.
        source_column: The field that is translated; a dot leads into a nested one.
        target_column: The field that is written, in the same form.
    """

    def __init__(self, file: Path, source_column: str, target_column: str | None) -> None:
        self._file, self._source, self._target = file, source_column, (target_column or "target").split(".")

    def records(self) -> Iterator[Record]:
        """Yields the texts of a field."""
        for number, row in read_json_rows(self._file):
            place = f"line {number} of `{self._file}`"
            yield Record("" if row is None else json_text(row, self._source, place), number, row)

    def rows(self, line: Segment, settings: DecodingSettings) -> list[str]:
        """Returns the object with its translation, and with all hypotheses where more is told of them than a text."""
        if line.origin is None:
            return [""]
        row = inner = deepcopy(line.origin)
        *outer, name = self._target
        for key in outer:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise ValueError(
                    f"`target_column` must lead to fields of objects, but {key!r} of line {line.line} of "
                    f"`{self._file}` is {inner!r} instead."
                )
        inner[name] = line.hypotheses[0].text
        if settings.scores or settings.attention or settings.n_best > 1:
            row["hypotheses"] = [_describe(hypothesis) for hypothesis in line.hypotheses]
        return [_as_json_line(row)]


class TranslationMemory(Lines):
    """A TMX file, whose units get a text in a language where they have none. Texts that are there stay.

    Args:
        file: The file.
        source_language: The language that is translated.
        target_language: The language that is written.
        inline_tags: What becomes of the codes inside segments.
    """

    def __init__(self, file: Path, source_language: str, target_language: str, inline_tags: InlineTags) -> None:
        self._memory, self._inline_tags = Memory(file), inline_tags
        self._source, self._target = source_language, target_language

    def records(self) -> Iterator[Record]:
        """Yields the source of each unit; a blank text for one that has none, or has a target."""
        num_units = num_done = num_without = 0
        for num_units, unit in enumerate(self._memory.units(), 1):
            source = text_of(find_variant(unit, self._source), self._inline_tags)
            is_done = not is_blank(text_of(find_variant(unit, self._target), "keep"))
            num_done += is_done
            num_without += is_blank(source) and not is_done
            yield Record("" if is_done else source, num_units, as_xml(unit))
        logger.info(
            "%s: %d units, of which %d had a text in %r, and %d had none in %r or %r (languages: %s).",
            *(self._memory.file, num_units, num_done, self._target, num_without, self._source, self._target),
            ", ".join(self._memory.languages) or "none",
        )

    def start(self, settings: DecodingSettings) -> list[str]:
        """Returns what stands before the first unit."""
        return [self._memory.start]

    def rows(self, line: Segment, settings: DecodingSettings) -> list[str]:
        """Returns the unit as XML."""
        text = line.hypotheses[0].text
        return [line.origin if is_blank(line.text) else fill_target(line.origin, self._target, text)]

    def end(self) -> list[str]:
        """Returns what stands after the last unit."""
        return [self._memory.end]


def open_file(
    file: Path | None,
    *,
    source_column: str | None,
    target_column: str | None,
    source_language: str | None,
    target_language: str | None,
    inline_tags: InlineTags | None,
) -> Document | None:
    """Returns a file as a document that has more than plain lines, or None if nothing says that it has.

    Args:
        file: The file. One whose name ends in .tmx or .tmx.gz is a memory. None is standard input.
        source_column: The column that is translated, where the file is a table.
        target_column: The column that is written.
        source_language: The language that is translated, where the file is a memory.
        target_language: The language that is written.
        inline_tags: What becomes of the codes inside segments of a memory; None drops them.

    Raises:
        ValueError: If an option is missing, or is one of another kind of file.
    """
    name = "" if file is None else plain_name(file)
    is_memory = name.endswith(".tmx")
    of_tables = {"source_column": source_column, "target_column": target_column}
    of_memories = {
        "source_language": source_language,
        "target_language": target_language,
        "inline_tags": inline_tags,
    }
    for option, value in (of_tables if is_memory else of_memories).items():
        if value is not None:
            rule = "left out with a TMX file" if is_memory else "given together with a TMX file"
            place = "standard input" if file is None else f"`{file}`"
            raise ValueError(f"`{option}` must be {rule}, but is {value!r} with {place}.")
    if file is not None and is_memory:
        languages = check_languages(source_language, target_language, file)
        return TranslationMemory(file, *languages, inline_tags or "drop")
    if source_column is None:
        if target_column is not None:
            raise ValueError(f"`target_column` ({target_column!r}) must be given together with `source_column`.")
        return None
    if file is not None and name.endswith(DELIMITED):
        return Table(file, source_column, target_column)
    if file is not None and name.endswith(JSON):
        return JsonTable(file, source_column, target_column)
    raise ValueError(
        f"`source_column` must be given together with a file that ends in .tsv, .csv, .jsonl or .json (each also with "
        f".gz), but the input is {file or 'standard input'}."
    )


def _cells(hypothesis: Hypothesis, settings: DecodingSettings) -> list[str]:
    """Returns the text of a hypothesis, and what is told of it."""
    cells = []
    if settings.scores:
        cells.append("" if hypothesis.score is None else f"{hypothesis.score:.4f}")
    if settings.attention:
        cells.append(" ".join(f"{source}-{target}" for source, target in hypothesis.alignment or ()))
    return [hypothesis.text.replace("\t", " ") if cells else hypothesis.text, *cells]


def _as_json_line(row: dict[str, Any]) -> str:
    """Returns JSON on one line for every reader: what may end a line is escaped."""
    line = json_of(row, ensure_ascii=False)
    return line.translate({ord(character): f"\\u{ord(character):04x}" for character in LINE_ENDS})


def _describe(hypothesis: Hypothesis) -> dict[str, Any]:
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
