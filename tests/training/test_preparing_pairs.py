"""The pairs of a run come from every kind of file that its settings name."""

import zipfile
from pathlib import Path

import pytest

from hf_seq2seq.training.arguments import DataArguments
from hf_seq2seq.training.preparing_pairs import load_pairs


UNIT = '<tu><tuv xml:lang="en-GB"><seg>a<ph>{1}</ph></seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>'


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A memory and an archive, each with a pair."""
    memory, archive = tmp_path / "memory.tmx", tmp_path / "de-en.txt.zip"
    memory.write_text(f'<tmx version="1.4"><header/><body>{UNIT}</body></tmx>', encoding="utf-8")
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("c.de-en.en", "x\n")
        members.writestr("c.de-en.de", "y\n")
    return str(memory), str(archive)


@pytest.mark.parametrize(("inline_tags", "source"), [("drop", "a"), ("keep", "a{1}")])
def test_memories_and_archives_are_training_and_validation_pairs(
    inline_tags: str, source: str, files: tuple[str, str]
) -> None:
    """https://github.com/Helsinki-NLP/OPUS-MT-train/issues/67."""
    settings = DataArguments(
        train_file=[*files],
        validation_file=files[0],
        source_language="en",
        target_language="de",
        inline_tags=inline_tags,  # type: ignore[arg-type]
    )
    parts = load_pairs(settings, seed=0)
    assert list(parts["train"]) == [{"source": source, "target": "b"}, {"source": "x", "target": "y"}]
    assert list(parts["validation"]) == [{"source": source, "target": "b"}]


def test_the_languages_are_asked_for_before_anything_is_read(files: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"`source_language` must name a language of `.*memory\.tmx`"):
        DataArguments(train_file=[files[0]])
    with pytest.raises(ValueError, match=r"`target_language` must name a language of `.*de-en\.txt\.zip`"):
        DataArguments(train_source=["a"], train_target=["b"], validation_file=files[1], source_language="en")


def test_languages_without_a_file_that_has_several_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`target_language` must be given together with a TMX or zip file"):
        DataArguments(train_file=["a.tsv"], target_language="de")
