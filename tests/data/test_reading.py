import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_seq2seq.data import load_parallel, read_lines, reading
from hf_seq2seq.data.tables import read_json_pairs


NOT_LINE_BREAKS = ["a\u2028b", "c\u0085d", "e\vf\fg", "\u2029h\x1ci"]
GZIPPED = gzip.compress("\n".join(str(number**7) for number in range(1000)).encode())


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs_of(dataset: datasets.Dataset | datasets.IterableDataset) -> list[tuple[str, str]]:
    assert dataset.column_names == ["source", "target"]
    return [(row["source"], row["target"]) for row in dataset]


def write_inputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the pairs a-b, blank-c, d-"e in every form that can be read; return the arguments to load each."""
    rows = [{"id": 1, "translation": {"en": "a", "de": "b"}}, {"id": 2, "translation": {"en": " ", "de": "c"}}]
    rows.append({"id": 3, "translation": {"en": "d", "de": '"e'}})
    english, german = (write(folder / name, text) for name, text in (("en", "a\n \nd\n"), ("de", 'b\nc\n"e\n')))
    write(folder / "a.tsv.gz", gzip.compress(b'a\tb\n\tc\nd\t"e\n'))
    write(folder / "a.csv", 'en,id,de\na,1,b\n,2,c\nd,3,"""e"\n')
    write(folder / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    datasets.Dataset.from_list(rows).to_parquet(folder / "a.parquet")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(folder / "saved")
    nested = {"source_column": "translation.en", "target_column": "translation.de"}
    return {
        f"{english} and {german}": {"source": english, "target": german},
        f"{folder / 'a.tsv.gz'}": {"file": folder / "a.tsv.gz"},
        f"{folder / 'a.csv'}": {"file": folder / "a.csv", "source_column": "en", "target_column": "de"},
        f"{folder / 'a.jsonl'}": {"file": folder / "a.jsonl", **nested},
        f"{folder / 'a.parquet'}": {"file": folder / "a.parquet", **nested},
        f"{folder / 'saved'}": {"dataset_name": str(folder / "saved"), **nested},
    }


def test_only_lf_and_crlf_end_a_line(tmp_path: Path) -> None:
    """https://github.com/rsennrich/subword-nmt/issues/29, https://github.com/rsennrich/subword-nmt/pull/92"""
    file = write(tmp_path / "a.txt", "\n".join(NOT_LINE_BREAKS[:2]) + "\r\n" + "\r\n".join(NOT_LINE_BREAKS[2:]))
    assert list(read_lines(file)) == NOT_LINE_BREAKS


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])), min_size=1))
def test_any_other_text_comes_back_as_it_was(lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    # The mark at the start keeps one in the first text from being taken for it.
    assert list(read_lines(io.BytesIO(b"\xef\xbb\xbf" + content))) == lines


def test_a_byte_order_mark_is_skipped_at_the_start_only(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "\ufeffa\n\ufeffb\n")
    assert list(read_lines(file)) == ["a", "\ufeffb"]


def test_a_stray_carriage_return_becomes_a_space_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/mjpost/sacrebleu/pull/24"""
    file = write(tmp_path / "a.txt", "a\r\nb\r\rc\nd\r\r\ne\r")
    assert list(read_lines(file)) == ["a", "b  c", "d ", "e "]
    assert caplog.messages == [f"{file}: 4 carriage return(s) inside lines became spaces, the first in line 2."]


def test_nul_is_removed_and_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """https://github.com/OpenNMT/OpenNMT/issues/489"""
    file = write(tmp_path / "a.txt", "a\n\0b\0\n\0\nc")
    assert list(read_lines(file)) == ["a", "b", "", "c"]
    assert caplog.messages == [f"{file}: 3 NUL character(s) removed, the first in line 2."]


@pytest.mark.parametrize("name", ["a.gz", "a.txt"])
@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_gzip_is_known_by_content(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    file = write(tmp_path / name, compress(b"a\r\nb\n"))
    assert list(read_lines(str(file))) == ["a", "b"]


def test_a_stream_may_be_gzipped_blank_or_empty() -> None:
    """https://github.com/joeynmt/joeynmt/issues/183"""
    assert list(read_lines(io.BytesIO(gzip.compress(b"\xef\xbb\xbfa\n")))) == ["a"]
    assert list(read_lines(io.BytesIO(b"a\n\n  \nb\n"))) == ["a", "", "  ", "b"]
    assert list(read_lines(io.BytesIO(b"\n\n"))) == ["", ""]
    assert list(read_lines(io.BytesIO(b""))) == []


def test_a_line_of_a_pipe_is_there_before_the_next_is_written() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream:
        os.write(writer, b"first\n")
        lines = read_lines(stream)
        assert next(lines) == "first"
        os.write(writer, b"second\n")
        assert next(lines) == "second"
        os.close(writer)
        assert list(lines) == []


def test_bytes_that_are_not_utf8_are_named_with_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"good\nbad \xe4\n")
    with pytest.raises(
        ValueError, match=r"`.*a\.txt` must be UTF-8 text, but line 2 holds the byte 0xe4 at position 5"
    ):
        list(read_lines(file))


def packed(kind: str) -> bytes:
    """Returns two lines in a packed file."""
    text, stream = b"a\nb\n", io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("a.txt", text)
    elif kind == "tar":
        with tarfile.open(fileobj=stream, mode="w") as tar:
            header = tarfile.TarInfo("a.txt")
            header.size = len(text)
            tar.addfile(header, io.BytesIO(text))
    else:
        stream.write(lzma.compress(text) if kind == "xz" else bz2.compress(text))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "command"), [("xz", "xz -dk"), ("bzip2", "bunzip2 -k"), ("zip", "unzip"), ("tar", "tar -xf")]
)
@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_a_packed_file_is_named_with_what_unpacks_it(
    kind: str, command: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = write(tmp_path / "a.txt", compress(packed(kind)))
    message = rf"`.*a\.txt` must be text, plain or gzipped, but is an? {kind} .* instead\. Unpack .*`{command}`"
    with pytest.raises(ValueError, match=message):
        list(read_lines(file))


def test_a_packed_table_is_named_with_what_unpacks_it(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl.xz", packed("xz"))
    with pytest.raises(ValueError, match=r"a\.jsonl\.xz` must be text, .* is an xz file instead"):
        load_parallel(file=file)


@pytest.mark.parametrize("text", ["BZh9 is how a bzip2 file begins", "PK", "7z", "ustar", "a" * 600])
def test_a_text_that_begins_like_a_packed_file_is_read(text: str) -> None:
    assert list(read_lines(io.BytesIO(f"{text}\n".encode()))) == [text]


@pytest.mark.parametrize("content", [b"PAR1\x15\x04\xe4", "ä\n".encode("utf-16-le")])
def test_no_encoding_is_advised_for_what_is_no_text(content: bytes, tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", content)
    with pytest.raises(
        ValueError, match=r"must be UTF-8 text, but line 1 holds the byte 0xe4 .* That line is no text"
    ):
        list(read_lines(file))


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_another_unicode_encoding_is_named(tmp_path: Path, encoding: str, compress: Callable[[bytes], bytes]) -> None:
    file = write(tmp_path / "a.txt", compress("text\n".encode(encoding)))
    with pytest.raises(
        ValueError, match=rf"a\.txt` must be UTF-8 .* mark of {encoding} instead.*`iconv -f {encoding}"
    ):
        list(read_lines(file))


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = write(tmp_path / "a.txt", content)
    with pytest.raises(ValueError, match=r"`.*a\.txt` must hold at least one line, but is empty"):
        list(read_lines(file))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`.*a\.txt` must be a file, but does not exist"):
        list(read_lines(tmp_path / "a.txt"))


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="must be a file, but is a folder instead"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize(
    "content",
    [GZIPPED[:-1], GZIPPED[:500], GZIPPED[:9], GZIPPED[:-8] + bytes(8), GZIPPED + b"x"],
    ids=["last byte missing", "most missing", "header cut", "wrong checksum", "something behind"],
)
def test_a_damaged_gzip_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = write(tmp_path / "a.gz", content)
    with pytest.raises(ValueError, match=r"`.*a\.gz` must be a whole gzip file, but is cut short or damaged"):
        list(read_lines(file))


def test_two_text_files_make_pairs_whatever_ends_their_lines(tmp_path: Path) -> None:
    """https://github.com/mjpost/sacrebleu/pull/24, https://github.com/facebookresearch/flores/pull/9"""
    source = write(tmp_path / "source", "\n".join(NOT_LINE_BREAKS))
    target = write(tmp_path / "target", gzip.compress(b"1\r\n2\r2\r\n3\r\n4\r\n"))
    expected = list(zip(NOT_LINE_BREAKS, ["1", "2 2", "3", "4"], strict=True))
    assert pairs_of(load_parallel(source, target)) == expected


@pytest.mark.parametrize("numbers", [(3, 4), (4, 3), (1, 5)])
def test_unequal_line_counts_are_named(tmp_path: Path, numbers: tuple[int, int]) -> None:
    """https://github.com/OpenNMT/OpenNMT/issues/489"""
    source, target = (write(tmp_path / name, "x\n" * n) for name, n in zip("st", numbers, strict=True))
    message = f"must have the same number of lines, but .*s has {numbers[0]} and .*t has {numbers[1]} instead"
    with pytest.raises(ValueError, match=message):
        load_parallel(source, target)


def test_a_pair_with_a_blank_side_is_dropped_and_reported_in_each_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/stefan-it/nmt-en-vi/issues/6"""
    source = write(tmp_path / "source", "a\n\n \u2028\nd\ne\n")
    target = write(tmp_path / "target", "1\n2\n\n4\n\u00a0\n")
    for _ in range(2):
        caplog.clear()
        assert pairs_of(load_parallel(source, target)) == [("a", "1"), ("d", "4")]
        assert caplog.messages == [
            f"{source} and {target}: dropped 3 of 5 pairs, since a side is blank (2 sources, 2 targets)."
        ]


def test_a_side_of_invisible_characters_is_blank(tmp_path: Path) -> None:
    """https://github.com/ufal/lindat-translation/issues/61"""
    invisible = ["\u200b", "\ufeff", "\u200e", "\u00ad", "\u2060", "\u200b \u200f"]
    source = write(tmp_path / "source", "".join(f"{line}\n" for line in ["a", *invisible, "b", "c\u200b"]))
    target = write(tmp_path / "target", "".join(f"{line}\n" for line in ["1", *"234567", "\u2060", "9"]))
    assert pairs_of(load_parallel(source, target)) == [("a", "1"), ("c\u200b", "9")]
    assert pairs_of(load_parallel(source, target, streaming=True)) == [("a", "1"), ("c\u200b", "9")]


def test_blank_pairs_alone_are_an_error(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source", "\na\n"), write(tmp_path / "target", "b\n \n")
    with pytest.raises(ValueError, match="must hold at least one pair with text on both sides, but holds none"):
        load_parallel(source, target)


def test_files_are_read_once_and_again_when_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = write(tmp_path / "source", "a\n"), write(tmp_path / "target", "b\n")
    read = []

    def record_and_read(path: Path) -> Iterator[str]:
        read.append(path)
        return read_lines(path)

    monkeypatch.setattr(reading, "read_lines", record_and_read)
    assert pairs_of(load_parallel(source, target)) == [("a", "b")]
    assert pairs_of(load_parallel(source, target)) == [("a", "b")]
    assert read == [source, target]
    write(target, "c\n")
    os.utime(target, ns=(0, 0))
    assert pairs_of(load_parallel(source, target)) == [("a", "c")]
    assert len(read) == 4


def put_another_in_place(file: Path, content: bytes) -> None:
    """Replaces a file by one of the same size and time of change, as `cp -p` may."""
    before = file.stat()
    assert len(content) == before.st_size
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_files_are_read_again_when_replaced_by_others_of_the_same_size_and_time(tmp_path: Path) -> None:
    """https://github.com/lisa-lab/pylearn2/issues/870, https://github.com/huggingface/datasets/issues/2956."""
    source, target = write(tmp_path / "source", "a\n"), write(tmp_path / "target", "b\n")
    assert pairs_of(load_parallel(source, target)) == [("a", "b")]
    put_another_in_place(target, b"c\n")
    assert pairs_of(load_parallel(source, target)) == [("a", "c")]

    tables = [tmp_path / f"{name}.parquet" for name in ("a", "b")]
    for text, file in zip("bc", tables, strict=True):
        datasets.Dataset.from_list([{"source": "a", "target": text}]).to_parquet(file)
    assert pairs_of(load_parallel(file=tables[0])) == [("a", "b")]
    put_another_in_place(tables[0], tables[1].read_bytes())
    assert pairs_of(load_parallel(file=tables[0])) == [("a", "c")]


def test_errors_of_a_file_keep_their_message(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"good\n\xff\n")
    with pytest.raises(ValueError, match=r"a\.txt` must be UTF-8 text, but line 2"):
        load_parallel(file, file)
    with pytest.raises(FileNotFoundError, match=r"`.*missing` must be a file, but does not exist"):
        load_parallel(file, tmp_path / "missing")


@pytest.mark.parametrize("content", ['a\t1\r\n\u2028b\t"2\n', 'source\ttarget\na\t1\n\u2028b\t"2\n'])
def test_a_tsv_file_of_two_columns_needs_no_header_and_has_no_quoting(tmp_path: Path, content: str) -> None:
    assert pairs_of(load_parallel(file=write(tmp_path / "a.tsv", content))) == [("a", "1"), ("\u2028b", '"2')]


@pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.csv", ","), ("a.CSV.gz", ",")])
def test_columns_of_a_table_are_chosen_by_name(tmp_path: Path, name: str, separator: str) -> None:
    rows = [["id", "de", "en"], ["1", "ja", "yes"], [], ["2", "nein", "no"], ["3", "", "what"]]
    content = "\n".join(separator.join(row) for row in rows).encode()
    file = write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    pairs = load_parallel(file=file, source_column="en", target_column="de")
    assert pairs_of(pairs) == [("yes", "ja"), ("no", "nein")]
    swapped = load_parallel(file=file, source_column="de", target_column="en")
    assert pairs_of(swapped) == [("ja", "yes"), ("nein", "no")]


def test_csv_cells_stay_as_they_are(tmp_path: Path) -> None:
    cells = [
        ("a\u2028b\u0085", 'say "x, y"'),
        ("007", "NA"),
        ("2025-03-03", "null"),
        ("two\nlines", "1.0"),
        ("c d", "e"),
    ]
    rows = "".join(f'"{a}","{b}"\n' for a, b in (("source", "target"), *((a, b.replace('"', '""')) for a, b in cells)))
    file = write(tmp_path / "a.csv", rows.replace("c d", "c\rd"))
    assert pairs_of(load_parallel(file=file)) == cells


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.tsv",
            "a\tb\nc\n",
            r"`.*a\.tsv` must have 2 cells as its first line has, but line 2 has 1 instead.*taken out",
        ),
        ("a.tsv", "a\tb\nc\td\te\n", "line 2 has 3 instead"),
        (
            "a.csv",
            'source,target\n"a\nb",c\nd\n',
            r"`.*a\.csv` must have 2 cells .* line 4 has 1 .* put in double quotes",
        ),
        (
            "a.tsv",
            "a\tb\tc\n",
            r"first line of `.*a\.tsv` must name the columns 'source' and 'target', but is \['a', 'b', 'c'\]",
        ),
        (
            "a.csv",
            "en,de\n",
            r"must name the columns 'source' and 'target', but is \['en', 'de'\] .* Set `source_column`",
        ),
        ("a.csv", "source,target\n", r"`.*a\.csv` must hold at least one pair, but holds only a header"),
        (
            "a.csv",
            'source,target\n"a"b,c\n',
            r"a\.csv` must be a CSV file, but line 2 cannot be read as such: .*doubled",
        ),
        ("a.csv", 'source,target\n"a,b\nc,d\n', r"a\.csv` must be a CSV file, but line 3 cannot be read"),
        ("a.txt", "a\tb\n", r"`file` must end in \.tsv, .* but is .*a\.txt instead. Give two text files"),
        ("a.jsonl", "{}\n", r"must have the field 'source', but line 1 of `.*a\.jsonl` has not. Set `source_column`"),
        (
            "a.jsonl",
            '{"source": "a", "target": "b"}\n[1]\n',
            "must be a JSON object, but line 2 of .* is an array",
        ),
        (
            "a.json",
            "[\n" * 3,
            r"must be a JSON object, but line 3 of .* is not: Expecting value\. .* such as {.* between brackets",
        ),
        ("a.json", '[{"source": "a", "target": "b"},\n [1]]', r"line 2 of .* is an array instead\."),
        ("a.json", '[{"source": "a", "target": "b"}\n{}]', r"line 2 of .* is not: , or \] is missing before {\."),
        ("a.json", '[{"source": "a", "target": "b"},\n\n', r"line 2 of .* is not: Expecting value\."),
        ("a.json", '[{"source": "a", "target": "b"}\n', r"line 1 of .* is not: , or \] is missing before the end\."),
        ("a.json", '[{"source": "a", "target": "b"}]\n[]', r"line 2 of .* is not: something follows the array\."),
        ("a.json", '[{"source": "a", "target": "b"},\n{"source" "b"}]', r"line 2 of .* is not: Expecting ':'"),
        ("a.json", '[{"source": "a", "target": "b"},\n{"source":\n"b}]', r"line 3 of .* is not: Unterminated string"),
        (
            "a.json",
            '{"data": [{"source": "a"}]}',
            r"must have the field 'source', but line 1 .* JSON Lines has a pair",
        ),
        ("a.json", "[" * 100_000, "must be a JSON object, but line 1 of .* is not: it is nested too deeply"),
        (
            "a.jsonl",
            '{"source": "a", "target": 7}\n',
            "'target' must be a text, but is 7 in line 1 of .*Put it in quotes",
        ),
        ("a.jsonl", '\n{"source": \n', r"must be a JSON object, but line 2 of `.*a\.jsonl` is not: Expecting value"),
        (
            "a.jsonl",
            '{"source": "\\ud800", "target": "b"}\n',
            "'source' must be valid Unicode, .* surrogate pair in line 1",
        ),
        (
            "a.parquet",
            "no",
            r"`.*a\.parquet` must be a Parquet file, but cannot be read as one: Parquet file size is 2",
        ),
    ],
)
def test_a_table_that_cannot_be_read_is_an_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        load_parallel(file=file)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl.gz"])
@given(st.lists(st.dictionaries(st.sampled_from("stx"), st.text(max_size=9))), st.sampled_from([None, 0, 2]))
def test_a_json_array_is_read_item_by_item(
    name: str, tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]], indent: int | None
) -> None:
    rows = [{"s": "a", "t": "b", **row} for row in rows] or [{"s": "a", "t": "b"}]
    content = f" \n {json.dumps(rows, indent=indent)}\n\n".encode()
    file = tmp_path_factory.mktemp("array") / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = list(read_json_pairs(file, "s", "t"))
    assert found == [{"source": row["s"], "target": row["t"]} for row in json.loads(content)]


