"""Translation memories: each unit gives its two texts, whatever the file's encoding, languages and markup."""

import gzip
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import datasets
import pytest

from hf_seq2seq.data import load_parallel
from hf_seq2seq.data.tmx import Memory, fill_target


HEADER = '<header creationtool="t" segtype="sentence" adminlang="en" srclang="en" datatype="xml"/>'


def tuv(language: str, segment: str, attribute: str = "xml:lang") -> str:
    return f'<tuv {attribute}="{language}"><seg>{segment}</seg></tuv>'


def memory(*units: str, before: str = "") -> str:
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    return f'{before}<tmx version="1.4">{HEADER}<body>\n{body}\n</body></tmx>'


def pairs_of(dataset: datasets.Dataset | datasets.IterableDataset) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in dataset]


def read(file: Path, content: str | bytes, **options: Any) -> list[tuple[str, str]]:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    options = {"source_language": "en", "target_language": "de"} | options
    return pairs_of(load_parallel(file=file, streaming=True, **options))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.tmx"


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", ["memory.tmx", "MEMORY.TMX.gz"])
def test_a_memory_is_a_file_of_pairs(name: str, streaming: bool, tmp_path: Path) -> None:
    """https://github.com/Helsinki-NLP/OPUS-MT-train/issues/67, and, since two units are enough,

    https://github.com/Helsinki-NLP/OPUS-CAT/issues/88
    """
    content = memory(tuv("en", "one") + tuv("de", "eins"), tuv("de", "zwei") + tuv("en", "two")).encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for languages, expected in {
        ("en", "de"): [("one", "eins"), ("two", "zwei")],
        ("de", "en"): [("eins", "one"), ("zwei", "two")],
    }.items():
        source, target = languages
        pairs = load_parallel(file=file, source_language=source, target_language=target, streaming=streaming)
        assert pairs_of(pairs) == expected


def test_a_language_stands_for_its_varieties(file: Path) -> None:
    """https://github.com/modernmt/modernmt/issues/354 and https://github.com/Helsinki-NLP/OPUS-CAT/issues/96"""
    units = [tuv(tag, f"in {tag}") + tuv("DE-AT", "ja") for tag in ("en", "en-GB", "EN-US", "en_AU", "EN")]
    others = [tuv(tag, f"in {tag}") + tuv("DE-AT", "ja") for tag in ("eng", "e", "en-", "enm-GB")]
    found = read(file, memory(*units, *others))
    assert found[:5] == [(f"in {tag}", "ja") for tag in ("en", "en-GB", "EN-US", "en_AU", "EN")]
    assert found[5:] == [("in en-", "ja")]
    assert read(file, memory(*units), source_language="en-gb") == [("in en-GB", "ja")]


def test_the_named_variety_comes_before_others_and_a_text_before_a_blank_one(file: Path) -> None:
    unit = tuv("en-US", "color") + tuv("en", "colour") + tuv("de", " ") + tuv("de-CH", "Farbe") + tuv("fr", "couleur")
    assert read(file, memory(unit)) == [("colour", "Farbe")]
    assert read(file, memory(unit), source_language="en-us") == [("color", "Farbe")]
    assert read(file, memory(unit), source_language="fr") == [("couleur", "Farbe")]


def test_texts_of_other_units_are_never_put_together(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """https://github.com/Helsinki-NLP/OPUS-CAT/issues/120"""
    units = [tuv("en", f"{n}") * (n % 3 > 0) + tuv("fr", "x") + tuv("de", f"{n}") * (n % 5 > 0) for n in range(60)]
    expected = [(f"{n}", f"{n}") for n in range(60) if n % 3 and n % 5]
    assert read(file, memory(*units)) == expected
    assert caplog.messages == [f"{file}: dropped 28 of 60 pairs, since a side is blank (20 sources, 12 targets)."]


INLINE = (
    'Press <bpt i="1">&lt;b&gt;</bpt>Ctrl<ept i="1">&lt;/b&gt;</ept> <ph x="2">{<sub>icon</sub>}</ph> <!-- c -->'
    'and<it pos="begin">&lt;i&gt;</it> <hi type="x">the <hi>big</hi> <ut>\\b</ut>key</hi> &amp; go&#x21;<ph/>'
)


def test_codes_inside_a_segment_are_dropped_or_kept_as_text(file: Path) -> None:
    content = memory(tuv("en", INLINE) + tuv("de", "x"))
    assert read(file, content) == [("Press Ctrl and the big key & go!", "x")]
    kept = "Press <b>Ctrl</b> {icon} and<i> the big \\bkey & go!"
    assert read(file, content, inline_tags="keep") == [(kept, "x")]
    independent = ElementTree.fromstring(content).find(".//seg")
    assert independent is not None
    assert "".join(independent.itertext()).replace("}  and", "} and") == kept


def test_a_line_break_inside_a_segment_is_a_space(file: Path) -> None:
    assert read(file, memory(tuv("en", "a\nb&#13;c&#x2028;d") + tuv("de", "x"))) == [("a b c d", "x")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "windows-1252", "iso-8859-15"])
