"""What a verb writes can be read whenever it stops, and what it reads is answered as soon as it can be."""

import gzip
import os
import random
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hf_seq2seq.commands.streams import InputLines, open_output, write_lines
from hf_seq2seq.data import read_lines


def test_a_gzipped_output_is_whole_after_every_window(tmp_path: Path) -> None:
    path = tmp_path / "new.de.GZ"
    with open_output(path) as output:
        write_lines(["ä", ""], output, path)
        assert gzip.decompress(path.read_bytes()) == "ä\n\n".encode()
        write_lines(["ö"], output, path)
        assert gzip.decompress(path.read_bytes()) == "ä\n\nö\n".encode()


@pytest.mark.parametrize(("name", "kept"), [("a.txt", ["first", "second", "third"]), ("a.txt.gz", ["first"])])
def test_a_disk_that_becomes_full_keeps_whole_lines(
    name: str, kept: list[str], tmp_path: Path, little_room: Callable[[int], AbstractContextManager[None]]
) -> None:
    path = tmp_path / name
    noise = "".join(map(chr, random.Random(0).choices(range(0x4E00, 0x9FFF), k=2000)))  # cannot be packed

    def write() -> None:
        with open_output(path) as output:
            write_lines(["first"], output, path)
            with little_room(1000):
                write_lines(["second", "third", noise], output, path)

    with pytest.raises(OSError, match=r"No space is left for `.*a\.txt.*`\. The lines before are kept"):
        write()
    assert list(read_lines(path)) == kept


def test_a_whole_line_is_waited_for_though_the_start_of_the_next_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://github.com/marian-nmt/marian-dev/issues/274."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        lines = InputLines(None)
        os.write(writer, b"one\ntw")
        assert next(iter(lines)) == "one"
        assert lines.is_waited_for()
        os.write(writer, b"o\nthree\n" + b"4" * 20_000)
        assert next(iter(lines)) == "two"
        assert not lines.is_waited_for()
        assert next(iter(lines)) == "three"
        assert lines.is_waited_for()
        os.close(writer)
        assert not lines.is_waited_for()  # the last line is whole now
        assert next(iter(lines)) == "4" * 20_000
        assert next(iter(lines), None) is None
