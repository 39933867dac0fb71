"""What verbs read lines from and write lines to: files, plain or gzipped, standard input and standard output."""

import gzip
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO


class InputLines:
    """The lines of a file, or of standard input as they come.

    Args:
        input_file: The file; None for standard input.

    Raises:
        OSError: If the file cannot be read, **or**
        ValueError: If it is empty or its first line is no text.
    """

    def __init__(self, input_file: Path | None) -> None:
        from hf_seq2seq.data.lines import read_lines

        self._standard_input = None
        if input_file is None:
            self._standard_input = _StandardInput()
            self._lines = read_lines(io.BufferedReader(self._standard_input))
        else:
            lines = read_lines(input_file)
            self._lines = chain([next(lines)], lines)

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def is_waited_for(self) -> bool:
        """Whether someone who is still writing may wait for the translation of what has been read."""
        return self._standard_input is not None and self._standard_input.is_waited_for()


class _StandardInput(io.RawIOBase):
    """Standard input, handed on a line at a time, so that it is known whether another whole line has arrived."""

    def __init__(self) -> None:
        self.name, self._arrived, self._has_ended = "<stdin>", bytearray(), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._arrived:
            self._receive()
        line_end = self._arrived.find(b"\n", 0, len(buffer)) + 1
        number = line_end or min(len(self._arrived), len(buffer))
        buffer[:number] = self._arrived[:number]
        del self._arrived[:number]
        return number

    def _receive(self) -> bytes:
        """Waits for bytes to arrive, and returns them; none at the end."""
        arrived = b"" if self._has_ended else os.read(sys.stdin.fileno(), io.DEFAULT_BUFFER_SIZE)
        self._arrived += arrived
        self._has_ended = not arrived
        return arrived

    def is_waited_for(self) -> bool:
        """Returns whether all whole lines that have arrived were handed on, and more may come."""
        is_whole = b"\n" in self._arrived
        try:
            while not (is_whole or self._has_ended):
                if not select.select([sys.stdin], [], [], 0)[0]:
                    return True
                is_whole = b"\n" in self._receive()
        except OSError:  # Windows selects only among sockets
            return True
        return False


def check_output(output_file: Path | None, *input_files: Path | None) -> None:
    """Raises ValueError if the output cannot be written or is one of the inputs, of which None is standard input."""
    if output_file is None:
        return
    if output_file.is_dir() or not output_file.resolve().parent.is_dir():
        raise ValueError(f"`--output` must be a file in an existing folder, but is {output_file} instead.")
    for input_file in input_files:
        input_stat = os.fstat(0) if input_file is None else input_file.stat()
        if output_file.is_file() and os.path.samestat(output_file.stat(), input_stat):
            raise ValueError(f"`--output` must be another file than the input, but both are {output_file}.")


@contextmanager
def open_output(output_file: Path | None, num_kept: int = 0) -> Iterator[BinaryIO]:
    """Yields the unbuffered file to write to; a full disk is an error that names it.

    Args:
        output_file: The file; None for standard output.
        num_kept: The number of bytes at its start that are kept, after which it is written.
    """
    try:
        if output_file is None:
            yield getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
        else:
            with output_file.open("r+b" if num_kept else "wb", buffering=0) as output:
                output.seek(num_kept)
                if num_kept:
                    output.truncate()
                yield output
    except OSError as error:
        from hf_seq2seq.atomic_writing import is_out_of_room

        if not is_out_of_room(error):
            raise
        name = "standard output" if output_file is None else f"`{output_file}`"
        raise OSError(f"No space is left for {name}. The lines before are kept; free some space.") from error


def write_lines(lines: list[str], output: BinaryIO, output_file: Path | None) -> None:
    """Writes lines so that they can be read at once: a gzip file is whole after each call.

    A disk that becomes full keeps whole lines, or of a gzip file those of the calls before.
    """
    data = "".join(f"{line}\n" for line in lines).encode()
    is_packed = output_file is not None and output_file.suffix.lower() == ".gz"
    if is_packed:
        data = gzip.compress(data)  # a gzip file may have several of these, one after the other
    start = output.tell() if output.seekable() else 0
    number_written = 0
    try:
        while number_written < len(data):
            number_written += output.write(data[number_written:])  # a disk that becomes full takes a part
    except OSError:
        with suppress(OSError):  # of what cannot be cut, such as a pipe
            output.truncate(start + (0 if is_packed else data.rfind(b"\n", 0, number_written) + 1))
        raise


def progress_bar(is_shown: bool, num_sentences: int | None = None, *, num_done: int = 0) -> Any:
    """Returns a bar on standard error that tells the sentences a second, without those that an earlier run did."""
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    return tqdm(total=num_sentences, initial=num_done, unit=" sentences", disable=not is_shown)