@pytest.mark.parametrize(
    ("name", "columns"),
    [("a.tsv", ("1", "3")), ("a.csv", ("1", "3")), ("a.tsv", ("3", "1")), ("a.tsv.gz", ("1", "3"))],
)
def test_columns_of_a_table_without_a_header_have_numbers(name: str, columns: tuple[str, str], tmp_path: Path) -> None:
    content = "a,7,b\nc,8,d\n".replace(",", "," if "csv" in name else "\t").encode()
    file = write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    pairs = load_parallel(file=file, source_column=columns[0], target_column=columns[1])
    assert pairs_of(pairs) == ([("a", "b"), ("c", "d")] if columns == ("1", "3") else [("b", "a"), ("d", "c")])


def test_a_header_that_is_made_of_numbers_names_its_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "2\t1\na\tb\n")
    assert pairs_of(load_parallel(file=file, source_column="1", target_column="2")) == [("b", "a")]
    with pytest.raises(ValueError, match=r"must name the columns '1' and '3', but is \['2', '1'\] .* numbers from 1"):
        load_parallel(file=file, source_column="1", target_column="3")


def test_jsonl_texts_stay_as_they_are(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "translation": {"en": "2025-03-03", "de": "a\u2028b\r\n\0"}},
        {"id": "two", "translation": {"en": None, "de": "blank"}},
        {"translation": {"de": " \u0085c", "en": '"7"'}},
    ]
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(row, ensure_ascii=row == rows[0]) + "\n" for row in rows))
    pairs = load_parallel(file=file, source_column="translation.en", target_column="translation.de")
    assert pairs_of(pairs) == [("2025-03-03", "a\u2028b\r\n\0"), ('"7"', " \u0085c")]


