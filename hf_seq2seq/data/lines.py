"""Reads the lines of files of text; no line is lost, added or shifted.

Text, TSV, CSV and JSON files are all read by `read_lines`, so that the same rules hold for them. The loaders of the
datasets library are not used for these: its text loader ends a line at characters such as U+2028, its CSV loader at a
lone carriage return, and its JSON loader turns a text such as "2025-03-03" into a time.
"""

import codecs
import gzip
import hashlib
import io
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

from hf_seq2seq.atomic_writing import PathLike


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


def read_lines(path_or_stream: PathLike | BinaryIO) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file or binary stream, plain or gzipped, one at a time.

    Only LF and CRLF end a line; U+2028, U+0085, VT and FF do not. A byte-order mark at the start is skipped. Two
    repairs are made, and logged after the last line, once for a file: a carriage return inside a line becomes a space,
    and NUL characters are removed.

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
        yield from _decode_lines(stream, str(getattr(path_or_stream, "name", "input")), logger.warning)
        return
    path = check_file(path_or_stream)
    with path.open("rb") as stream:
        lines = _decode_lines(stream, str(path), partial(_warn_once, path.stat().st_mtime_ns))
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


def check_file(path: PathLike) -> Path:
    """Returns the path of a file.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"`{path}` must be a file, but is a folder instead. Name a file inside it.")
    if not path.exists():
        raise FileNotFoundError(f"`{path}` must be a file, but does not exist. Check the path for a typing error.")
    return path


@cache
def _warn_once(changed_at: int, message: str, *values: Any) -> None:
    """Logs what was found in a file that was changed at a time, once, however often the file is read."""
    logger.warning(message, *values)


def _decode_lines(stream: Any, name: str, warn: Callable[..., None]) -> Iterator[str]:
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
        warn(
            "%s: %d carriage return(s) inside lines became spaces, the first in line %d.",
            *(name, num_returns, first_return),
        )
    if num_nuls:
        warn("%s: %d NUL character(s) removed, the first in line %d.", name, num_nuls, first_nul)


def _raw_lines(stream: Any, name: str) -> Iterator[bytes]:
    """Yields the lines as bytes, decompressed and without the UTF-8 byte-order mark."""
    with unpacked(stream, name) as plain:
        start = plain.peek(LONGEST_MARK)
        for mark, encoding in FOREIGN_MARKS.items():
            if start.startswith(mark):
                raise ValueError(
                    f"`{name}` must be UTF-8 text, but begins with the byte-order mark of {encoding} instead. Convert "
                    f"it, for example with `iconv -f {encoding} -t UTF-8`."
                )
        if start.startswith(codecs.BOM_UTF8):
            plain.read(len(codecs.BOM_UTF8))
        yield from plain


@contextmanager
def unpacked(stream: Any, name: str) -> Iterator[Any]:
    """Yields a binary stream, decompressed if it is gzipped.

    Args:
        stream: A stream that can be peeked at.
        name: What messages call it.

    Raises:
        ValueError: If it is an incomplete gzip file, or packed in another way.
    """
    if not stream.peek(2).startswith(GZIP_MAGIC):
        check_unpacked(stream.peek(LONGEST_MARK), name)
        yield stream
        return
    stream = gzip.GzipFile(fileobj=stream)
    try:
        check_unpacked(stream.peek(LONGEST_MARK), name)
        yield stream
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"`{name}` must be a whole gzip file, but is cut short or damaged ({error}). Copy or make it again."
        ) from None


def check_unpacked(start: bytes, name: str) -> None:
    """Raises ValueError if a file begins as a packed one of a format that is not read."""
    for mark, (kind, command) in PACKED.items():
        if re.match(mark, start):
            raise ValueError(
                f"`{name}` must be text, plain or gzipped, but is {kind} instead. Unpack it, for example with "
                f"`{command}`, and name what was in it."
            )
