"""The verb `translate` on tables and translation memories: the translations come in, and all else stays."""

import csv
import gzip
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import tiny_model

from hf_seq2seq import Translator, train_tokenizer
from hf_seq2seq.data import load_parallel


Command = Callable[..., tuple[int, str, str]]
Translate = Callable[..., bytes]

TEXTS = ["abc", "", "cab b", "bb"]
LANG = "{http://www.w3.org/XML/1998/namespace}lang"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(iter(["abc &<"]), kind="char", model_max_length=50)
    model = tiny_model(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2:4] = -1e4  # no </s> and no <unk>: as many letters as are allowed
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def translations(model_folder: Path) -> list[str]:
    translations = Translator.from_pretrained(model_folder, device="cpu")(TEXTS, max_new_tokens=4)
    assert [bool(translation.strip()) for translation in translations] == [bool(text) for text in TEXTS]
    return translations


@pytest.fixture
def translate(model_folder: Path, command: Command, tmp_path: Path) -> Translate:
    """Translates a file of some name and content, and returns the content of the output, which is not packed."""

    def run(name: str, content: str | bytes, *options: object) -> bytes:
        source, target = tmp_path / name, tmp_path / f"out.{name}"
        data = content.encode() if isinstance(content, str) else content
        source.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        arguments = ("--device", "cpu", "--batch-tokens", 16, "--max-new-tokens", 4, *options)
        status, out, err = command("translate", model_folder, "--input", source, "--output", target, *arguments)
        assert (status, out) == (0, ""), err
        return gzip.decompress(target.read_bytes()) if name.endswith(".gz") else target.read_bytes()

    return run


@pytest.fixture
def refused(model_folder: Path, command: Command, tmp_path: Path) -> Callable[..., str]:
    """Returns the error of a command, which is one line."""

    def run(name: str, content: str, *options: object) -> str:
        (tmp_path / name).write_text(content, encoding="utf-8")
        status, _, err = command("translate", model_folder, "--input", tmp_path / name, *options)
        assert status == 1
        assert err.count("\n") == 1
        return err.replace(str(tmp_path), ".")

    return run


# Tables


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_named_column_is_translated_into_a_new_one(name: str, translate: Translate, translations: list[str]) -> None:
    rows = "".join(f'{number}\t{text}\t"x\n' for number, text in enumerate(TEXTS))
    found = translate(name, f"id\tsource\tnote\r\n{rows}\n", "--source-column", "source").decode()
    expected = [
        f'{number}\t{text}\t"x\t{new}' for number, (text, new) in enumerate(zip(TEXTS, translations, strict=True))
    ]
    assert found == "\n".join(["id\tsource\tnote\ttarget", *expected, "", ""])


def test_a_column_that_is_there_is_replaced(translate: Translate, translations: list[str]) -> None:
    rows = "".join(f"old\t{text}\n" for text in TEXTS)
    found = translate("a.tsv", f"de\ten\n{rows}", "--source-column", "en", "--target-column", "de").decode()
    assert found == "de\ten\n" + "".join(f"{new}\t{text}\n" for text, new in zip(TEXTS, translations, strict=True))


@pytest.mark.parametrize(("target", "place"), [(None, 2), ("3", 2), ("1", 0)])
def test_columns_without_names_have_numbers(
    target: str | None, place: int, translate: Translate, translations: list[str]
) -> None:
    options = () if target is None else ("--target-column", target)
    found = translate("a.tsv", "".join(f"x\t{text}\n" for text in TEXTS), "--source-column", 2, *options).decode()
    rows = [line.split("\t") for line in found.splitlines()]
    assert [row[place] for row in rows] == translations
    assert [row[1] for row in rows] == TEXTS


def test_cells_of_a_csv_file_stay_as_they_are(translate: Translate, translations: list[str], tmp_path: Path) -> None:
    notes = ["a, b", 'say "x"', "two\nlines", ""]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["note", "source"], *zip(notes, TEXTS, strict=True)])
    found = translate("a.csv", (tmp_path / "a.csv").read_bytes(), "--source-column", "source").decode()
    rows = list(csv.reader(found.splitlines(keepends=True)))
    assert rows[0] == ["note", "source", "target"]
    assert rows[1:] == [list(row) for row in zip(notes, TEXTS, translations, strict=True)]


@pytest.mark.parametrize("indent", [None, 1])
def test_fields_of_json_stay_as_they_are(indent: int | None, translate: Translate, translations: list[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"id": number, "text": {"en": text or None, "x": [1.5, None]}} for number, text in enumerate(TEXTS)
    ]
    content = "".join(f"{json.dumps(row)}\n" for row in rows) if indent is None else json.dumps(rows, indent=indent)
    columns = ("--source-column", "text.en", "--target-column", "text.de")
    found = [json.loads(line) for line in translate("a.json", content, *columns).decode().splitlines()]
    for row, translation in zip(rows, translations, strict=True):
        row["text"]["de"] = translation
    assert found == rows


