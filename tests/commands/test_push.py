"""The verb `push`: what it says of the files and the card, and what is wrong; over HTTP it is tested in tests/hub."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.hub import publishing
from hf_seq2seq.hub.card import CardFacts
from hf_seq2seq.model import modeling_seq2seq_transformer


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    tiny_model(vocab_size=len(letter_tokenizer), encoder_layers=1, decoder_layers=1).save_pretrained(
        tmp_path / "model"
    )
    letter_tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `hub.push` was asked for, which is not done."""
    asked: list[dict[str, Any]] = []

    def push(folder: Path, repo_id: str, **settings: Any) -> publishing.Publication:
        asked.append({"folder": folder, "repo_id": repo_id, **settings})
        return publishing.Publication(repo_id, f"https://hub/{repo_id}", {"README.md": 999, "a": 1000, "b": 2_500_000})

    monkeypatch.setattr(publishing, "push", push)
    return asked


def test_a_dry_run_lists_what_would_be_sent_where(folder: Path, command: Command) -> None:
    status, out, _ = command("push", folder, "me/m", "--dry-run", "--revision", "v2")
    assert status == 0
    first, *rest = out.splitlines()
    assert first == "This would be uploaded to https://huggingface.co/me/m, branch v2; nothing was sent."
    files = dict(line.split(maxsplit=1) for line in rest[:-2])
    assert files["modeling_seq2seq_transformer.py"].endswith(" kB")
    code = {path.name for path in Path(modeling_seq2seq_transformer.__file__).parent.glob("*_seq2seq_transformer.py")}
    weights_and_words = {"README.md", "config.json", "generation_config.json", "model.safetensors"}
    assert files.keys() - code == weights_and_words | {"tokenizer.json", "tokenizer_config.json"}
    assert files.keys() > code
    assert rest[-2:] == [
        "A card that is there already would be kept, not replaced; give card options to write it anew.",
        "The card says nothing of: languages, licence, data, the data's licence, hardware, intended use, scores on a "
        "test set. See `hf-seq2seq push --help`.",
    ]
    _, out, _ = command("push", folder, "me/m", "--dry-run", "--license", "mit")
    assert "would be kept" not in out
    assert "nothing of: languages, data, the data's licence" in out


def test_the_options_are_the_card_s_and_override_the_file(
    folder: Path, command: Command, pushed: list[dict[str, Any]], tmp_path: Path
) -> None:
    (folder / "model_card.yaml").write_text("license: mit\nhardware: one abacus\nupdates: 3\n")
    (tmp_path / "scores.json").write_text(json.dumps({"bleu": 1.0, "bleu_signature": "x", "comparison": {}}))
    languages = ("--source-language", "en", "--target-language", "de", "--target-language", "fr")
    data = ("--license", "cc0-1.0", "--data", "Letters.", "--data-license", "CC0", "--intended-use", "Fun.")
    scores = ("--scores", tmp_path / "scores.json", "--test-set", "Letters")
    status, out, _ = command("push", folder, "me/m", "--private", *languages, *data, *scores)
    assert status == 0
    (asked,) = pushed
    assert asked == {
        "folder": folder,
        "repo_id": "me/m",
        "private": True,
        "revision": None,
        "dry_run": False,
        "card": CardFacts(
            source_languages=["en"],
            target_languages=["de", "fr"],
            license="cc0-1.0",
            data="Letters.",
            data_license="CC0",
            intended_use="Fun.",
            hardware="one abacus",
            updates=3,
            scores=[{"test_set": "Letters", "bleu": 1.0, "bleu_signature": "x"}],
        ),
    }
    assert out.splitlines() == [
        "Uploaded to https://hub/me/m:",
        "  README.md  999 bytes",
        "  a          1.0 kB",
        "  b          2.5 MB",
        "Translate with it anywhere:",
        "  hf-seq2seq translate me/m",
    ]