TRANSLATIONS = {
    "translation": [{"en": "a\u2028\r\0", "de": "b"}, {"en": None, "de": "c"}, {"en": "d", "de": '"e'}],
    "number": [1, 2, 3],
}


def test_parquet_texts_stay_as_they_are_and_changed_files_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    columns: dict[str, Any] = {"source_column": "translation.de", "target_column": "translation.en"}
    datasets.Dataset.from_dict(TRANSLATIONS).to_parquet(file)
    assert pairs_of(load_parallel(file=file, **columns)) == [("b", "a\u2028\r\0"), ('"e', "d")]
    large = datasets.Features({"source": datasets.Value("large_string"), "target": datasets.Value("string")})
    datasets.Dataset.from_dict({"source": ["x"], "target": ["y"]}, features=large).to_parquet(file)
    pairs = load_parallel(file=file)
    assert pairs_of(pairs) == [("x", "y")]
    assert pairs.features["source"] == datasets.Value("string")


def test_a_saved_dataset_is_loaded_with_its_split(tmp_path: Path) -> None:
    features = datasets.Features(
        {"translation": datasets.Translation(languages=["en", "de"]), "number": datasets.Value("int64")}
    )
    part = datasets.Dataset.from_dict(TRANSLATIONS, features=features, split="validation")
    columns: dict[str, Any] = {"source_column": "translation.en", "target_column": "translation.de"}
    expected = [("a\u2028\r\0", "b"), ("d", '"e')]
    datasets.DatasetDict({"train": part.select([0]), "test": part}).save_to_disk(tmp_path / "all")
    assert pairs_of(load_parallel(dataset_name=str(tmp_path / "all"), split="test", **columns)) == expected
    assert pairs_of(load_parallel(dataset_name=str(tmp_path / "all"), **columns)) == expected[:1]
    part.save_to_disk(tmp_path / "one")
    for split in ("train", "validation"):
        assert pairs_of(load_parallel(dataset_name=str(tmp_path / "one"), split=split, **columns)) == expected
    with pytest.raises(
        ValueError, match=r"`split` must be one of those of `.*all` \(train, test\), but is 'dev' instead"
    ):
        load_parallel(dataset_name=str(tmp_path / "all"), split="dev", **columns)
    with pytest.raises(ValueError, match=r"`split` must be .* \(train, validation\), but is 'test' instead"):
        load_parallel(dataset_name=str(tmp_path / "one"), split="test", **columns)


