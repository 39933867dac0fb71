"""Reads lines and pairs of texts; no line is lost, added or shifted.

Text, TSV, CSV and JSONL files are all read by `read_lines`, so that the same rules hold for them. The loaders of the
datasets library are not used for these: its text loader ends a line at characters such as U+2028, its CSV loader at a
lone carriage return, and its JSON loader turns a text such as "2025-03-03" into a time.
"""

import codecs
import csv
import gzip
import hashlib
import io
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.text_lines import BLANK_PATTERN, is_blank


if TYPE_CHECKING:
    from datasets import Dataset, Features, IterableDataset


logger = logging.getLogger(__name__)

GZIP_MAGIC = b"\x1f\x8b"

# UTF-32 comes first, since its little-endian mark begins with that of UTF-16.
FOREIGN_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

# How packed files begin, with the name of their format and what unpacks them. A tar archive begins with a file's name.
PACKED = {
    b"\xfd7zXZ\0": ("an xz file", "xz -dk"),
    b"BZh[1-9]1AY&SY": ("a bzip2 file", "bunzip2 -k"),
    b"PK(\3\4|\5\6)": ("a zip archive", "unzip"),
    rb"\(\xb5/\xfd": ("a zstd file", "zstd -dk"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x"),
    b"[^\0]+\0(?s:.{0,256})ustar": ("a tar archive", "tar -xf"),
}
LONGEST_MARK = 512  # the header of a tar archive

# A text has none of these in any encoding of eight bits; UTF-16 has NUL in each ASCII character.
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")

# Part of the key of cached pairs. Raise it when a change of this file reads other pairs from the same files.
READER_VERSION = 1


def read_lines(path_or_stream: PathLike | BinaryIO) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file or binary stream, plain or gzipped, one at a time.

    Only LF and CRLF end a line; U+2028, U+0085, VT and FF do not. A byte-order mark at the start is skipped. Two
    repairs are made, and logged after the last line: a carriage return inside a line becomes a space, and NUL
    characters are removed.

    Args:
        path_or_stream: A file that is not empty, or an open binary stream such as `sys.stdin.buffer`, which may be
            empty. Gzip is recognised by the first bytes, not by the name.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If the path is that of a folder.
        ValueError: If the file is empty, is not UTF-8, or is an incomplete gzip file.
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


def content_digest(path: PathLike) -> str:
    """Returns a checksum of a file's content.

    Size and time of change do not do in its place: `cp -p` and `touch` put another file's there.
    """
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
            remedy = "Convert it, for example with `iconv -f LATIN1 -t UTF-8`, or mend it."
            if NO_TEXT.search(raw):
                remedy = "That line is no text of another encoding either, but for UTF-16: name another file."
            raise ValueError(
                f"`{name}` must be UTF-8 text, but line {number} holds the byte 0x{raw[error.start]:02x} at position "
                f"{error.start + 1} instead. {remedy}"
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
    """Yields the lines as bytes, decompressed and without the UTF-8 byte-order mark."""
    try:
        if stream.peek(2).startswith(GZIP_MAGIC):
            stream = gzip.GzipFile(fileobj=stream)
        start = stream.peek(LONGEST_MARK)
        _check_unpacked(start, name)
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


def _check_unpacked(start: bytes, name: str) -> None:
    """Raises ValueError if a file begins as a packed one of a format that is not read."""
    for mark, (kind, command) in PACKED.items():
        if re.match(mark, start):
            raise ValueError(
                f"`{name}` must be text, plain or gzipped, but is {kind} instead. Unpack it, for example with "
                f"`{command}`, and name what was in it."
            )


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
    streaming: bool = False,
) -> "Dataset | IterableDataset":
    """Loads pairs of texts from two text files, one table, or a dataset.

    Pairs with a blank side are dropped, and their number is logged. Texts are not changed, apart from the repairs of
    `read_lines` in text, TSV, CSV and JSONL files. The datasets library caches the pairs of a file. The file is read
    again, and its repairs are logged again, when its path or its content differs.

    With `streaming`, pairs are read each time they are iterated over, and nothing is cached. Repairs are logged, and
    errors in a file are raised, when that part of the file is read. The number of blank pairs is logged from time to
    time, as `filter_pairs` does.

    Args:
        source: A text file, plain or gzipped, with one text a line.
        target: A text file with the counterpart of each line of `source` on the same line.
        file: A TSV, CSV, JSONL (each also gzipped) or Parquet file. Quotes in a TSV file have no special meaning, and
            a TSV file of two columns needs no header.
        dataset_name: A folder that `Dataset.save_to_disk` wrote, or a name for `datasets.load_dataset`.
        dataset_config_name: The configuration of that dataset, such as "de-en", if it has several.
        split: The split of that dataset.
        source_column: The column of a table or dataset with the source texts; a dot leads into a nested column, as in
            "translation.en".
        target_column: The column with the target texts, in the same form.
        streaming: Whether to read the pairs only while they are used, for corpora too large for the disk.

    Returns:
        A dataset with the text columns "source" and "target"; with `streaming` an `IterableDataset`.

    Raises:
        OSError: If a file does not exist or cannot be read.
        ValueError: If the arguments name no input or several, the two files differ in their number of lines, a row has
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
        pairs = _pairs_of_files(streaming, _read_text_pairs, [_check_file(source), _check_file(target)])
    elif file is not None:
        name = str(file)
        pairs = _load_table(_check_file(file), source_column, target_column, streaming)
    else:
        name = str(dataset_name)
        pairs = _load_dataset(name, dataset_config_name, split, source_column, target_column, streaming)
    return _drop_blank_pairs(pairs, name)


PairReader = Callable[..., Iterator[dict[str, str]]]


def _pairs_of_files(
    streaming: bool, read_pairs: PairReader, files: list[Path], *columns: str
) -> "Dataset | IterableDataset":
    """Returns the pairs that `read_pairs(*files, *columns)` yields: a stream, or a dataset that is cached on disk."""
    from datasets import Dataset, IterableDataset
    from datasets.exceptions import DatasetGenerationError
    from datasets.fingerprint import Hasher

    read_pairs_of_files = partial(_read_at_least_one_pair, read_pairs, files, columns)
    if streaming:
        return IterableDataset.from_generator(read_pairs_of_files, features=_text_features())
    states = [(str(file.resolve()), content_digest(file)) for file in files]
    try:
        return Dataset.from_generator(
            read_pairs_of_files,
            features=_text_features(),
            fingerprint=Hasher.hash([READER_VERSION, read_pairs.__name__, states, columns]),
        )
    except DatasetGenerationError as error:
        # The library wraps the generator's error, which names the file and the line.
        raise (error.__cause__ or error) from None


def _read_at_least_one_pair(
    read_pairs: PairReader, files: Sequence[Path], columns: Sequence[str]
) -> Iterator[dict[str, str]]:
    pairs = read_pairs(*files, *columns)
    first = next(pairs, None)
    if first is None:
        raise ValueError(f"`{files[0]}` must hold at least one pair, but holds only a header.")
    yield first
    yield from pairs


def _text_features() -> "Features":
    from datasets import Features, Value

    return Features({"source": Value("string"), "target": Value("string")})


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


def _load_table(file: Path, source_column: str, target_column: str, streaming: bool) -> "Dataset | IterableDataset":
    import datasets
    from datasets.exceptions import DatasetGenerationError

    name = file.name.lower().removesuffix(".gz")
    if name.endswith((".tsv", ".csv")):
        return _pairs_of_files(streaming, _read_delimited_pairs, [file], source_column, target_column)
    if name.endswith((".jsonl", ".json")):
        return _pairs_of_files(streaming, _read_json_pairs, [file], source_column, target_column)
    if not name.endswith(".parquet"):
        with file.open("rb") as stream:
            _check_unpacked(stream.read(LONGEST_MARK), str(file))
        raise ValueError(
            f"`file` must end in .tsv, .csv, .jsonl, .json (each also with .gz) or .parquet, but is {file} instead. "
            "Give two text files as `source` and `target`."
        )
    try:
        # The library's own key of the cached pairs has no content; the name becomes a part of it.
        name = "default" if streaming else content_digest(file)
        dataset = datasets.load_dataset("parquet", name, data_files=str(file), split="train", streaming=streaming)
    except (DatasetGenerationError, ValueError) as error:
        cause = error.__cause__ or error
        raise ValueError(f"`{file}` must be a Parquet file, but cannot be read as one: {cause}") from None
    return _select_columns(dataset, source_column, target_column, str(file))


def _read_delimited_pairs(file: Path, source_column: str, target_column: str) -> Iterator[dict[str, str]]:
    """Yields the pairs of a TSV or CSV file."""
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


_JSON_LINES = (
    'A file of JSON Lines has a pair on each line, such as {"source": "one two", "target": "eins zwei"}; '
    "`jq -c '.[]' FILE` makes such lines of an array."
)


def _read_json_pairs(file: Path, source_column: str, target_column: str) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_lines(file), 1):
        if is_blank(line):
            yield {"source": "", "target": ""}
            continue
        place = f"line {number} of `{file}`"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise ValueError(f"Each line must be a JSON object, but {place} is not: {reason}. {_JSON_LINES}") from None
        if not isinstance(row, dict):
            kind = "an array" if isinstance(row, list) else "another value"
            raise ValueError(f"Each line must be a JSON object, but {place} is {kind} instead. {_JSON_LINES}")
        yield {"source": _json_text(row, source_column, place), "target": _json_text(row, target_column, place)}


def _json_text(row: Any, column: str, place: str) -> str:
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


def _load_dataset(
    name: str, config_name: str | None, split: str, source_column: str, target_column: str, streaming: bool
) -> "Dataset | IterableDataset":
    import datasets

    if not any((Path(name) / state).exists() for state in ("state.json", "dataset_dict.json")):
        dataset = datasets.load_dataset(name, config_name, split=split, streaming=streaming)
        return _select_columns(dataset, source_column, target_column, name)
    saved = datasets.load_from_disk(name)
    # A single dataset answers to "train" whichever split it was saved from.
    splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved, str(saved.split or "train"): saved}
    if split not in splits:
        raise ValueError(f"`split` must be one of those of `{name}` ({', '.join(splits)}), but is {split!r} instead.")
    pairs = _select_columns(splits[split], source_column, target_column, name)
    return pairs.to_iterable_dataset() if streaming else pairs


def _select_columns(
    dataset: "Dataset | IterableDataset", source_column: str, target_column: str, name: str
) -> "Dataset | IterableDataset":
    """Returns the two columns, which may be nested, as "source" and "target"."""
    from datasets import Features, IterableDataset, Value

    from .filtering import STREAM_BATCH_SIZE

    features = dataset.features
    if features is None:  # a stream of a format without types
        import pyarrow as pa

        features = Features.from_arrow_schema(pa.Table.from_pylist(list(dataset.take(100))).schema)
    flat = features.flatten()
    for argument, column in (("source_column", source_column), ("target_column", target_column)):
        if column not in flat:
            raise ValueError(
                f"`{argument}` must be a column of `{name}` ({', '.join(flat)}), but is {column!r} instead."
            )
        if flat[column] not in (Value("string"), Value("large_string")):
            raise ValueError(
                f"`{argument}` must be a column of texts, but {column!r} of `{name}` holds {flat[column]} instead. "
                "Name another column or save this one as strings."
            )
    if isinstance(dataset, IterableDataset):
        columns = {"source": source_column, "target": target_column}
        return dataset.map(
            partial(_pick_texts, columns=columns, name=name),
            batched=True,
            batch_size=STREAM_BATCH_SIZE,
            features=_text_features(),
            remove_columns=list(features),
        )
    pairs = dataset.flatten().select_columns([source_column, target_column])
    pairs = pairs.rename_columns({source_column: "source", target_column: "target"})
    return pairs if pairs.features == _text_features() else pairs.cast(_text_features())


def _pick_texts(batch: dict[str, list[Any]], columns: dict[str, str], name: str) -> dict[str, list[str | None]]:
    """Returns the texts at dotted paths in a batch of a stream."""
    texts = {}
    for side, column in columns.items():
        outer, *path = [column] if column in batch else column.split(".")
        values = batch[outer]
        for key in path:
            values = [value and value[key] for value in values]
        for value in values:
            if value is not None and not isinstance(value, str):
                raise ValueError(f"The column {column!r} of `{name}` must hold texts, but holds {value!r} instead.")
        texts[side] = values
    return texts


def _drop_blank_pairs(pairs: "Dataset | IterableDataset", name: str) -> "Dataset | IterableDataset":
    """Drops the pairs that have a side that is null or blank."""
    from .filtering import Tally, drop_pairs

    tally = Tally(
        num_reasons=3,
        report=partial(_report_blank_pairs, name),
        nothing_left=f"`{name}` must hold at least one pair with text on both sides, but holds none.",
    )
    return drop_pairs(pairs, _judge_blank, tally)


def _judge_blank(table: Any) -> Any:
    """Returns for each pair 0 if both sides have text, 1 for a blank source, 2 for a blank target, and 3 for both."""
    import pyarrow.compute as pc

    source, target = (
        pc.match_substring_regex(pc.fill_null(table[side], ""), BLANK_PATTERN).to_numpy().astype(int)
        for side in ("source", "target")
    )
    return source + 2 * target


def _report_blank_pairs(name: str, counts: Any) -> None:
    logger.warning(
        "%s: dropped %d of %d pairs, since a side is blank (%d sources, %d targets).",
        *(name, counts[1:].sum(), counts.sum(), counts[1] + counts[3], counts[2] + counts[3]),
    )