def test_scores_and_more_hypotheses_are_cells_and_rows_or_fields(
    translate: Translate, translations: list[str]
) -> None:
    asked = ("--source-column", "source", "--n-best", 2, "--beam-size", 4, "--scores", "--alignments")
    content = "source\n" + "".join(f"{text}\n" for text in TEXTS if text)
    header, *lines = translate("a.tsv", content, *asked).decode().splitlines()
    assert header == "source\ttarget\tscore\talignment"
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows] == [text for text in TEXTS if text for _ in range(2)]
    assert all(float(best[2]) >= float(second[2]) for best, second in zip(rows[::2], rows[1::2], strict=True))
    objects = translate("a.jsonl", "".join(f'{{"source": "{text}"}}\n' for text in TEXTS if text), *asked)
    found = [json.loads(line) for line in objects.decode().splitlines()]
    assert [one["hypotheses"][1]["text"] for one in found] == [row[1] for row in rows[1::2]]
    assert [one["target"] for one in found] == [row[1] for row in rows[::2]]


def test_what_is_written_can_be_read_for_training(
    translate: Translate, translations: list[str], tmp_path: Path
) -> None:
    translate("a.jsonl", "".join(f'{{"source": "{text}"}}\n' for text in TEXTS), "--source-column", "source")
    pairs = load_parallel(file=tmp_path / "out.a.jsonl", streaming=True)
    assert [(row["source"], row["target"]) for row in pairs] == [
        (text, translation) for text, translation in zip(TEXTS, translations, strict=True) if text
    ]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "a.txt",
            "a\n",
            ("--source-column", "x"),
            "given together with a file that ends in .tsv, .csv",
        ),
        ("a.tsv", "a\tb\n", ("--source-column", "x"), "must name the column 'x', but is ['a', 'b'] instead"),
        ("a.tsv", "a\tb\n", ("--source-column", "3"), "must name the column '3', but is ['a', 'b'] instead"),
        ("a.tsv", "a\tb\n", ("--target-column", "b"), "`target_column` ('b') must be given together with `source_col"),
        (
            "a.tsv",
            "a\tb\n",
            ("--source-column", "1", "--target-column", "4"),
            "`target_column` must be a number from 1 to 3, since `./a.tsv` has 2 columns without names, but is '4'",
        ),
        ("a.tsv", "x\ty\na\n", ("--source-column", "x"), "must have 2 cells as its first line has, but line 2 has 1"),
        (
            "a.jsonl",
            '{"y": 1}\n',
            ("--source-column", "x"),
            "must have the field 'x', but line 1 of `./a.jsonl` has",
        ),
        (
            "a.jsonl",
            '{"x": "a", "y": 1}\n',
            ("--source-column", "x", "--target-column", "y.z"),
            "`target_column` must lead to fields of objects, but 'y' of line 1 of `./a.jsonl` is 1 instead",
        ),
        (
            "a.tsv",
            "x\na\n",
            ("--source-column", "x", "--format", "jsonl"),
            "`--format` must be left out where `./a",
        ),
        (
            "a.txt",
            "a\n",
            ("--source-language", "en"),
            "must be given together with a TMX file, but is 'en' with `./a",
        ),
        ("a.tmx", "<tmx/>", (), "`source_language` must name a language of `./a.tmx`"),
        ("a.tmx", "<tmx/>", ("--source-column", "x"), "`source_column` must be left out with a TMX file, but is 'x'"),
    ],
)
def test_options_that_do_not_fit_the_file_are_one_line(
    name: str, content: str, options: tuple[object, ...], message: str, refused: Callable[..., str]
) -> None:
    assert message in refused(name, content, *options)


# Memories


MEMORY = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationtool="t" srclang="en" segtype="sentence"><note>the header</note></header>
  <body>
    <tu tuid="1"><note>kept</note><tuv xml:lang="en-GB" changedate="20240101T000000Z"><seg>abc</seg></tuv></tu>
    <!-- kept out -->
    <tu tuid="2"><tuv xml:lang="fr"><seg>un</seg></tuv></tu>
    <tu tuid="3">
      <tuv xml:lang="en"><seg>cab<ph x="1">{1}</ph> b</seg></tuv>
      <tuv xml:lang="DE"><seg/></tuv>
    </tu>
    <tu tuid="4"><tuv xml:lang="en"><seg>abc</seg></tuv><tuv xml:lang="de-AT"><seg>schon <bpt>da</bpt></seg></tuv></tu>
    <tu tuid="5"><tuv xml:lang="en"><seg>bb</seg></tuv></tu>
  </body>
