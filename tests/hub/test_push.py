"""Publishing over HTTP, to a server that speaks as the Hub does, and loading from there."""

import json
import logging
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.fresh_process import run_python
from hub.server import READ_TOKEN, STRANGER_TOKEN, TOKEN, LocalHub
from hub.test_publishing import CODE, PUBLISHED
from huggingface_hub import ModelCard, model_info
from reference.tiny_models import tiny_model
from reference.tiny_runs import command_line, tiny_settings
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.hub import CardFacts, push, save_for_hub
from hf_seq2seq.loading import load_model
from hf_seq2seq.training import parse_arguments, run_training


Command = Callable[..., tuple[int, str, str]]

REPO = "tester/letters"
GIT = {".gitattributes"}


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Any:
    return tiny_model(vocab_size=len(letter_tokenizer))


@pytest.fixture
def folder(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """A run's folder: the model, and what must not be published."""
    folder = tmp_path / "run"
    model.save_pretrained(folder)
    letter_tokenizer.save_pretrained(folder)
    (folder / "model_card.yaml").write_text("license: mit\nsource_languages: [en]\n")
    others = (".lock", "training_args.bin", "training_settings.json", "optimizer.pt", "train.en", "notes.md", ".env")
    for name in (*others, "checkpoint-1/optimizer.pt", "checkpoint-1/model.safetensors", "runs/events"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    return folder


def state_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def assert_names_no_token(*texts: str) -> None:
    for token in (TOKEN, READ_TOKEN, STRANGER_TOKEN, "hf_wrong", "hf_wröng", "\\xf6"):
        assert not any(token in text for text in texts)


def test_the_command_publishes_a_model_that_translates_by_its_name(
    folder: Path,
    model: Any,
    letter_tokenizer: PreTrainedTokenizerFast,
    hub_in_process: LocalHub,
    command: Command,
    tmp_path: Path,
) -> None:
    before = state_of(folder)
    status, out, err = command("push", folder, REPO, "--private", "--target-language", "de")
    assert status == 0, err
    assert state_of(folder) == before
    assert out.startswith(f"Uploaded to {hub_in_process.url}/{REPO}:\n  README.md ")
    assert "The card says nothing of: data, the data's licence, hardware, intended use, scores on" in out
    assert "  hf-seq2seq translate tester/letters\n" in out
    assert_names_no_token(out, err)

    assert hub_in_process.repositories["model", REPO].private
    sent = hub_in_process.files(REPO)
    assert sent.keys() == PUBLISHED | GIT
    assert sent["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert not any(b"secret" in content for content in sent.values())
    data: Any = ModelCard(sent["README.md"].decode()).data
    assert (data.license, data.language) == ("mit", ["en", "de"])

    (tmp_path / "text").write_text("a b c\n")
    status, out, err = command("translate", REPO, "--input", tmp_path / "text")
    assert status == 0, err
    assert out.rstrip("\n") == Translator(model, letter_tokenizer)("a b c")
    assert hub_in_process.unknown == []


def run_in_process(example: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs an example that imports the package, and returns what it prints."""
    capsys.readouterr()
    exec(example, {})
    return capsys.readouterr().out


@pytest.mark.parametrize("package", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_examples_of_a_card_run_as_they_stand(
    package: bool,
    folder: Path,
    model: Any,
    letter_tokenizer: PreTrainedTokenizerFast,
    hub_in_process: LocalHub,
    capsys: pytest.CaptureFixture[str],
) -> None:
    push(folder, REPO, card=CardFacts(examples=[["a b", "c", "d"]]))
    card = hub_in_process.files(REPO)["README.md"].decode()
    alone, with_package = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    generated = model.generate(**letter_tokenizer(["a b"], return_tensors="pt"))
    expected = letter_tokenizer.batch_decode(generated, skip_special_tokens=True)
    printed = run_in_process(alone, capsys) if package else run_python(alone, package=False).stdout
    assert printed == f"{expected}\n"
    assert run_in_process(with_package, capsys) == f"{Translator(model, letter_tokenizer)(['a b'])}\n"


@pytest.mark.slow
def test_the_example_without_the_package_of_the_page_on_publishing_runs(
    folder: Path, model: Any, letter_tokenizer: PreTrainedTokenizerFast, hub_in_process: LocalHub
) -> None:
    push(folder, REPO)
    page = (Path(__file__).parents[2] / "docs" / "publishing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n([^`]*trust_remote_code[^`]*)```", page)
    generated = model.generate(**letter_tokenizer(["A dog runs."], return_tensors="pt"))
    expected = letter_tokenizer.batch_decode(generated, skip_special_tokens=True)
    assert run_python(example.replace("YOU/my-model", REPO), package=False).stdout == f"{expected}\n"


def test_a_dry_run_asks_the_hub_nothing(folder: Path, hub_in_process: LocalHub) -> None:
    published = push(folder, REPO, dry_run=True)
    assert published.files.keys() == PUBLISHED
    assert published.files["model.safetensors"] == (folder / "model.safetensors").stat().st_size
    assert published.url == f"{hub_in_process.url}/{REPO}"
    assert hub_in_process.requests == []


def test_a_name_alone_is_one_s_own_repository(folder: Path, hub_in_process: LocalHub) -> None:
    assert push(folder, "letters").repo_id == REPO
    assert 'Translator.from_pretrained("tester/letters")' in hub_in_process.files(REPO)["README.md"].decode()


def test_a_second_push_sends_what_has_changed(folder: Path, hub_in_process: LocalHub) -> None:
    push(folder, REPO)
    first = hub_in_process.repositories["model", REPO].branches["main"].sha
    hub_in_process.requests.clear()
    push(folder, REPO)
    assert hub_in_process.repositories["model", REPO].branches["main"].sha == first
    push(folder, REPO, card=CardFacts(license="apache-2.0"))
    assert b"license: apache-2.0" in hub_in_process.files(REPO)["README.md"]
    assert hub_in_process.asked("PUT", "/storage/") == []


def test_a_card_that_the_repository_has_is_kept_until_another_is_asked_for(
    folder: Path, letter_tokenizer: PreTrainedTokenizerFast, hub_in_process: LocalHub
) -> None:
    push(folder, REPO, card=CardFacts(license="apache-2.0"))
    card = hub_in_process.files(REPO)["README.md"]
    tiny_model(1, vocab_size=len(letter_tokenizer)).save_pretrained(folder)
    assert push(folder, REPO).files.keys() == PUBLISHED - {"README.md"}
    sent = hub_in_process.files(REPO)
    assert sent["README.md"] == card
    assert sent["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert "README.md" not in push(folder, REPO, revision="v2").files  # a new branch begins with main's card
    assert push(folder, REPO, card=CardFacts(license="mit"), revision="v2").files.keys() == PUBLISHED
    assert b"license: mit" in hub_in_process.files(REPO, "v2")["README.md"]
    push(folder, REPO, revision="v2")
    assert b"license: mit" in hub_in_process.files(REPO, "v2")["README.md"]
    assert hub_in_process.files(REPO)["README.md"] == card
    (folder / "README.md").write_text("# Mine\n")
    assert push(folder, REPO).files.keys() == PUBLISHED
    assert hub_in_process.files(REPO)["README.md"] == b"# Mine\n"


def test_a_second_command_without_options_keeps_the_card(
    folder: Path, hub_in_process: LocalHub, command: Command
) -> None:
    assert command("push", folder, REPO, "--license", "apache-2.0")[0] == 0
    card = hub_in_process.files(REPO)["README.md"]
    assert b"license: apache-2.0" in card
    status, out, err = command("push", folder, REPO)
    assert status == 0, err
    assert "The card there is kept; give card options to write it anew.\n" in out
    assert "README.md" not in out
    assert hub_in_process.files(REPO)["README.md"] == card


def test_a_readme_in_the_folder_is_the_card(folder: Path, hub_in_process: LocalHub) -> None:
    (folder / "README.md").write_text("# Mine\n")
    push(folder, REPO)
    assert hub_in_process.files(REPO)["README.md"] == b"# Mine\n"


def test_a_file_of_the_machine_that_a_link_leads_to_is_not_sent(
    folder: Path, tmp_path: Path, hub_in_process: LocalHub
) -> None:
    (tmp_path / "secret").write_text("# Mine alone\n")
    (folder / "README.md").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"README\.md` must be a file in `.*run`, but is one outside of it, .*secret"):
        push(folder, REPO)
    assert not hub_in_process.requests


def test_a_revision_is_pushed_and_loaded(
    folder: Path, letter_tokenizer: PreTrainedTokenizerFast, hub_in_process: LocalHub
) -> None:
    push(folder, REPO)
    other = tiny_model(1, vocab_size=len(letter_tokenizer))
    other.save_pretrained(folder)
    other_tokenizer = deepcopy(letter_tokenizer)
    other_tokenizer.model_max_length = 77
    other_tokenizer.save_pretrained(folder)
    push(folder, REPO, revision="v2")
    assert hub_in_process.files(REPO) != hub_in_process.files(REPO, "v2")
    weight = "lm_head.weight"
    for revision, expected in (("v2", other), (None, tiny_model(vocab_size=len(letter_tokenizer)))):
        translator = Translator.from_pretrained(REPO, revision=revision, device="cpu")
        assert torch.equal(translator.model.state_dict()[weight], expected.state_dict()[weight])
        is_other = translator.tokenizer.model_max_length == 77
        assert is_other == (revision == "v2")
    with pytest.raises(OSError, match=r"`tester/letters` must be .* the Hub did not give it at revision 'v3' \("):
        load_model(REPO, revision="v3")


@pytest.mark.parametrize("revision", ["", " ", "refs/pr/1"])
@pytest.mark.parametrize("is_dry", [True, False])
def test_what_is_no_branch_is_refused(revision: str, is_dry: bool, folder: Path, hub_in_process: LocalHub) -> None:
    with pytest.raises(ValueError, match=rf"^`revision` must be the name of a branch, .* but is '{revision}' instead"):
        push(folder, REPO, revision=revision, dry_run=is_dry)
    assert hub_in_process.requests == []


@pytest.mark.parametrize(
    ("token", "repo_id", "message"),
    [
        ("hf_wrong", REPO, r"Writing to `tester/letters` needs a token that the Hub accepts.*Run `hf auth login`"),
        (READ_TOKEN, REPO, r"`tester/letters` must be a repository that your token may write to, but the Hub refuses"),
        (STRANGER_TOKEN, REPO, r"`tester/letters` must be a repository that your token may write to"),
        (TOKEN, "a b/c", r"`repo_id` must be NAME or OWNER/NAME, .* but is 'a b/c' instead\."),
        ("hf_wrong", "letters", r"Writing to `letters` needs a token that the Hub accepts"),
        ("hf_wröng", REPO, r"^The token must be ASCII, but has other characters\. Run `hf auth login`"),
        ("hf_wröng", "letters", r"^The token must be ASCII, but has other characters"),
    ],
)
def test_who_may_not_write_is_told_what_to_do(
    token: str, repo_id: str, message: str, folder: Path, hub_in_process: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    before = state_of(folder)
    with pytest.raises((OSError, ValueError), match=message) as caught:
        push(folder, repo_id)
    assert_names_no_token(str(caught.value))
    assert "\n" not in str(caught.value)
    assert state_of(folder) == before
    assert ("model", REPO) not in hub_in_process.repositories


def test_without_a_token_the_command_ends_with_one_line(
    folder: Path, hub_in_process: LocalHub, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    status, out, err = command("push", folder, REPO)
    assert (status, out) == (1, "")
    assert err.startswith("Error: Writing to `tester/letters` needs a token that the Hub accepts")
    assert err.count("\n") == 1


def cut_upload(hub: LocalHub) -> None:
    hub.fail("PUT", "/storage/", times=None, cut_request=1000)


def cut_commit(hub: LocalHub) -> None:
    hub.fail("POST", "/commit/", cut_request=1000)


def cut_answer(hub: LocalHub) -> None:
    """The commit is made, but nobody is told."""
    hub.fail("POST", "/commit/", loses_answer=True)


def busy(hub: LocalHub) -> None:
    hub.fail("POST", "/preupload/", times=None, status=429, retry_after=0)


def busy_at_once(hub: LocalHub) -> None:
    hub.fail("POST", "/api/repos/create", status=429, retry_after=0)


def broken(hub: LocalHub) -> None:
    hub.fail("POST", "/commit/", status=500)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            cut_upload,
            r"The connection to the Hub must last, but broke off \(\w+Error: .*\)\. Run the same command again",
        ),
        (
            cut_commit,
            r"The connection to the Hub must last, but broke off \(\w+Error: .*\)\. Run the same command again",
        ),
        (
            cut_answer,
            r"The connection to the Hub must last, but broke off \(\w+Error: .*\)\. Run the same command again",
        ),
        (busy, r"The Hub must not be asked so often for now, .* \(429\)\. Wait a while\. Run the same command again"),
        (busy_at_once, r"The Hub must not be asked so often for now, .* \(429\)\. Wait a while\."),
        (broken, r"The Hub must answer, but failed \(500\) with `tester/letters`\. Run the same command again"),
    ],
)
def test_a_push_that_broke_off_leaves_the_folder_alone_and_is_completed_by_another(
    fault: Callable[[LocalHub], None],
    message: str,
    folder: Path,
    hub_in_process: LocalHub,
    waits: list[float],
) -> None:
    before = state_of(folder)
    fault(hub_in_process)
    with pytest.raises(OSError, match=message) as caught:
        push(folder, REPO)
    assert_names_no_token(str(caught.value))
    assert "http" not in str(caught.value)
    assert state_of(folder) == before
    hub_in_process.heal()
    push(folder, REPO)
    assert hub_in_process.files(REPO).keys() == PUBLISHED | GIT
    assert state_of(folder) == before


def test_weights_that_have_arrived_are_not_sent_again(folder: Path, hub_in_process: LocalHub) -> None:
    broken(hub_in_process)
    with pytest.raises(OSError, match="failed"):
        push(folder, REPO)
    assert len(hub_in_process.asked("PUT", "/storage/")) == 1
    push(folder, REPO)
    assert len(hub_in_process.asked("PUT", "/storage/")) == 1


@pytest.mark.parametrize("status", [429, 500])
def test_a_fault_that_passes_is_not_told(
    status: int, folder: Path, hub_in_process: LocalHub, waits: list[float]
) -> None:
    hub_in_process.fail("POST", "/preupload/", status=status)
    push(folder, REPO)
    assert waits
    assert hub_in_process.files(REPO).keys() == PUBLISHED | GIT


def test_offline_is_said(folder: Path, hub_in_process: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"The Hub must be reachable, but HF_HUB_OFFLINE says not to use the network\."):
        push(folder, REPO)


def test_a_card_that_the_hub_does_not_take_is_told_in_its_words(folder: Path, hub_in_process: LocalHub) -> None:
    (folder / "README.md").write_text("---\nmodel-index: 0\n---\n# Mine\n")
    with pytest.raises((OSError, ValueError), match=r"[Ii]nvalid|refuses"):
        push(folder, REPO)


@pytest.mark.parametrize("is_dry", [True, False])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"---\nlicense: [\n---\n# Mine\n", "while parsing a flow"),
        (b"---\n- mit\n---\n# Mine\n", "should be a dict"),
        (b"---\nlicense: mit\n---\n# Mein \xe4\n", "can't decode byte 0xe4"),
    ],
)
def test_a_file_that_is_no_card_is_named_before_anything_is_sent(
    content: bytes, reason: str, is_dry: bool, folder: Path, hub_in_process: LocalHub
) -> None:
    (folder / "README.md").write_bytes(content)
    with pytest.raises(ValueError, match=r"/README.md` must be a model card, UTF-8 text with valid YAML ") as caught:
        push(folder, REPO, dry_run=is_dry)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert hub_in_process.requests == []


def test_what_is_to_be_private_is_not_sent_to_a_public_repository(folder: Path, hub_in_process: LocalHub) -> None:
    hub_in_process.add_repository(REPO, {})
    with pytest.raises(
        ValueError, match=r"`tester/letters` must be private as was asked, but is a public repository\."
    ):
        push(folder, REPO, private=True)
    assert hub_in_process.files(REPO).keys() <= GIT


def test_a_folder_that_is_no_model_reaches_no_hub(tmp_path: Path, hub_in_process: LocalHub) -> None:
    with pytest.raises(FileNotFoundError, match=r"`.*missing` must be a model's folder, but there is none\. Check"):
        push(tmp_path / "missing", REPO)
    with pytest.raises(FileNotFoundError, match=r"`.*` must be a model's folder, with config.json"):
        push(tmp_path, REPO)
    assert hub_in_process.requests == []


# The model's own push_to_hub


def test_a_model_pushes_itself_with_code_and_card(
    model: Any, letter_tokenizer: PreTrainedTokenizerFast, hub_in_process: LocalHub, tmp_path: Path
) -> None:
    model.push_to_hub(REPO, tags=["letters"])
    letter_tokenizer.push_to_hub(REPO)
    sent = hub_in_process.files(REPO)
    assert sent.keys() == PUBLISHED | GIT
    card = sent["README.md"].decode()
    assert "the Transformer of [Vaswani et al. (2017)]" in card
    assert ModelCard(card).data.to_dict()["tags"] == ["hf_seq2seq", "seq2seq_transformer", "letters"]
    assert not model.carries_code
    save_for_hub(model, letter_tokenizer, tmp_path / "published")
    for name in PUBLISHED - {"README.md"}:
        assert sent[name] == (tmp_path / "published" / name).read_bytes(), name


def test_a_card_that_a_repository_has_is_kept(model: Any, hub_in_process: LocalHub) -> None:
    hub_in_process.add_repository(REPO, {"README.md": b"# Mine\n"})
    model.push_to_hub(REPO)
    assert hub_in_process.files(REPO)["README.md"].endswith(b"# Mine\n")
    assert hub_in_process.files(REPO).keys() >= CODE


def test_saving_with_push_to_hub_carries_code_and_card(model: Any, hub_in_process: LocalHub, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "letters", push_to_hub=True, repo_id=REPO)
    sent = hub_in_process.files(REPO)
    assert sent.keys() >= CODE | {"README.md", "model.safetensors"}
    assert "auto_map" in json.loads(sent["config.json"])
    assert b"the Transformer of [Vaswani et al. (2017)]" in sent["README.md"]


# The trainer


def train(folder: Path, **settings: object) -> None:
    given = tiny_settings(folder) | {"output_dir": str(folder / "out"), "push_to_hub": True, "hub_model_id": REPO}
    run_training(*parse_arguments(command_line(given | settings)))


def test_a_run_publishes_its_model_with_code_and_card(tmp_path: Path, hub_in_process: LocalHub) -> None:
    train(tmp_path, hub_private_repo=True)
    assert hub_in_process.repositories["model", REPO].private
    sent = hub_in_process.files(REPO)
    assert sent.keys() == PUBLISHED | GIT
    assert sent["model.safetensors"] == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert not (tmp_path / "out" / "README.md").exists()
    assert not CODE & {path.name for path in (tmp_path / "out").iterdir()}
    card = sent["README.md"].decode()
    assert "6 updates (1.20 epochs) on 60 pairs in " in card
    assert "hf-seq2seq train --tokenizer_kind char" in card
    assert "| `learning_rate` | 0.01 |" in card
    (bleu,) = [one for one in model_info(REPO).card_data.eval_results or [] if one.metric_type == "bleu"]  # type: ignore[union-attr]
    assert bleu.dataset_split == "validation"
    assert str(tmp_path) not in card
    newest = next(hub_in_process.repositories["model", REPO].branches["main"].history())
    assert newest.title == "End of training"


@pytest.mark.parametrize(
    ("strategy", "extra"), [("end", set()), ("checkpoint", {"last-checkpoint"}), ("all_checkpoints", {"checkpoint-6"})]
)
def test_a_run_publishes_as_its_strategy_says(
    strategy: str, extra: set[str], tmp_path: Path, hub_in_process: LocalHub
) -> None:
    train(tmp_path, hub_strategy=strategy, hub_always_push=True, hub_token=TOKEN)
    sent = hub_in_process.files(REPO)
    assert not any("training_args.bin" in name for name in sent)
    saved = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in content for content in (*sent.values(), *saved))
    roots = {name.split("/")[0] for name in hub_in_process.files(REPO)}
    assert roots - PUBLISHED - GIT - {"checkpoint-3"} == extra


def test_publishing_changes_nothing_in_a_run(tmp_path: Path, hub_in_process: LocalHub) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    train(tmp_path / "a", hub_always_push=True)
    train(tmp_path / "b", push_to_hub=False)
    for file in ("model.safetensors", "config.json", "generation_config.json"):
        a, b = ((tmp_path / name / "out" / file).read_bytes() for name in "ab")
        assert a == b, file


def test_a_checkpoint_that_cannot_be_sent_is_told_and_training_goes_on(
    tmp_path: Path, hub_in_process: LocalHub, caplog: pytest.LogCaptureFixture
) -> None:
    hub_in_process.fail("POST", "/commit/", status=500)
    with caplog.at_level(logging.WARNING, logger="hf_seq2seq"):
        train(tmp_path)
    assert "A checkpoint was not sent to the Hub: The Hub must answer, but failed (500)" in caplog.text
    assert hub_in_process.files(REPO).keys() == PUBLISHED | GIT


def test_a_trained_model_that_cannot_be_sent_is_kept_and_its_way_out_works(
    tmp_path: Path, hub_in_process: LocalHub
) -> None:
    hub_in_process.fail("POST", "/commit/", status=500)
    with pytest.raises(
        OSError, match=r"failed \(500\) .* The model is saved: `hf-seq2seq push .*` publishes it"
    ) as caught:
        train(tmp_path, hub_strategy="end")
    (words,) = re.findall("`hf-seq2seq push (.*?) (.*?)`", str(caught.value))
    push(*words)
    assert hub_in_process.files(REPO).keys() == PUBLISHED | GIT
    assert "| `learning_rate` | 0.01 |" in hub_in_process.files(REPO)["README.md"].decode()


def test_a_run_without_the_right_token_ends_before_it_trains(
    tmp_path: Path, hub_in_process: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(OSError, match=r"Writing to `tester/letters` needs a token that the Hub accepts"):
        train(tmp_path)
    assert not (tmp_path / "out" / "model.safetensors").exists()


# A data set of the Hub


def test_a_model_is_trained_on_a_data_set_of_the_hub(
    hub_in_process: LocalHub, command: Command, tmp_path: Path
) -> None:
    rows = [f'{{"translation": {{"en": "one {word}", "de": "eins {word}"}}}}' for word in "abcdefgh"]
    hub_in_process.add_repository(
        "tester/numbers",
        {"train.jsonl": "\n".join(rows).encode(), "validation.jsonl": "\n".join(rows[:2]).encode()},
        repo_type="dataset",
        private=True,
    )
    tiny = ("--d_model=16", "--encoder_layers=1", "--decoder_layers=1", "--vocab_size=280", "--max_steps=1")
    columns = ("--source_column", "translation.en", "--target_column", "translation.de")
    name = ("--dataset_name", "tester/numbers", "--validation_split", "validation")
    status, out, err = command("train", *name, *columns, "--output_dir", tmp_path / "out", *tiny)
    assert status == 0, err
    assert "On 2 of 2 validation pairs:" in out
    assert "datasets:\n- tester/numbers\n" in (tmp_path / "out" / "model_card.yaml").read_text()
    assert_names_no_token(out, err, *(t.decode(errors="replace") for _, t in state_of(tmp_path / "out").values()))
