"""A format is found by its file and needs no list."""

from pathlib import Path

import pytest

from hf_seq2seq import interop
from hf_seq2seq.interop.formats import converters, format_function, format_names


def test_the_files_say_what_the_verbs_and_the_room_offer() -> None:
    assert format_names("import_model") == ["fsmt", "marian"]
    assert format_names("export_model") == ["argos", "ctranslate2", "marian", "onnx", "web"]
    both = ["fsmt", "marian", "marian_cpp"]
    out = ["argos", "ctranslate2", "marian", "marian_cpp", "onnx", "web"]
    assert interop.__all__ == [*(f"from_{name}" for name in both), *(f"to_{name}" for name in out)]


def test_every_name_is_a_function_of_its_file() -> None:
    for name in interop.__all__:
        assert getattr(interop, name).__module__ == f"hf_seq2seq.interop.{name.split('_', 1)[1]}"
    with pytest.raises(AttributeError, match=r"No hf_seq2seq\.interop attribute from_bart"):
        interop.from_bart  # noqa: B018


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bart.py").write_text("def from_bart(path_or_repo):\n    return 1\n")
    (tmp_path / "t5.py").write_text("def import_model(path_or_repo):\n    return 5, None\n")
    monkeypatch.setattr("hf_seq2seq.interop.formats.__file__", str(tmp_path / "formats.py"))
    monkeypatch.setattr("hf_seq2seq.interop.__path__", [str(tmp_path)])
    assert converters() == {"bart": ["from_bart"]}
    assert format_names("import_model") == ["t5"]
    assert format_function("t5", "import_model")("anywhere") == (5, None)
