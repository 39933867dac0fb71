"""The verb `tokenizer`."""

import gzip
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from hf_seq2seq import train_tokenizer


Command = Callable[..., tuple[int, str, str]]

EN = ["How many people live here?", "Not many people do."] * 5
DE = ["Wie viele Menschen leben hier?", "Nicht viele tun das."] * 5


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "train.en").write_text("\n".join(["", *EN]) + "\n", encoding="utf-8")
    with gzip.open(tmp_path / "train.de.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(DE) + "\n")
    return tmp_path / "train.en", tmp_path / "train.de.gz"


@pytest.mark.parametrize("is_repeated", [False, True])
def test_both_ways_to_name_several_files_train_on_all_of_them(
    is_repeated: bool, files: tuple[Path, Path], tmp_path: Path, command: Command
) -> None:
    inputs = ["--input", files[0], "--input", files[1]] if is_repeated else ["--input", *files]
    status, out, _ = command("tokenizer", *inputs, "--vocab-size", 300, "--output", tmp_path / "tok")
    assert status == 0
    assert "a bpe tokenizer with 300 tokens, trained on 2 file(s)" in out
    expected = train_tokenizer(iter([*EN, *DE]), vocab_size=300)
    assert AutoTokenizer.from_pretrained(tmp_path / "tok").get_vocab() == expected.get_vocab()


def test_it_shows_the_first_line_with_text_encoded(files: tuple[Path, Path], tmp_path: Path, command: Command) -> None:
    _, out, _ = command("tokenizer", "--input", files[0], "--kind", "word", "--output", tmp_path / "tok")
    ids = AutoTokenizer.from_pretrained(tmp_path / "tok").encode(EN[0])
    assert out.splitlines()[1:] == [
        "text:   How many people live here?",
        "tokens: How|many|people|live|here?|</s>",
        f"ids:    {' '.join(map(str, ids))}",
    ]


def test_kind_and_extra_tokens_reach_the_tokenizer(files: tuple[Path, Path], tmp_path: Path, command: Command) -> None:
    extra = ["--extra-token", ">>de<<", "--extra-token", ">>fr<<"]
    command("tokenizer", "--input", *files, "--kind", "char", *extra, "--output", tmp_path / "tok")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tok")
    assert tokenizer.tokenize(">>de<<many>>fr<<") == [">>de<<", *"many", ">>fr<<"]


def test_an_earlier_tokenizer_is_replaced(files: tuple[Path, Path], tmp_path: Path, command: Command) -> None:
    for vocab_size in (290, 300):
        status, _, _ = command("tokenizer", "--input", *files, "--vocab-size", vocab_size, "--output", tmp_path / "t")
        assert status == 0
    assert len(AutoTokenizer.from_pretrained(tmp_path / "t")) == 300


def test_a_folder_of_other_things_is_left_alone(files: tuple[Path, Path], tmp_path: Path, command: Command) -> None:
    """That of a trained model holds a tokenizer, too, which the model needs as it is."""
    train_tokenizer(iter(EN), vocab_size=280).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").touch()
    before = (tmp_path / "model" / "tokenizer.json").read_bytes()
    status, out, err = command("tokenizer", "--input", *files, "--output", tmp_path / "model")
    assert (status, out) == (1, "")
    assert err == (
        "Error: `--output` must be a new or empty folder or that of a tokenizer, but "
        f"{tmp_path / 'model'} holds 'model.safetensors'. Name another folder.\n"
    )
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "tok"], "`--input` must name at least one text file, but is missing."),
        (["--input", "train.en", "missing.de", "--output", "tok"], "`missing.de` must be a file, but does not exist."),
        (["--input", "train.en", "--output", "train.en"], "`--output` must be a folder, but train.en is a file"),
        (["--input", "train.en", "--output", "tok", "--vocab-size", "9"], "`vocab_size` must be at least 260"),
    ],
)
def test_a_wrong_argument_is_one_line_and_writes_nothing(
    arguments: list[str],
    message: str,
    files: tuple[Path, Path],
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, err = command("tokenizer", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: {message}")
    assert err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_leaves_the_earlier_tokenizer(files: tuple[Path, Path], tmp_path: Path, command: Command) -> None:
    output = tmp_path / "tok"
    command("tokenizer", "--input", *files, "--vocab-size", 290, "--output", output)
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # the largest file, in bytes
    try:
        status, _, err = command("tokenizer", "--input", *files, "--vocab-size", 300, "--output", output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1
    assert f"Error: `{output}` must be written whole, but could not be" in err
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
