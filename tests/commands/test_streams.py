"""What a verb writes can be read whenever it stops."""

import gzip
from pathlib import Path

from hf_seq2seq.commands.streams import write_lines


def test_a_gzipped_output_is_whole_after_every_window(tmp_path: Path) -> None:
    path = tmp_path / "new.de.GZ"
    with path.open("wb") as output:
        write_lines(["ä", ""], output, path)
        assert gzip.decompress(path.read_bytes()) == "ä\n\n".encode()
        write_lines(["ö"], output, path)
        assert gzip.decompress(path.read_bytes()) == "ä\n\nö\n".encode()