def test_without_options_no_card_is_given(folder: Path, command: Command, pushed: list[dict[str, Any]]) -> None:
    (folder / "model_card.yaml").write_text("hardware: one abacus\n")
    status, out, _ = command("push", folder, "me/m")
    assert status == 0
    assert pushed[0]["card"] is None  # so that one that is there is kept
    assert pushed[0]["private"] is None  # as the owner's settings say
    assert "The card says nothing of: languages, licence, data, the data's licence, intended use, scores" in out


def test_the_translate_command_that_is_named_reads_what_was_pushed(
    folder: Path, command: Command, pushed: list[dict[str, Any]]
) -> None:
    _, out, _ = command("push", folder, "me/m", "--revision", "v2")
    assert out.endswith("Translate with it anywhere:\n  hf-seq2seq translate me/m --revision v2\n")


def test_the_updates_of_a_checkpoint_are_known(folder: Path, command: Command, pushed: list[dict[str, Any]]) -> None:
    (folder / "trainer_state.json").write_text('{"global_step": 7, "epoch": 1.5}')
    assert command("push", folder, "me/m", "--license", "mit")[0] == 0
    assert pushed[0]["card"] == CardFacts(license="mit", updates=7, epochs=1.5)
    (folder / "trainer_state.json").write_text('{"global_step": -7, "epoch": 1.5}')
    status, _, err = command("push", folder, "me/m")
    assert status == 1
    assert "trainer_state.json` must be a whole number of at least 0, but is -7 instead." in err


def test_a_readme_is_said_to_be_the_card(folder: Path, command: Command, pushed: list[dict[str, Any]]) -> None:
    (folder / "README.md").write_text("# Mine")
    _, out, _ = command("push", folder, "me/m")
    assert f"The card is {folder / 'README.md'}." in out
    status, _, err = command("push", folder, "me/m", "--license", "mit", "--hardware", "x")
    assert status == 1
    assert "README.md` is the card as it stands, so that what the options say of license, hardware would not be" in err


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        (("--scores", "s.json"), '{"bleu": 1}', "`--test-set` must be given together with `--scores`"),
        (("--test-set", "x"), None, "`--scores` must be given together with `--test-set`"),
        (
            ("--scores", "s.json", "--test-set", "x"),
            "{",
            "must be what `hf-seq2seq evaluate --json` printed, but s.json",
        ),
        (
            ("--scores", "s.json", "--test-set", "x"),
            '{"a": 1}',
            "but s.json holds none of bleu, chrf, ter, ",
        ),
        (("--scores", "s.json", "--test-set", "x"), "[1]", "but s.json holds none of bleu, chrf, ter, "),
        (("--scores", "s.json", "--test-set", "x"), None, "No such file"),
        (
            ("--scores", "s.json", "--test-set", "x"),
            '{"bleu": NaN}',
            "Error: `bleu` of `scores` in `s.json` must be a finite number of at least 0, but is nan instead.",
        ),
        (
            ("--scores", "s.json", "--test-set", "x"),
            '{"bleu": 1, "num_sentences": "12"}',
            "`num_sentences` of `scores` in `s.json` must be a whole number of at least 0, but is '12' instead.",
        ),
    ],
)
def test_scores_that_cannot_be_told_are_named(
    options: tuple[str, ...],
    content: str | None,
    message: str,
    folder: Path,
    command: Command,
    pushed: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("s.json").write_text(content)
    status, _, err = command("push", folder, "me/m", *options)
    assert status == 1
    assert message in err
    assert pushed == []


def test_a_wrong_fact_in_the_folder_s_file_is_named(folder: Path, command: Command) -> None:
    (folder / "model_card.yaml").write_text("licence: mit\n")
    status, _, err = command("push", folder, "me/m", "--dry-run")
    assert status == 1
    assert "Error: `licence` in `" in err
    assert err.count("\n") == 1


def test_a_folder_that_is_missing_is_named(command: Command, tmp_path: Path) -> None:
    status, _, err = command("push", tmp_path / "missing", "me/m", "--dry-run")
    assert status == 1
    assert err == f"Error: `{tmp_path}/missing` must be a model's folder, but there is none. Check the path.\n"
