"""Adds runs of scripts/reproduce/reproduce_multi30k.sh to the table of all runs, scripts/reproduce/multi30k_runs.csv.

    python scripts/reproduce/tabulate_multi30k.py runs/*/

A run has one row, named after its folder; what its folder holds is written anew. A run that was stopped, or that went
wrong, has a row too, with what there is of it. The columns:

- direction, recipe, options, seed: what `reproduce_multi30k.sh` was given, the options being those for `train`.
- parameters, epochs, updates: of the model; and how much it was trained, without what its recipe starts from.
- hours, target_tokens_per_second: of training, as it ran, without evaluation: other work on the machine slows it down.
- greedy_epoch_10, greedy_last: BLEU (13a) of greedy translations of the validation pairs, after 10 epochs and at the
  end, of single checkpoints. Runs of one recipe can be compared by the first. Empty where the text is lower-cased.
- For each test set BLEU (13a, cased) and BLEU tok-lc, of beam search with the averaged weights. Empty for test sets of
  runs by which settings were chosen, and 13a for recipes whose text is lower-cased.
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
from scripts.reproduce.reproduce_multi30k import SCORES_FILE, SETS, TOKENIZED, read_recipe
from scripts.run_arguments import ARGUMENTS_FILE, read_arguments


TABLE = Path(__file__).resolve().with_name("multi30k_runs.csv")
SCORES = {"13a": "bleu", "tok-lc": "bleu_tok_lc"}
COLUMNS = [
    *("run", "direction", "recipe", "options", "seed", "parameters", "epochs", "updates"),
    *("hours", "target_tokens_per_second", "greedy_epoch_10", "greedy_last"),
    *(f"{name} {kind}" for name in SETS for kind in SCORES),
]

Row = dict[str, Any]


def describe_run(folder: Path) -> Row:
    """Returns the row of a run, which says little of one that ended before its first checkpoint."""
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
    """Returns the scores of averaged weights by beam search, if there are any yet."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        f"{name} {kind}": f"{values[key]:.2f}"
        for name, values in found.items()
        for kind, key in SCORES.items()
        if key in values
    }


def describe_speed(state: TrainerState, facts: Path) -> Row:
    """Returns hours and tokens a second by the log, which knows nothing of breaks; hours of finished runs alone."""
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
    """Writes the table with the rows that it has, and these.

    Raises:
        ValueError: If a row of that name is another run's.
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
        by_name[row["run"]] = before | row  # what is gone from the folder stays in the table
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(by_name[name] for name in sorted(by_name))
    write_text(table, text.getvalue())


def main(arguments: Sequence[str] | None = None) -> None:
    """Adds the runs that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="the folder of a run; others are left out")
    parser.add_argument(
        "--table", type=Path, default=TABLE, help="the table (default multi30k_runs.csv beside this script)"
    )
    options = parser.parse_args(arguments)
    rows, errors = [], []
    for folder in options.runs:
        if not (folder / ARGUMENTS_FILE).exists():
            continue
        try:
            if "recipe" in read_arguments(folder):
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