</tmx>
"""
UNIT = '<tu><tuv lang="en"><seg>abc</seg></tuv></tu>'
LANGUAGES = ("--source-language", "en", "--target-language", "de")


def segments(unit: ElementTree.Element) -> dict[str, str]:
    return {
        str(variant.get(LANG)): "".join(seg.itertext()) for variant in unit.iter("tuv") for seg in variant.iter("seg")
    }


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", ["a.tmx", "a.TMX.gz"])
def test_targets_of_a_memory_are_filled_in_where_there_are_none(
    name: str, encoding: str, translate: Translate, translations: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hf_seq2seq.inference.documents")
    found = translate(name, MEMORY.encode(encoding), *LANGUAGES)
    root = ElementTree.fromstring(found)
    new = dict(zip(TEXTS, translations, strict=True))
    assert [segments(unit) for unit in root.iter("tu")] == [
        {"en-GB": "abc", "de": new["abc"]},
        {"fr": "un"},
        {"en": "cab{1} b", "DE": new["cab b"]},
        {"en": "abc", "de-AT": "schon da"},
        {"en": "bb", "de": new["bb"]},
    ]
    old = ElementTree.fromstring(MEMORY)
    assert root.attrib == old.attrib
    for kind in ("header", "note"):
        assert [ElementTree.tostring(x).strip() for x in root.iter(kind)] == [
            ElementTree.tostring(x).strip() for x in old.iter(kind)
        ]
    assert [unit.attrib for unit in root.iter("tu")] == [unit.attrib for unit in old.iter("tu")]
    assert b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">' in found
    told = (
        "5 units, of which 1 had a text in 'de', and 1 had none in 'en' or 'de' (languages: en-GB, fr, en, DE, de-AT)."
    )
    assert told in caplog.text


def test_codes_are_read_as_text_where_that_is_asked_for(model_folder: Path, translate: Translate) -> None:
    content = MEMORY.replace("{1}", "&lt;c&amp;")
    root = ElementTree.fromstring(translate("a.tmx", content, *LANGUAGES, "--inline-tags", "keep"))
    [expected] = Translator.from_pretrained(model_folder, device="cpu")(["cab<c& b"], max_new_tokens=4)
    assert segments(list(root.iter("tu"))[2])["DE"] == expected


def test_a_memory_without_units_stays_one(translate: Translate) -> None:
    content = '<tmx version="1.4"><header srclang="en"/><body/></tmx>'
    root = ElementTree.fromstring(translate("a.tmx", content, *LANGUAGES))
    assert [child.tag for child in root] == ["header", "body"]


@pytest.mark.parametrize("option", [("--n-best", 2), ("--scores",), ("--alignments",)])
def test_a_memory_has_no_place_for_more_than_texts(option: tuple[object, ...], refused: Callable[..., str]) -> None:
    error = refused("a.tmx", MEMORY, *LANGUAGES, *option)
    assert error == f"Error: `{option[0]}` must be left out with a TMX file, which has no place for it.\n"


def test_units_before_a_fault_are_kept(refused: Callable[..., str], tmp_path: Path) -> None:
    content = MEMORY.replace('<tu tuid="5">', "<tu>&nbsp;")
    error = refused("a.tmx", content, *LANGUAGES, "--output", tmp_path / "b.tmx")
    assert "`./a.tmx` must use only the entities of XML itself, such as &amp;, but line 14 has &nbsp;." in error
    assert (tmp_path / "b.tmx.unfinished").read_text(encoding="utf-8").count("</tu>") == 4


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.tmx"])
def test_a_document_that_was_killed_goes_on_without_a_second_header(
    name: str, translate: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "a.tsv": "source\n" + "".join(f"{text}x\n" for text in TEXTS * 5),
        "a.jsonl": "".join(f'{{"source": "{text}"}}\n' for text in TEXTS * 5),
        "a.tmx": MEMORY.replace("<body>", f"<body>{UNIT * 20}"),
    }[name]
    options = (*LANGUAGES,) if name == "a.tmx" else ("--source-column", "source")
    undisturbed = translate(name, content, *options)
    assert undisturbed.count(b"source\ttarget") + undisturbed.count(b"<header ") == (name != "a.jsonl")
    translate_lines = Translator.translate_lines
    calls = 0

    def stop(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("the machine was switched off")
        return translate_lines(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate_lines", stop)
        with pytest.raises(AssertionError, match="switched off"):
            translate(name, content, *options)
    assert translate(name, content, *options) == undisturbed
