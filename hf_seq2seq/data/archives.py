"""Reads zip archives with a text file for each language, as OPUS (https://opus.nlpl.eu) has them for Moses."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .languages import is_language
from .lines import read_lines


def read_sides(file: Path, *languages: str) -> list[Iterator[str]]:
    """Returns the lines of the text files of some languages in an archive. Nothing is unpacked on the disk.

    Args:
        file: The archive.
        languages: The languages; a text file has its language as the ending of its name, as `Books.de-en.de` has.

    Raises:
        ValueError: If it is no zip archive, or has no text file, or several, of a language.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = [member.filename for member in archive.infolist() if not member.is_dir()]
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"`{file}` must be a zip archive, but cannot be read as one: {error}. Copy it again."
        ) from None
    return [_read_member(file, _choose(file, names, language)) for language in languages]


def _choose(file: Path, names: list[str], language: str) -> str:
    found = [name for name in names if is_language(Path(name).suffix[1:], language)]
    if len(found) != 1:
        held = "none" if not found else " and ".join(found)
        raise ValueError(
            f"`{file}` must hold one text file whose name ends in .{language}, but holds {held} "
            f"({', '.join(names[:10]) or 'nothing'}). Set `source_language` and `target_language`, or unpack it."
        )
    return found[0]


def _read_member(file: Path, member: str) -> Iterator[str]:
    try:
        with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
            lines: Any = stream
            lines.name = f"{file}/{member}"  # by which messages call it
            yield from read_lines(lines)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"`{file}` must be a whole zip archive without a password, but {member} cannot be read: {error}. Copy it "
            "again, or unpack it."
        ) from None