def test_the_encoding_is_the_one_that_the_file_declares(encoding: str, file: Path) -> None:
    name = {"utf-8-sig": "UTF-8", "utf-16-be": "UTF-16"}.get(encoding, encoding)
    content = memory(tuv("en", "10 \u20ac") + tuv("de", "\u00e4"), before=f'<?xml version="1.0" encoding="{name}"?>')
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    assert read(file, mark + content.encode(encoding)) == [("10 \u20ac", "\u00e4")]


@pytest.mark.parametrize(
    "before",
    [
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
        '<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for Translation Memory eXchange//EN" "tmx14.dtd" []>',
        "<!DOCTYPE tmx [<!ELEMENT tmx ANY>]>",
    ],
)
def test_a_dtd_is_neither_needed_nor_read(before: str, file: Path) -> None:
    (file.parent / "tmx14.dtd").write_text("<!this is no DTD")
    assert read(file, memory(tuv("en", "a") + tuv("de", "b"), before=before)) == [("a", "b")]


def test_older_and_namespaced_memories_are_read(file: Path) -> None:
    older = memory(tuv("EN", "a", "lang") + tuv("DE", "b", "lang")).replace("1.4", "1.1")
    assert read(file, older) == [("a", "b")]
    assert read(file, older.replace("<tmx", '<tmx xmlns="http://www.lisa.org/tmx14"')) == [("a", "b")]


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY secret SYSTEM "SECRET">',
        '<!ENTITY % secret SYSTEM "SECRET"> %secret;',
        '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY secret "&b;&b;&b;&b;&b;&b;&b;&b;&b;">',
    ],
    ids=["external", "parameter", "billion laughs"],
)
def test_entities_are_refused_and_no_other_file_is_read(declared: str, file: Path) -> None:
    secret = file.parent / "secret"
    secret.write_text("<!ENTITY found 'the secret'>")
    doctype = f"<!DOCTYPE tmx [{declared.replace('SECRET', secret.as_uri())}]>"
    content = memory(tuv("en", "a &secret;" if "%" not in declared else "a") + tuv("de", "b"), before=doctype)
    with pytest.raises(
        ValueError, match=r"memory\.tmx` must use only the entities of XML .* but declares '(secret|a)'"
    ):
        read(file, content)


