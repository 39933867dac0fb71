"""The table of runs has a row for each, with what its files tell; a run that was stopped has one too."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import yaml
from reference.tiny_models import tiny_model
from transformers import TrainerState

from scripts.reproduce.tabulate_multi30k import describe_run, main


def make_run(folder: Path, *, is_finished: bool) -> Path:
    """A run of 12 epochs with 100 target tokens each, an evaluation after each, and rates of 10 and 40 a second."""
    checkpoint = folder / "model" / "checkpoint-24"
    tiny_model().save_pretrained(checkpoint)
    state = TrainerState(epoch=12.0, global_step=24)
    state.log_history = [{"epoch": float(epoch), "eval_bleu": epoch + 0.126, "step": epoch} for epoch in range(1, 13)]
    state.log_history += [{"loss": 1.0, "target_tokens_per_second": speed, "epoch": 1.0} for speed in (10.0, 40.0)]
    state.save_to_json(str(checkpoint / "trainer_state.json"))
    arguments = {"direction": "en-de", "recipe": "multi30k_small", "seed": 1, "options": "--norm_position post"}
    (folder / "arguments.json").write_text(json.dumps(arguments))
    if is_finished:
        (folder / "model" / "model_card.yaml").write_text(yaml.safe_dump({"num_target_tokens": 100}))
        (folder / "scores.json").write_text(json.dumps({"validation": {"bleu": 33.333, "bleu_tok_lc": 36.5}}))
    return folder


def test_a_row_holds_what_a_run_left(tmp_path: Path) -> None:
    row = describe_run(make_run(tmp_path / "first", is_finished=True))
    assert row["parameters"] == sum(parameter.numel() for parameter in tiny_model().parameters())
    assert (row["epochs"], row["updates"], row["greedy_epoch_10"], row["greedy_last"]) == (12, 24, "10.13", "12.13")
    # Half of the 1,200 tokens at 10 a second and half at 40: 60 and 15 seconds.
    assert (row["hours"], row["target_tokens_per_second"]) == ("0.02", "16")
    assert (row["validation 13a"], row["validation tok-lc"]) == ("33.33", "36.50")


def test_rows_are_added_and_replaced(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    runs = [make_run(tmp_path / name, is_finished=name == "a") for name in ("b", "a")]
    main([*map(str, runs), "--table", str(table)])
    (runs[0] / "scores.json").write_text(json.dumps({"validation": {"bleu": 1.0, "bleu_tok_lc": 2.0}}))
    main([str(runs[0]), "--table", str(table)])
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["validation 13a"], row["Test2016 13a"]) for row in rows] == [
        ("a", "33.33", ""),
        ("b", "1.00", ""),
    ]


def test_a_run_that_ended_before_its_first_checkpoint_has_a_row(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "arguments.json").write_text('{"direction": "de-en", "recipe": "multi30k_tiny"}')
    (tmp_path / "no_run").mkdir()
    (tmp_path / "other_run").mkdir()
    (tmp_path / "other_run" / "arguments.json").write_text('{"train": ["a", "b"]}')
    table = tmp_path / "table.csv"
    main([str(tmp_path / "bad"), str(tmp_path / "no_run"), str(tmp_path / "other_run"), "--table", str(table)])
    with table.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert {name: value for name, value in row.items() if value} == {
        "run": "bad",
        "direction": "de-en",
        "recipe": "multi30k_tiny",
    }


def test_scores_stay_where_the_checkpoints_are_gone(tmp_path: Path) -> None:
    run, table = make_run(tmp_path / "run", is_finished=True), tmp_path / "table.csv"
    main([str(run), "--table", str(table)])
    before = table.read_text()
    assert ",33.33,36.50," in before
    shutil.rmtree(run / "model" / "checkpoint-24")
    main([str(run), "--table", str(table)])
    assert table.read_text() == before


def test_two_runs_of_one_name_are_an_error(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    runs = [make_run(tmp_path / parent / "run", is_finished=True) for parent in ("a", "b")]
    (runs[1] / "arguments.json").write_text('{"direction": "de-en", "recipe": "multi30k_small", "seed": 1}')
    with pytest.raises(ValueError, match=r"`direction` of run run must be 'en-de' as in the table, but is 'de-en'"):
        main([*map(str, runs), "--table", str(table)])
    assert not table.exists()


def test_a_damaged_run_leaves_the_others_in_the_table(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    runs = [make_run(tmp_path / name, is_finished=True) for name in ("a", "b")]
    (runs[1] / "arguments.json").write_text("[1]")
    with pytest.raises(SystemExit, match=r"Error: b is left out: .*must hold what the run was given"):
        main([*map(str, runs), "--table", str(table)])
    before = table.read_text()
    assert "\na,en-de,multi30k_small," in before
    (runs[1] / "arguments.json").write_text('{"recipe": "multi30k_renamed"}')
    with pytest.raises(SystemExit, match=r"Error: b is left out: .*multi30k_renamed.yaml"):
        main([str(runs[1]), "--table", str(table)])
    (runs[1] / "arguments.json").write_text('{"recipe": "multi30k_small", "no_column": 1}')
    with pytest.raises(ValueError, match="no_column"):
        main([str(runs[1]), "--table", str(table)])
    assert table.read_text() == before


def test_greedy_scores_of_lower_cased_text_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", is_finished=False)
    (run / "arguments.json").write_text('{"recipe": "multi30k_tiny"}')
    row = describe_run(run)
    assert "greedy_last" not in row
    assert row["target_tokens_per_second"] == "16"
