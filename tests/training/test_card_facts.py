"""What a run tells for its model card: its command, settings, data, scores and progress."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from datasets import Dataset
from reference.tiny_runs import command_line, tiny_settings

from hf_seq2seq.hub.card import CardFacts, read_facts
from hf_seq2seq.training import parse_arguments, run_training
from hf_seq2seq.training.card_facts import (
    describe_command,
    describe_data,
    describe_hyperparameters,
    describe_progress,
    describe_scores,
)


def parse(*arguments: str) -> Any:
    return parse_arguments(["--output_dir", "out", *arguments])


FILES = ("--train_source", "a", "--train_target", "b")


@pytest.mark.parametrize(
    "arguments",
    [
        FILES,
        (*FILES, "--max_steps", "7", "--preset", "C-N2", "--dropout", "0.2", "--vocab_size", "99", "--fp16", "false"),
        (*FILES, "--validation_source", "c d", "--validation_target", "e", "--early_stopping_patience", "3"),
        (*FILES, "--tokens_per_batch", "100", "--tokens_per_update", "900", "--paper_schedule", "--r_drop_alpha", "1"),
        ("--train_file", "x.tsv", "y.tsv", "--corpus_weights", "1", "2.5", "--drop_duplicates", "--bpe_dropout=0.1"),
        ("--dataset_name", "me/x", "--source_column", "t.en", "--model_name_or_path", "me/m", "--learning_rate=0.1"),
        (*FILES, "--lr_scheduler_type", "cosine_with_min_lr", "--lr_scheduler_kwargs", '{"min_lr": 0.001}'),
        (*FILES, "--average_checkpoints", "7", "--save_steps", "0.25", "--attention_bias"),
    ],
)
def test_the_command_gives_the_same_settings(arguments: tuple[str, ...]) -> None:
    parsed = parse(*arguments)
    program, verb, *words = shlex.split(describe_command(*parsed).replace("\\\n", " "))
    assert (program, verb) == ("hf-seq2seq", "train")
    again = parse_arguments(words)
    assert [vars(args) for args in parsed[:2]] == [vars(args) for args in again[:2]]
    assert parsed[2].to_dict() == again[2].to_dict()


def test_the_command_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "out").mkdir()
    given = {"train_source": f"{tmp_path}/a.en", "train_target": f"{tmp_path}/a.de", "output_dir": f"{tmp_path}/out"}
    others = {"hub_token": "hf_secret", "push_to_hub": "true", "logging_steps": "7", "run_name": "mine"}
    command = describe_command(*parse_arguments(command_line(given | others)))
    assert command == "hf-seq2seq train --train_source a.en --train_target a.de --output_dir out"


def test_a_long_command_goes_over_several_lines() -> None:
    command = describe_command(*parse(*FILES, "--tokenizer", "x" * 60, "--preset", "big", "--source_column", "y" * 60))
    lines = command.split("\n")
    assert len(lines) == 3
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(line.startswith("    --") for line in lines[1:])


def test_settings_that_are_replaced_or_off_are_no_hyperparameters() -> None:
    _, _, args = parse(*FILES, "--paper_schedule", "--tokens_per_batch", "100")
    found = describe_hyperparameters(args)
    assert found["paper_schedule"] is True
    assert found["tokens_per_batch"] == 100
    assert found["warmup_steps"] == 4000
    assert found["optim"] == str(args.optim.value)
    for name in ("learning_rate", "lr_scheduler_type", "per_device_train_batch_size", "bf16"):
        assert name not in found


@pytest.mark.parametrize(("name", "datasets"), [("me/x", ["me/x"]), (".", [])])
def test_a_data_set_of_the_hub_is_named_and_a_folder_is_not(name: str, datasets: list[str]) -> None:
    _, data_args, _ = parse("--dataset_name", name)
    facts = describe_data(data_args, Dataset.from_dict({"labels": [[1, 2], [3]]}))
    assert facts == CardFacts(datasets=datasets, num_pairs=2, num_target_tokens=3)


def test_the_scores_of_a_run_say_what_they_are_of() -> None:
    assert describe_scores({"num_steps": 3}) == []
    results = {"num_scored_pairs": 5, "num_validation_pairs": 12, "bleu": 1.0, "bleu_signature": "x", "num_steps": 3}
    (scores,) = describe_scores(results)
    assert scores == {
        "test_set": "Validation pairs",
        "split": "validation",
        "num_sentences": 5,
        "note": "the first of 12",
        "bleu": 1.0,
        "bleu_signature": "x",
    }
    assert "note" not in describe_scores(results | {"num_scored_pairs": 12})[0]


def test_progress_that_is_not_known_is_left_out() -> None:
    facts = CardFacts(num_target_tokens=100)
    found = describe_progress(facts, 9, 1.5, 10.0)
    assert (found.updates, found.epochs, found.seconds, found.target_tokens_per_second) == (9, 1.5, 10.0, 15.0)
    assert describe_progress(facts, 9, 1.5, None).target_tokens_per_second is None
    assert describe_progress(CardFacts(), 9, 1.5, 10.0).target_tokens_per_second is None


def test_a_run_leaves_the_facts_of_its_card_in_its_folder(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path) | {"output_dir": str(tmp_path / "out")}
    results = run_training(*parse_arguments(command_line(settings)))
    facts = read_facts(tmp_path / "out" / "model_card.yaml")
    assert (facts.updates, facts.num_pairs, facts.scores[0]["chrf"]) == (6, 60, results["chrf"])
    assert facts.seconds is not None
    assert facts.versions["transformers"] == transformers.__version__
    assert facts.hyperparameters["learning_rate"] == 0.01
    assert facts.command is not None
    assert "--train_source train.source " in facts.command


def test_a_run_that_went_on_after_a_break_does_not_know_its_time(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path) | {"output_dir": str(tmp_path / "out")}
    run_training(*parse_arguments(command_line(settings)))
    for name in ("training_results.json", "model_card.yaml"):
        (tmp_path / "out" / name).unlink()
    shutil.rmtree(tmp_path / "out" / "checkpoint-6")
    run_training(*parse_arguments(command_line(settings)))
    facts = read_facts(tmp_path / "out" / "model_card.yaml")
    assert (facts.updates, facts.seconds) == (6, None)


def test_mixed_precision_that_the_launcher_was_asked_for_is_a_hyperparameter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bf16" not in describe_hyperparameters(parse(*FILES).training)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # as `accelerate launch --mixed_precision bf16` does
    assert describe_hyperparameters(parse(*FILES).training)["bf16"] is True