BROKEN = "<tu>" + tuv("en", "a") + tuv("de", "b") + "</tu>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            memory(tuv("en", "a") + tuv("de", "b"), "<tuv><seg>c</tuv>"),
            r"line 3, column 22 is not: .* mismatch.* 1 un",
        ),
        (
            memory(tuv("en", "a"), tuv("en", "b &nbsp;")),
            r"line 3, column \d+ is not: Entity 'nbsp' .* 1 units",
        ),
        (memory(tuv("en", "a"), tuv("en", "\x1f")), r"line 3, column \d+ is not: .*Char value 31.* 1 units were read"),
        (memory(tuv("en", "a"), tuv("en", "b"))[:-9], r"line 4, column \d+ is not: .* 2 units were read"),
        (memory(tuv("en", "a")).encode().replace(b"a<", b"\xe4<"), r"line 2, column \d+ is not: .* 0 units were read"),
        (
            memory(tuv("en", "a"), tuv("en", "b &nbsp;"), before='<!DOCTYPE tmx SYSTEM "tmx14.dtd">'),
            r"must use only the entities of XML itself, such as &amp;, but line 3 has &nbsp;\. Write its text",
        ),
        ("one\ttwo\n", r"line 1, column 1 is not: Start tag expected"),
        ("", r"memory\.tmx` must be a TMX file, but is empty"),
        ("<html><body><tu/></body></html>", "must be a TMX file, but its first element is <html> instead of <tmx>"),
        ('<tmx version="1.4"><header/></tmx>', r"memory\.tmx` must have its units in a <body>, but has none"),
        (memory(), r"must hold units with text in 'en' and 'de', but holds none; its languages are: none\. Set"),
        (
            memory(tuv("en", "a") + tuv("fr", "b")),
            r"but holds none; its languages are: en, fr\. Set",
        ),
        (
            gzip.compress(memory(tuv("en", "a")).encode())[:-9],
            "must be a whole gzip file, but is cut short",
        ),
        (b"\xfd7zXZ\0....", "must be text, plain or gzipped, but is an xz file instead"),
    ],
)
def test_a_memory_that_cannot_be_read_is_one_line(content: str | bytes, message: str, file: Path) -> None:
    """https://github.com/Helsinki-NLP/OPUS-CAT/issues/10: a memory that is not read says so at once."""
    with pytest.raises(ValueError, match=message):
        read(file, content)


def test_what_stands_before_a_fault_is_read(file: Path) -> None:
    content = memory(*[tuv("en", f"{n}") + tuv("de", f"{n}") for n in range(3000)], "<tuv>")
    found = []
    file.write_text(content)
    stream = load_parallel(file=file, source_language="en", target_language="de", streaming=True)
    with pytest.raises(ValueError, match=r"line 3002, column \d+ is not: .* 3000 units were read until there"):
        found.extend(iter(stream))
    rows = iter(stream)
    assert [next(rows)["source"] for _ in range(1000)] == [f"{n}" for n in range(1000)]


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ({}, r"`source_language` must name a language of `.*memory\.tmx`, such as \"en\", but is not given"),
        ({"source_language": "en"}, r"`target_language` must name a language of"),
        (
            {"source_language": "en", "target_language": "EN_gb"},
            r"`target_language` must be another language than `source_language` \('en'\), but is 'EN_gb' instead",
        ),
    ],
)
def test_both_languages_are_given_and_differ(languages: dict[str, str], message: str, file: Path) -> None:
    file.write_text(memory(tuv("en", "a") + tuv("de", "b")))
    with pytest.raises(ValueError, match=message):
        load_parallel(file=file, **languages)  # type: ignore[arg-type]


def test_a_target_is_filled_in_and_all_else_stays() -> None:
    unit = '<tu tuid="7"><note>n &lt;</note>\n  <tuv xml:lang="en"><seg>a <ph>{1}</ph></seg></tuv>\n</tu>'
    filled = fill_target(unit, "de-AT", "b < c & \x01\ud7ff\ufffe")
    assert filled == (
        '<tu tuid="7"><note>n &lt;</note>\n  <tuv xml:lang="en"><seg>a <ph>{1}</ph></seg></tuv>'
        '<tuv xml:lang="de-AT"><seg>b &lt; c &amp; \ud7ff</seg></tuv>\n</tu>'
    )
    blank = '<tu><tuv xml:lang="DE" usagecount="0"><prop type="x">y</prop><seg> <ph/></seg></tuv></tu>'
    assert fill_target(blank, "de", "b") == blank.replace(" <ph/>", "b")


def test_a_memory_in_a_namespace_is_filled_in_there() -> None:
    unit = '<tu xmlns="urn:x"><tuv xml:lang="en"><seg>a</seg></tuv></tu>'
    elements = ElementTree.fromstring(fill_target(unit, "de", "b")).iter()
    assert {element.tag.split("}")[0] for element in elements} == {"{urn:x"}


def test_a_unit_that_was_read_is_forgotten(file: Path) -> None:
    file.write_text(memory(*["<prop>x</prop>"] * 9000))
    most = 0
    for unit in Memory(file).units():
        most = max(most, sum(1 for _ in unit.getparent()))
    assert 1 < most < 3000  # libxml2 is handed 32 kB at a time