def test_a_column_must_exist_and_hold_texts(tmp_path: Path) -> None:
    datasets.Dataset.from_dict(TRANSLATIONS).save_to_disk(tmp_path)
    name = str(tmp_path)
    names = r"\(number, translation\.en, translation\.de\)"
    with pytest.raises(
        ValueError, match=rf"`source_column` must be a column of `.*` {names}, but is 'source' instead"
    ):
        load_parallel(dataset_name=name)
    with pytest.raises(
        ValueError, match=r"`target_column` must be a column of texts, but 'number' .* holds Value\('int64'\)"
    ):
        load_parallel(dataset_name=name, source_column="translation.en", target_column="number")
    with pytest.raises(ValueError, match="`target_column` must differ from `source_column`, but both are 'number'"):
        load_parallel(dataset_name=name, source_column="number", target_column="number")


def test_another_dataset_name_is_given_to_load_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load_dataset(*arguments: Any, **options: Any) -> datasets.Dataset:
        calls.append((arguments, options))
        return datasets.Dataset.from_dict({"source": ["a"], "target": ["b"]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert pairs_of(load_parallel(dataset_name="some/corpus", dataset_config_name="de-en", split="dev")) == [
        ("a", "b")
    ]
    assert calls == [(("some/corpus", "de-en"), {"split": "dev", "streaming": False})]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ({}, "none of them"),
        ({"source": "a"}, "`source`"),
        ({"target": "a", "dataset_name": "b"}, "`target` and `dataset_name`"),
        ({"source": "a", "target": "b", "file": "c"}, "`source` and `target` and `file`"),
    ],
)
def test_the_pairs_must_come_from_one_place(arguments: dict[str, Any], given: str) -> None:
    with pytest.raises(ValueError, match=f"`file`, or `dataset_name`, but given are {given} instead"):
        load_parallel(**arguments)


