"""Reads the rows of tables: TSV, CSV and JSON files, with the texts in columns that have names or numbers."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from hf_seq2seq.text_lines import is_blank

from .lines import read_lines


Row = tuple[int, list[str]]  # the number of its line, and its cells

# How the names of files end, without .gz.
DELIMITED, JSON = (".tsv", ".csv"), (".jsonl", ".json")
MULTILINGUAL = (".tmx", ".zip")  # files whose sides are languages


def plain_name(file: Path) -> str:
    """Returns the name of a file in small letters, without .gz: its ending says what the file is."""
    return file.name.lower().removesuffix(".gz")


@dataclass(frozen=True)
class DelimitedTable:
    """The rows of a TSV or CSV file. Quotes in a TSV file have no special meaning.

    Attributes:
        file: The file.
        header: The cells of its first line.
        has_header: Whether they are names of columns.
        places: Which cells of a row were asked for, from 0.
        rows: The rows, without the header. An empty line is a row of one empty cell, or of none.
    """

    file: Path
    header: list[str]
    has_header: bool
    places: list[int]
    rows: Iterator[Row]

    @classmethod
    def read(cls, file: Path, *columns: str) -> "DelimitedTable":
        """Returns a table with columns that its first line names, or, where it does not, that numbers from 1 name.

        Raises:
            ValueError: If the file has no such columns, or a row has too few or too many cells.
        """
        rows = _read_rows(file)
        number, header = next(rows)
        places, has_header = _find_columns(file, header, columns)
        if not has_header:
            rows = chain([(number, header)], rows)
        return cls(file, header, has_header, places, _check_rows(file, rows, len(header)))


def is_csv(file: Path) -> bool:
    """Returns whether a file is read as CSV, and not as TSV."""
    return plain_name(file).endswith(".csv")


def _read_rows(file: Path) -> Iterator[Row]:
    if not is_csv(file):
        yield from ((number, line.split("\t")) for number, line in enumerate(read_lines(file), 1))
        return
    reader = csv.reader((f"{line}\n" for line in read_lines(file)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(
            f"`{file}` must be a CSV file, but line {reader.line_num} cannot be read as such: {error}. A double quote "
            "inside a quoted cell must be doubled."
        ) from None


def _find_columns(file: Path, header: list[str], columns: Sequence[str]) -> tuple[list[int], bool]:
    """Returns the places of columns, and whether the first line names them."""
    if set(columns) <= set(header):
        return [header.index(column) for column in columns], True
    if all(re.fullmatch("[1-9][0-9]*", column) and int(column) <= len(header) for column in columns):
        return [int(column) - 1 for column in columns], False
    if not is_csv(file) and len(header) == 2 and tuple(columns) == ("source", "target"):
        return [0, 1], False
    names = " and ".join(map(repr, columns))
    raise ValueError(
        f"The first line of `{file}` must name the column{'s' if len(columns) > 1 else ''} {names}, but is {header} "
        "instead. Set `source_column` and `target_column`, to numbers from 1 if it has no header; only a TSV file of "
        "just the two texts needs neither."
    )


def _check_rows(file: Path, rows: Iterator[Row], num_cells: int) -> Iterator[Row]:
    for number, cells in rows:
        if any(cells) and len(cells) != num_cells:
            remedy = (
                "put in double quotes"
                if is_csv(file)
                else "taken out, or the texts kept in two text files or as JSONL"
            )
            raise ValueError(
                f"Each line of `{file}` must have {num_cells} cells as its first line has, but line {number} has "
                f"{len(cells)} instead. A separator inside a text must be {remedy}."
            )
        yield number, cells


def read_delimited_pairs(file: Path, source_column: str, target_column: str) -> Iterator[dict[str, str]]:
    """Yields the pairs of a TSV or CSV file; an empty line is a blank pair."""
    table = DelimitedTable.read(file, source_column, target_column)
    source, target = table.places
    for _, cells in table.rows:
        yield {"source": cells[source], "target": cells[target]} if any(cells) else {"source": "", "target": ""}


_JSON_LINES = (
    'A file of JSON Lines has a pair on each line, such as {"source": "one two", "target": "eins zwei"}, and a JSON '
    "array has such pairs between brackets."
)


def read_json_pairs(file: Path, source_column: str, target_column: str) -> Iterator[dict[str, str]]:
    """Yields the pairs of a file of JSON Lines, or of a JSON array; a blank line is a blank pair."""
    for number, row in read_json_rows(file):
        place = f"line {number} of `{file}`"
        source, target = (
            "" if row is None else json_text(row, name, place) for name in (source_column, target_column)
        )
        yield {"source": source, "target": target}


def read_json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yields the objects of a file of JSON Lines, or of a JSON array, each with the number of the line it begins in.

    A blank line of JSON Lines has None. An array is read item by item.

    Raises:
        ValueError: If the file holds something else.
    """
    lines = read_lines(file)
    start = list(_up_to_text(lines))
    lines = chain(start, lines)
    if start[-1].lstrip().startswith("["):
        yield from _JsonArray(lines, file).objects()
        return
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield number, None
            continue
        place = f"line {number} of `{file}`"
        try:
            yield number, _check_object(json.loads(line), place)
        except (json.JSONDecodeError, RecursionError) as error:
            raise _no_json(place, error) from None


