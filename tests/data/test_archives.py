"""Zip archives with a text file for each language, as OPUS has them."""

import gzip
import zipfile
from pathlib import Path

import datasets
import pytest

from hf_seq2seq.data import load_parallel


def write_archive(file: Path, members: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


BOOKS: dict[str, str | bytes] = {
    "README": "about the corpus\n",
    "Books.de-en.de": "ja\r\n\u2028nein\n",
    "Books.de-en.en": "yes\n\u2028no\n",
    "Books.de-en.ids": "1\n2\n",
    "LICENSE": "",
}


def pairs_of(file: Path, source: str, target: str) -> list[tuple[str, str]]:
    pairs = load_parallel(file=file, source_language=source, target_language=target, streaming=True)
    return [(row["source"], row["target"]) for row in pairs]


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "de"), ("DE", "en")])
def test_the_two_files_of_the_languages_are_pairs(source: str, target: str, tmp_path: Path) -> None:
    file = write_archive(tmp_path / "de-en.txt.zip", BOOKS)
    texts = {"de": ["ja", "\u2028nein"], "en": ["yes", "\u2028no"]}
    assert pairs_of(file, source, target) == list(zip(texts[source.lower()], texts[target], strict=True))


def test_varieties_folders_and_gzipped_members_are_read(tmp_path: Path) -> None:
    file = write_archive(tmp_path / "a.ZIP", {"x/c.pt_BR": gzip.compress(b"sim\n"), "x/": b"", "x/c.en": "yes"})
    assert pairs_of(file, "en", "pt") == [("yes", "sim")]


def test_an_archive_is_cached_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    for word in ("ja", "jo"):
        write_archive(file, {"a.de": word, "a.en": "yes"})
        pairs = load_parallel(file=file, source_language="en", target_language="de")
        assert isinstance(pairs, datasets.Dataset)
        assert pairs["target"][:] == [word]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            BOOKS | {"Other.de": "x"},
            r"one text file whose name ends in \.de, but holds Books\.de-en\.de and Other\.de",
        ),
        ({"a.fr": "x", "a.en": "y"}, r"ends in \.de, but holds none \(a\.fr, a\.en\)\. Set `source_language`"),
        ({}, r"ends in \.en, but holds none \(nothing\)"),
        (BOOKS | {"Books.de-en.de": "ja\n"}, r"same number of lines, but en of .*a\.zip has 2 and de of .* has 1"),
        (BOOKS | {"Books.de-en.de": b"ja\n\xe4\n"}, r"a\.zip/Books\.de-en\.de` must be UTF-8 text, but line 2 holds"),
    ],
)
def test_an_archive_without_one_file_for_each_language_is_named(
    members: dict[str, str | bytes], message: str, tmp_path: Path
) -> None:
    file = write_archive(tmp_path / "a.zip", members)
    with pytest.raises(ValueError, match=message):
        pairs_of(file, "en", "de")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    file = write_archive(tmp_path / "a.zip", {"a.de": "x\n" * 5000, "a.en": "y\n" * 5000})
    data = bytearray(file.read_bytes())
    file.write_bytes(data[:-10])
    with pytest.raises(ValueError, match=r"a\.zip` must be a zip archive, but cannot be read as one"):
        pairs_of(file, "en", "de")
    data[40] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.zip` must be a whole zip archive without a password, but a\.de cannot"):
        pairs_of(file, "en", "de")


def test_an_archive_in_place_of_a_text_file_is_named(tmp_path: Path) -> None:
    file = write_archive(tmp_path / "a.zip", BOOKS)
    with pytest.raises(ValueError, match=r"a\.zip` must be text, plain or gzipped, but is a zip archive instead"):
        load_parallel(file, file)