def test_a_stream_gives_the_same_pairs_in_each_pass_from_every_kind_of_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, arguments in write_inputs(tmp_path).items():
        caplog.clear()
        stream = load_parallel(**arguments, streaming=True)
        assert isinstance(stream, datasets.IterableDataset)
        assert caplog.messages == []
        for _ in range(2):
            assert pairs_of(stream) == [("a", "b"), ("d", '"e')]
            assert caplog.messages == [f"{name}: dropped 1 of 3 pairs, since a side is blank (1 sources, 0 targets)."]
        assert pairs_of(pickle.loads(pickle.dumps(stream))) == pairs_of(stream)
        assert pairs_of(load_parallel(**arguments)) == pairs_of(stream)


def test_a_stream_is_read_no_further_than_it_is_asked(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"line\n" * 10_000 + b"\xff\n")
    rows = iter(load_parallel(file, file, streaming=True))
    assert next(rows) == {"source": "line", "target": "line"}
    with pytest.raises(ValueError, match=r"a\.txt` must be UTF-8 text, but line 10001"):
        list(rows)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"en": "a\nb\n", "de": "c\n"}, r"same number of lines, but .*en has 2 and .*de has 1 instead"),
        ({"en": " \nb\n", "de": "c\n\n"}, "must hold at least one pair with text on both sides, but holds none"),
        ({"a.csv": "source,target\n"}, r"`.*a\.csv` must hold at least one pair, but holds only a header"),
        ({"a.jsonl": '{"source": 7}\n'}, "'source' must be a text, but is 7 in line 1 of"),
        ({"a.parquet": "no"}, r"`.*a\.parquet` must be a Parquet file, but cannot be read as one"),
    ],
)
def test_what_is_wrong_with_a_file_is_an_error_when_a_stream_gets_there(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    paths = [write(tmp_path / name, content) for name, content in files.items()]
    arguments: dict[str, Any] = {"file": paths[0]} if len(paths) == 1 else {"source": paths[0], "target": paths[1]}
    with pytest.raises(ValueError, match=message):
        list(load_parallel(**arguments, streaming=True))


def hub_rows(rows: list[str]) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, rows)


