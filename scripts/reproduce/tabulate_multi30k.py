"""Adds runs of the recipes of Multi30k to the table of all of them, scripts/reproduce/multi30k_runs.csv.

    python scripts/reproduce/tabulate_multi30k.py runs/*/

A run has one row, named after its folder. Its columns are filled again from the folder. A run that was stopped or went
wrong has a row too, with the columns that its folder can fill:

- direction, recipe, options, seed: the arguments of `reproduce.sh`, with the options for `train`.
- parameters, epochs, updates: the size of the model, and how long it was trained. If its recipe starts from another
  model, the training of that one does not count.
- hours, target_tokens_per_second: the time and speed of training, without evaluation. Other work on the machine slows
  it down.
- greedy_epoch_10, greedy_last: BLEU (13a) of a single checkpoint's greedy translations of the validation pairs, after
  10 epochs and at the end. The first compares runs of one recipe. Empty if the text is lower-cased.
- For each set BLEU (13a, cased) and BLEU tok-lc, of beam search with the averaged weights. Runs that were made to
  choose settings have none for the test sets, and recipes with lower-cased text none by 13a.
"""

import argparse
import csv
import io
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import TrainerState

from hf_seq2seq.atomic_writing import write_text
from hf_seq2seq.hub.card import FACTS_FILE
from hf_seq2seq.loading import load_model
from hf_seq2seq.training.checkpoints import last_whole_checkpoint
from scripts.reproduce.corpora import CORPORA, TOKENIZED
from scripts.reproduce.reproduce import SCORES_FILE, read_recipe
from scripts.run_arguments import ARGUMENTS_FILE, read_arguments


TABLE = Path(__file__).resolve().with_name("multi30k_runs.csv")
SCORES = {"13a": "bleu", "tok-lc": "bleu_tok_lc"}
COLUMNS = [
    *("run", "direction", "recipe", "options", "seed", "parameters", "epochs", "updates"),
    *("hours", "target_tokens_per_second", "greedy_epoch_10", "greedy_last"),
    *(f"{name} {kind}" for name in CORPORA["multi30k"].sets for kind in SCORES),
]

Row = dict[str, Any]


def describe_run(folder: Path) -> Row:
    """Returns the row of a run. Most columns are empty if the run ended before its first checkpoint."""
    row: Row = {"run": folder.resolve().name} | read_arguments(folder)
    model = folder / "model"
    checkpoint = last_whole_checkpoint(model)
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        row["parameters"] = load_model(checkpoint).num_parameters()
        row |= {"epochs": round(state.epoch or 0, 2), "updates": state.global_step}
        row |= describe_speed(state, model / FACTS_FILE)
        row |= {} if read_recipe(row["recipe"]).get("text") == TOKENIZED else describe_evaluations(state)
    return row | describe_scores(folder / SCORES_FILE)


def describe_scores(file: Path) -> Row:
    """Returns the scores of the averaged weights with beam search, if there are any yet."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        f"{name} {kind}": f"{values[key]:.2f}"
        for name, values in found.items()
        for kind, key in SCORES.items()
        if key in values
    }


def describe_speed(state: TrainerState, facts: Path) -> Row:
    """Returns the tokens a second by the log, which leaves out breaks, and the hours if the run is finished."""
    speeds = [logs["target_tokens_per_second"] for logs in state.log_history if "target_tokens_per_second" in logs]
    if not speeds:
        return {}
    mean = statistics.harmonic_mean(speeds)
    row: Row = {"target_tokens_per_second": f"{mean:.0f}"}
    if facts.exists():
        tokens = yaml.safe_load(facts.read_text(encoding="utf-8"))["num_target_tokens"] * (state.epoch or 0)
        row["hours"] = f"{tokens / mean / 3600:.2f}"
    return row


def describe_evaluations(state: TrainerState) -> Row:
    """Returns the scores of the greedy translations after 10 epochs and at the end."""
    scores = {round(logs["epoch"], 2): logs["eval_bleu"] for logs in state.log_history if "eval_bleu" in logs}
    row = {"greedy_epoch_10": f"{scores[10.0]:.2f}"} if 10.0 in scores else {}
    return row | ({"greedy_last": f"{scores[max(scores)]:.2f}"} if scores else {})


def add_rows(rows: Sequence[Row], table: Path) -> None:
    """Writes the table with its own rows and with these.

    Raises:
        ValueError: If the table has a row of the same name for another run.
    """
    by_name: dict[str, Row] = {}
    if table.exists():
        with table.open(encoding="utf-8", newline="") as file:
            by_name = {row["run"]: row for row in csv.DictReader(file)}
    for row in rows:
        before = by_name.get(row["run"], {})
        for column in ("direction", "recipe", "seed"):
            if before and before[column] != str(row.get(column, "")):
                raise ValueError(
                    f"`{column}` of run {row['run']} must be {before[column]!r} as in the table, but is "
                    f"{row.get(column)!r} instead. A run has the name of its folder: rename one."
                )
        by_name[row["run"]] = before | row  # the table keeps what the folder no longer holds
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(by_name[name] for name in sorted(by_name))
    write_text(table, text.getvalue())


def main(arguments: Sequence[str] | None = None) -> None:
    """Adds the given runs to the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="a folder; one without a run is left out")
    parser.add_argument(
        "--table", type=Path, default=TABLE, help="the table (default multi30k_runs.csv beside this script)"
    )
    options = parser.parse_args(arguments)
    rows, errors = [], []
    for folder in options.runs:
        if not (folder / ARGUMENTS_FILE).exists():
            continue
        try:
            if read_arguments(folder).get("recipe", "").startswith("multi30k"):
                rows.append(describe_run(folder))
        except (ValueError, OSError) as error:
            errors.append(f"Error: {folder.name} is left out: {error}")
    add_rows(rows, options.table)
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
