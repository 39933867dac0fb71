"""Read lines and pairs of texts without losing, adding or shifting any.

Text, TSV, CSV and JSONL files all go through `read_lines`, so that one set of rules holds for them. The loaders of the
datasets library are not used for these: its text loader ends a line at U+2028 and the like, its CSV loader at a lone
carriage return, and its JSON loader turns a text such as "2025-03-03" into a time.
"""

import codecs
import csv
import gzip
import io
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)

GZIP_MAGIC = b"\x1f\x8b"

# The mark of UTF-32 (little-endian) begins with that of UTF-16, so it is looked for first.
FOREIGN_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

# Part of the key of cached pairs: raise it when the same file would give other pairs than before.
READER_VERSION = 1

PathLike = str | os.PathLike[str]


def read_lines(path_or_stream: PathLike | BinaryIO) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file or binary stream, plain or gzipped, one at a time.

    Only LF and CRLF end a line: U+2028, U+0085, VT and FF are part of it. A byte-order mark at the start is skipped.
    Two repairs are made, and their number is logged after the last line: a carriage return inside a line becomes a
    space, and NUL characters are removed.

    Args:
        path_or_stream: a file, which must not be empty, or an open binary stream such as `sys.stdin.buffer`, which may
            be. What is gzipped is known by its first bytes, not by its name.

    Raises:
        FileNotFoundError: if there is no such file, **or**
        IsADirectoryError: if the path is that of a folder, **or**
        ValueError: if the file is empty, is not UTF-8, or is a gzip file cut short.
    """
    if not isinstance(path_or_stream, str | os.PathLike):
        stream: Any = path_or_stream
        if not hasattr(stream, "peek"):
            stream = io.BufferedReader(stream)
        yield from _decode_lines(stream, str(getattr(path_or_stream, "name", "input")))
        return
    path = _check_file(path_or_stream)
    with path.open("rb") as stream:
        lines = _decode_lines(stream, str(path))
        first = next(lines, None)
        if first is None:
            raise ValueError(f"`{path}` must hold at least one line, but is empty. Check how it was made or copied.")
        yield first
        yield from lines


def _check_file(path: PathLike) -> Path:
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"`{path}` must be a file, but is a folder instead. Name a file inside it.")
    if not path.exists():
        raise FileNotFoundError(f"`{path}` must be a file, but does not exist. Check the path for a typing error.")
    return path


def _decode_lines(stream: Any, name: str) -> Iterator[str]:
    num_returns = first_return = num_nuls = first_nul = 0
    for number, raw in enumerate(_raw_lines(stream, name), 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"`{name}` must be UTF-8 text, but line {number} holds the byte 0x{raw[error.start]:02x} at position "
                f"{error.start + 1} instead. Convert it, for example with `iconv -f LATIN1 -t UTF-8`, or mend it."
            ) from None
        line = line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
        if "\r" in line:
            num_returns += line.count("\r")
            first_return = first_return or number
            line = line.replace("\r", " ")
        if "\0" in line:
            num_nuls += line.count("\0")
            first_nul = first_nul or number
            line = line.replace("\0", "")
        yield line
    if num_returns:
        logger.warning(
            "%s: %d carriage return(s) inside lines became spaces, the first in line %d.",
            *(name, num_returns, first_return),
        )
    if num_nuls:
        logger.warning("%s: %d NUL character(s) removed, the first in line %d.", name, num_nuls, first_nul)


def _raw_lines(stream: Any, name: str) -> Iterator[bytes]:
    """Yield the undecoded lines, unzipped and without the UTF-8 byte-order mark."""
    try:
        if stream.peek(2).startswith(GZIP_MAGIC):
            stream = gzip.GzipFile(fileobj=stream)
        start = stream.peek(4)[:4]
        for mark, encoding in FOREIGN_MARKS.items():
            if start.startswith(mark):
                raise ValueError(
                    f"`{name}` must be UTF-8 text, but begins with the byte-order mark of {encoding} instead. Convert "
                    f"it, for example with `iconv -f {encoding} -t UTF-8`."
                )
        if start.startswith(codecs.BOM_UTF8):
            stream.read(len(codecs.BOM_UTF8))
        yield from stream
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"`{name}` must be a whole gzip file, but is cut short or damaged ({error}). Copy or make it again."
        ) from None


def load_parallel(
    source: PathLike | None = None,
    target: PathLike | None = None,
    *,
    file: PathLike | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    split: str = "train",
    source_column: str = "source",
    target_column: str = "target",
) -> "Dataset":
    """Load pairs of texts from any one of: two text files, one table, or a dataset.

    Pairs with a blank side are dropped, and their number is logged. Texts stay as they are but for the repairs of
    `read_lines`, which concern text, TSV, CSV and JSONL files. What was read from a file is cached by the datasets
    library; the file is read again, and its repairs are logged again, when its path, size or time of change differs.

    Args:
        source: a text file, plain or gzipped, with one text a line.
        target: a text file with the counterpart of each line of `source` on the same line.
        file: a TSV, CSV, JSONL (each also gzipped) or Parquet file. TSV cells are taken as they are, without quoting;
            a TSV file of two columns needs no header.
        dataset_name: a folder made by `Dataset.save_to_disk`, or else a name for `datasets.load_dataset`.
        dataset_config_name: the configuration of that dataset, such as "de-en", where it has several.
        split: the split of that dataset.
        source_column: the column of a table or dataset that holds the source texts; a dot leads into a nested column,
            as in "translation.en".
        target_column: the same for the target texts.

    Returns:
        A dataset with the text columns "source" and "target".

    Raises:
        OSError: if a file does not exist or cannot be read, **or**
        ValueError: if the arguments name no input or several, the two files differ in their number of lines, a row has
            too few or too many cells, a column is missing or holds no text, or no pair is left.
    """
    kinds = [source is not None or target is not None, file is not None, dataset_name is not None]
    if sum(kinds) != 1 or (source is None) != (target is None):
        named = {"source": source, "target": target, "file": file, "dataset_name": dataset_name}
        given = [f"`{argument}`" for argument, value in named.items() if value is not None]
        raise ValueError(
            "The pairs must come from either `source` and `target`, or `file`, or `dataset_name`, but given are "
            f"{' and '.join(given) or 'none of them'} instead."
        )
    if source_column == target_column:
        raise ValueError(f"`target_column` must differ from `source_column`, but both are {source_column!r}.")
    if source is not None and target is not None:
        name = f"{source} and {target}"
        pairs = _cached(_read_text_pairs, [_check_file(source), _check_file(target)])
    elif file is not None:
        name = str(file)
        pairs = _load_table(_check_file(file), source_column, target_column)
    else:
        name = str(dataset_name)
        dataset = _load_dataset(name, dataset_config_name, split)
        pairs = _select_columns(dataset, source_column, target_column, name)
    return _drop_blank_pairs(pairs, name)


def _cached(read_pairs: Callable[..., Iterator[dict[str, str]]], files: list[Path], *columns: str) -> "Dataset":
    """Write what `read_pairs(*files, *columns)` yields to the cache of the datasets library, or find it there."""
    from datasets import Dataset, Features, Value
    from datasets.exceptions import DatasetGenerationError
    from datasets.fingerprint import Hasher

    def read_some_pairs() -> Iterator[dict[str, str]]:
        pairs = read_pairs(*files, *columns)
        first = next(pairs, None)
        if first is None:
            raise ValueError(f"`{files[0]}` must hold at least one pair, but holds only a header.")
        yield first
        yield from pairs

    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    try:
        return Dataset.from_generator(
            read_some_pairs,
            features=Features({"source": Value("string"), "target": Value("string")}),
            fingerprint=Hasher.hash([READER_VERSION, read_pairs.__name__, states, columns]),
        )
    except DatasetGenerationError as error:
        # The library wraps what a generator raises; it is the cause that names the file and the line.
        raise (error.__cause__ or error) from None


def _read_text_pairs(source: Path, target: Path) -> Iterator[dict[str, str]]:
    sources, targets = read_lines(source), read_lines(target)
    for num_pairs, (source_text, target_text) in enumerate(zip_longest(sources, targets)):
        if source_text is None or target_text is None:
            longer = num_pairs + 1 + sum(1 for _ in chain(sources, targets))
            num_sources, num_targets = (num_pairs, longer) if source_text is None else (longer, num_pairs)
            raise ValueError(
                f"`source` and `target` must have the same number of lines, but {source} has {num_sources} and "
                f"{target} has {num_targets} instead. Line n of one must be the counterpart of line n of the other."
            )
        yield {"source": source_text, "target": target_text}


def _load_table(file: Path, source_column: str, target_column: str) -> "Dataset":
    import datasets
    from datasets.exceptions import DatasetGenerationError

    name = file.name.lower().removesuffix(".gz")
    if name.endswith((".tsv", ".csv")):
        return _cached(_read_delimited_pairs, [file], source_column, target_column)
    if name.endswith((".jsonl", ".json")):
        return _cached(_read_json_pairs, [file], source_column, target_column)
    if not name.endswith(".parquet"):
        raise ValueError(
            f"`file` must end in .tsv, .csv, .jsonl, .json (each also with .gz) or .parquet, but is {file} instead. "
            "Give two text files as `source` and `target`."
        )
    try:
        dataset = datasets.load_dataset("parquet", data_files=str(file), split="train")
    except (DatasetGenerationError, ValueError) as error:
        cause = error.__cause__ or error
        raise ValueError(f"`{file}` must be a Parquet file, but cannot be read as one: {cause}") from None
    return _select_columns(dataset, source_column, target_column, str(file))


def _read_delimited_pairs(file: Path, source_column: str, target_column: str) -> Iterator[dict[str, str]]:
    """Yield the pairs of a TSV or CSV file."""
    is_csv = file.name.lower().removesuffix(".gz").endswith(".csv")
    rows = _read_csv_rows(file) if is_csv else ((n, line.split("\t")) for n, line in enumerate(read_lines(file), 1))
    number, header = next(rows)
    if {source_column, target_column} <= set(header):
        source_index, target_index = header.index(source_column), header.index(target_column)
    elif not is_csv and len(header) == 2 and (source_column, target_column) == ("source", "target"):
        source_index, target_index = 0, 1
        rows = chain([(number, header)], rows)
    else:
        raise ValueError(
            f"The first line of `{file}` must name the columns {source_column!r} and {target_column!r}, but is "
            f"{header} instead. Set `source_column` and `target_column`; only a TSV file of just the two texts needs "
            "no header."
        )
    for number, cells in rows:
        if not any(cells):  # an empty line
            yield {"source": "", "target": ""}
        elif len(cells) == len(header):
            yield {"source": cells[source_index], "target": cells[target_index]}
        else:
            remedy = "put in double quotes" if is_csv else "taken out, or the texts kept in two text files or as JSONL"
            raise ValueError(
                f"Each line of `{file}` must have {len(header)} cells as its first line has, but line {number} has "
                f"{len(cells)} instead. A separator inside a text must be {remedy}."
            )


def _read_csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(file)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(
            f"`{file}` must be a CSV file, but line {reader.line_num} cannot be read as such: {error}. A double quote "
            "inside a quoted cell must be doubled."
        ) from None


def _read_json_pairs(file: Path, source_column: str, target_column: str) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            yield {"source": "", "target": ""}
            continue
        place = f"line {number} of `{file}`"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"Each line must be a JSON object, but {place} is not: {error}.") from None
        yield {"source": _json_text(row, source_column, place), "target": _json_text(row, target_column, place)}


def _json_text(row: Any, column: str, place: str) -> str:
    """Return the text at the dotted path `column`; null is a blank text."""
    value = row
    for key in column.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ValueError(
                f"Each line must have the field {column!r}, but {place} has not. Set `source_column` and "
                "`target_column`, or mend that line."
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


def _load_dataset(name: str, config_name: str | None, split: str) -> "Dataset":
    import datasets

    if not any((Path(name) / state).exists() for state in ("state.json", "dataset_dict.json")):
        return datasets.load_dataset(name, config_name, split=split)
    saved = datasets.load_from_disk(name)
    # A single dataset answers to "train" whichever split it was saved from.
    splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved, str(saved.split or "train"): saved}
    if split not in splits:
        raise ValueError(f"`split` must be one of those of `{name}` ({', '.join(splits)}), but is {split!r} instead.")
    return splits[split]


def _select_columns(dataset: "Dataset", source_column: str, target_column: str, name: str) -> "Dataset":
    """Return the two columns, also nested ones, as "source" and "target"."""
    from datasets import Features, Value

    dataset = dataset.flatten()
    for argument, column in (("source_column", source_column), ("target_column", target_column)):
        if column not in dataset.column_names:
            names = ", ".join(dataset.column_names)
            raise ValueError(f"`{argument}` must be a column of `{name}` ({names}), but is {column!r} instead.")
        kind = dataset.features[column]
        if kind not in (Value("string"), Value("large_string")):
            raise ValueError(
                f"`{argument}` must be a column of texts, but {column!r} of `{name}` holds {kind} instead. Name "
                "another column or save this one as strings."
            )
    pairs = dataset.select_columns([source_column, target_column])
    pairs = pairs.rename_columns({source_column: "source", target_column: "target"})
    texts = Features({"source": Value("string"), "target": Value("string")})
    return pairs if pairs.features == texts else pairs.cast(texts)


def _drop_blank_pairs(pairs: "Dataset", name: str) -> "Dataset":
    """Drop the pairs of which a side is null, empty or white space."""
    import numpy as np
    import pyarrow.compute as pc

    def is_blank(texts: Any) -> Any:
        return pc.equal(pc.fill_null(pc.utf8_trim_whitespace(texts), ""), "").to_numpy()

    # Arrow does this fast enough to need no cache, and so the number is told in each run.
    batches = pairs.with_format("arrow").iter(batch_size=100_000)
    blanks = [(is_blank(batch["source"]), is_blank(batch["target"])) for batch in batches]
    blank_sources, blank_targets = np.concatenate([np.zeros((2, 0), bool), *blanks], axis=1)
    kept = np.flatnonzero(~(blank_sources | blank_targets))
    if not len(kept):
        raise ValueError(f"`{name}` must hold at least one pair with text on both sides, but holds none.")
    if len(kept) == len(pairs):
        return pairs
    logger.warning(
        "%s: dropped %d of %d pairs, since a side is blank (%d sources, %d targets).",
        *(name, len(pairs) - len(kept), len(pairs), blank_sources.sum(), blank_targets.sum()),
    )
    return pairs.select(kept)
