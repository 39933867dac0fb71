"""The benchmark of streams reads what it wrote."""

from pathlib import Path

from scripts.benchmarks.benchmark_stream import read, write_corpus


def test_a_corpus_is_written_and_read_to_its_end(tmp_path: Path) -> None:
    write_corpus(tmp_path, 300)
    sides = [(tmp_path / side).read_text().splitlines() for side in ("source", "target")]
    assert [len(side) for side in sides] == [300, 300]
    assert [len(line.split()) for line in sides[0]] == [len(line.split()) for line in sides[1]]
    figures = read(tmp_path, 300)
    assert figures["lines"] == 300
    assert figures["mib"] > 1