@pytest.mark.parametrize("typed", [True, False], ids=["types known", "types unknown"])
def test_a_dataset_of_the_hub_is_streamed_with_its_nested_columns(
    monkeypatch: pytest.MonkeyPatch, typed: bool
) -> None:
    calls = []
    rows = [{"id": 1, "translation": {"en": "a", "de": {"text": "b"}}}, {"id": 2, "translation": None}]
    rows.append({"id": 3, "translation": {"en": "c", "de": {"text": "d"}}})
    features = datasets.Dataset.from_list(rows).features if typed else None

    def load_dataset(*arguments: Any, **options: Any) -> datasets.IterableDataset:
        calls.append((arguments, options))
        texts = {"rows": [json.dumps(row) for row in rows]}
        return datasets.IterableDataset.from_generator(hub_rows, features=features, gen_kwargs=texts)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    columns: dict[str, Any] = {"source_column": "translation.en", "target_column": "translation.de.text"}
    stream = load_parallel(dataset_name="some/corpus", split="dev", streaming=True, **columns)
    assert pairs_of(stream) == [("a", "b"), ("c", "d")]
    assert calls == [(("some/corpus", None), {"split": "dev", "streaming": True})]
    with pytest.raises(ValueError, match=r"`source_column` must be a column of `some/corpus` \(id, .*but is 'en'"):
        load_parallel(dataset_name="some/corpus", source_column="en", target_column="de", streaming=True)
    with pytest.raises(ValueError, match=r"`source_column` must be a column of texts, but 'id' .* holds Value"):
        load_parallel(dataset_name="some/corpus", source_column="id", target_column="de", streaming=True)


def test_a_streamed_column_that_turns_out_to_hold_no_texts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.dumps({"source": "a" if number < 200 else number, "target": "b"}) for number in range(201)]
    stream = datasets.IterableDataset.from_generator(hub_rows, gen_kwargs={"rows": rows})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: stream)
    with pytest.raises(ValueError, match="column 'source' of `some/corpus` must hold texts, but holds 200 instead"):
        list(load_parallel(dataset_name="some/corpus", streaming=True))