def _up_to_text(lines: Iterator[str]) -> Iterator[str]:
    """Yields the lines up to the first that is not blank."""
    for line in lines:
        yield line
        if not is_blank(line):
            return


class _JsonArray:
    """The text of an array, read no further than its next item.

    The library ijson reads arrays so too, but its errors name no line.

    Args:
        lines: The lines of the file.
        file: Its name.
    """

    def __init__(self, lines: Iterator[str], file: Path) -> None:
        self._lines, self._file, self._decoder = lines, file, json.JSONDecoder()
        self._text, self._at = "", 0  # what was read last, and where that is not used yet
        self._last_line = 0  # the number of the last line of the text

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the objects, each with the number of the line it begins in."""
        self._take("[")
        if self._next_character() == "]":
            self._take("]")
        else:
            yield from self._items()
        if self._next_character():
            raise _no_json(self._place, "something follows the array")

    def _items(self) -> Iterator[tuple[int, dict[str, Any]]]:
        separator = ","
        while separator == ",":
            self._next_character()
            item, end = self._decode()
            yield self._line, _check_object(item, self._place)
            self._at = end
            separator = self._take(",]")

    @property
    def _line(self) -> int:
        return self._last_line - self._text.count("\n", self._at)

    @property
    def _place(self) -> str:
        return f"line {self._line} of `{self._file}`"

    def _next_character(self) -> str:
        """Returns the next character that is no white space; nothing at the end of the file."""
        while (found := _INK.search(self._text, self._at)) is None:
            line = next(self._lines, None)
            if line is None:
                return ""
            self._text, self._at, self._last_line = line, 0, self._last_line + 1
        self._at = found.start()
        return found[0]

    def _take(self, characters: str) -> str:
        """Returns the next character, which must be one of some, and goes past it."""
        found = self._next_character()
        if not found or found not in characters:
            raise _no_json(self._place, f"{' or '.join(characters)} is missing before {found or 'the end'}")
        self._at += 1
        return found

    def _decode(self) -> tuple[Any, int]:
        """Returns the next item, and where it ends in the text."""
        while True:
            try:
                return self._decoder.raw_decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                goes_on = isinstance(error, json.JSONDecodeError) and not _INK.search(self._text, error.pos)
                line = next(self._lines, None) if goes_on else None
                if line is None:
                    reason: object = error
                    if isinstance(error, json.JSONDecodeError):
                        self._at, reason = error.pos, error.msg
                    raise _no_json(self._place, reason) from None
            self._text, self._at = f"{self._text[self._at :]}\n{line}", 0
            self._last_line += 1


_INK = re.compile(r"[^ \t\n\r]")


def _check_object(item: Any, place: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        kind = "an array" if isinstance(item, list) else "another value"
        raise ValueError(f"Each line must be a JSON object, but {place} is {kind} instead. {_JSON_LINES}")
    return item


def _no_json(place: str, error: object) -> ValueError:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
    return ValueError(f"Each line must be a JSON object, but {place} is not: {reason}. {_JSON_LINES}")


def json_text(row: Any, column: str, place: str) -> str:
    """Returns the text at the dotted path `column`; null is a blank text."""
    value = row
    for key in column.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ValueError(
                f"Each line must have the field {column!r}, but {place} has not. Set `source_column` and "
                f"`target_column`, or mend that line. {_JSON_LINES}"
            )
        value = value[key]
    value = "" if value is None else value
    if not isinstance(value, str):
        raise ValueError(
            f"The field {column!r} must be a text, but is {value!r} in {place} instead. Put it in quotes."
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"The field {column!r} must be valid Unicode, but holds half of a surrogate pair in {place}. Take it out."
        ) from None
    return value
