"""Documents that lines are read from: what each record keeps, and which number it has."""

from pathlib import Path

import pytest

from hf_seq2seq.inference.documents import JsonTable, Lines, Table, TranslationMemory, read_segments


def test_a_record_has_the_number_of_its_line(tmp_path: Path) -> None:
    """Warnings name a line by it."""
    table, objects = tmp_path / "a.tsv", tmp_path / "a.json"
    table.write_text("source\none\n\ntwo\n", encoding="utf-8")
    objects.write_text('[\n{"source": "one"},\n\n{"source":\n"two"}]\n', encoding="utf-8")
    assert [(line.line, line.text) for line in read_segments(Table(table, "source", None), None)] == [
        (2, "one"),
        (3, ""),
        (4, "two"),
    ]
    assert [(line.line, line.text) for line in read_segments(JsonTable(objects, "source", None), None)] == [
        (2, "one"),
        (4, "two"),
    ]


def test_lines_are_read_no_further_than_they_are_asked_for() -> None:
    read = []

    def lines() -> object:
        for text in ("one", "two", "three"):
            read.append(text)
            yield text

    segments = read_segments(Lines(lines(), as_json=False), "prefix")  # type: ignore[arg-type]
    first = next(segments)
    assert (first.text, first.line, first.prefix) == ("one", 1, "prefix")
    assert read == ["one"]


@pytest.mark.parametrize("target", ["", "<tuv xml:lang='de'><seg> </seg></tuv>"])
def test_a_unit_with_a_target_is_not_translated(target: str, tmp_path: Path) -> None:
    source = "<tuv xml:lang='en'><seg>one</seg></tuv>"
    units = [f"<tu>{source}{target}</tu>", f"<tu>{source}<tuv xml:lang='de'><seg>eins</seg></tuv></tu>"]
    file = tmp_path / "a.tmx"
    file.write_text(f"<tmx version='1.4'><header/><body>{''.join(units)}</body></tmx>", encoding="utf-8")
    document = TranslationMemory(file, "en", "de", "drop")
    assert [line.text for line in read_segments(document, None)] == ["one", ""]
