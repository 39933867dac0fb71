"""Compares how much a model learns from each update: first weights, learning rate, and how an update is cut.

    python scripts/benchmarks/compare_learning.py --train train.en train.de --validation val.en val.de --output runs/

Each trial in learning_trials.yaml names what it changes of one common setting: post-norm, 3+3 layers, d_model 256,
dropout 0.3, a joint BPE vocabulary of 8,000, a rate of 1e-3 after 1,000 updates of warm-up, batches of 2,048 tokens,
seed 1. After each epoch the validation pairs are translated greedily, with the clock stopped.

Trials that have a row in learning_trials.csv are not run again. A trial that was stopped goes on from its last epoch.
A row is written when its trial ends, whether it was good or bad. At the end the table is printed and drawn: validation
BLEU by update and by minute of processor time.

    --only PATTERN    runs and shows the trials whose names match
    --draw-only       runs none

The last column of the table is what a trial needed to `--score`: minutes up to the end of the epoch that reached it.
MarianMT is trained by the stock `Seq2SeqTrainer` with batches of as many pairs as ours have, and Marian C++ by itself,
in an environment of its own, whose Python `--marian` names: `scripts/install_peer.sh pymarian` makes it.
"""

import argparse
import csv
import fnmatch
import io
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from hf_seq2seq.atomic_writing import write_text
from hf_seq2seq.data import TokenBudgetBatchSampler
from hf_seq2seq.training.checkpoints import last_whole_checkpoint
from scripts.benchmarks.benchmark_models import OURS, PEER, ModelSizes, make_marian, make_ours
from scripts.benchmarks.benchmark_report import markdown
from scripts.benchmarks.benchmark_run import Settings, make_trainer
from scripts.benchmarks.first_weights import SCHEMES, draw_weights
from scripts.benchmarks.learning_run import Corpus, Epoch, LearningMeter, train_marian_cpp
from scripts.run_arguments import keep_arguments


FOLDER = Path(__file__).resolve().parent
TRIALS, TABLE = FOLDER / "learning_trials.yaml", FOLDER / "learning_trials.csv"
TOKENS_PER_UPDATE = 2048
MAX_EPOCHS = 40  # of a trial that is carried on; no schedule depends on it
MARIAN_CPP = "Marian C++"
OPTIMIZER: dict[str, Any] = {
    "lr_scheduler_type": "inverse_sqrt",
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
    "weight_decay": 0.0,
}


@dataclass(frozen=True)
class Trial:
    """One way to train, as learning_trials.yaml gives it.

    Args:
        name: The name of its row.
        model: "ours", "MarianMT" or "Marian C++". First weights and attention biases of the others are their own.
        epochs: How long it is trained at most.
        until: The BLEU that ends it before, if any.
        weights: A scheme of first_weights.py, or "default" for those that the package draws.
        embedding_std: The deviation of the embeddings; `None` means d_model^-0.5.
        scale_embedding: Whether embeddings are multiplied by sqrt(d_model).
        norm_position: "post" or "pre".
        attention_bias: Whether the attention's projections have biases.
        learning_rate: The highest rate.
        warmup_steps: The update that has it.
        batches_per_update: In how many batches, of pairs of one length, an update is cut; 0 for one random batch.
        group_by_length: Whether MarianMT's batches have pairs of about one length.
        d_model: The width; the feed-forward network has four times that.
        heads: The heads of the attention.
        layers: The layers of either stack.
        vocab_size: The size of the vocabulary.
        seed: The seed of weights, dropout and batches.
    """

    name: str
    model: Literal["ours", "MarianMT", "Marian C++"] = "ours"
    epochs: int = 3
    until: float | None = None
    weights: str = "default"
    embedding_std: float | None = None
    scale_embedding: bool = True
    norm_position: Literal["post", "pre"] = "post"
    attention_bias: bool = False
    learning_rate: float = 1e-3
    warmup_steps: int = 1000
    batches_per_update: int = 1
    group_by_length: bool = False
    d_model: int = 256
    heads: int = 4
    layers: int = 3
    vocab_size: int = 8000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.weights not in ("default", *SCHEMES):
            raise ValueError(
                f"`weights` of trial {self.name} must be default or one of {', '.join(SCHEMES)}, but is "
                f"{self.weights!r} instead."
            )

    @property
    def changes(self) -> str:
        """What is not at its default, in one line."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_CHANGES}
        defaults = asdict(Trial(self.name))
        return " ".join(f"{name}={value}" for name, value in values.items() if value != defaults[name])

    @property
    def sizes(self) -> ModelSizes:
        """The sizes of the model."""
        return ModelSizes(
            self.vocab_size, self.d_model, self.layers, 4 * self.d_model, self.heads, 0.3, self.norm_position
        )


_NOT_CHANGES = ("name", "epochs", "until", "seed")


def read_trials(file: Path) -> list[Trial]:
    """Returns the trials of a YAML file, in order.

    Raises:
        ValueError: If a trial has a field that there is not.
    """
    known = {field.name for field in fields(Trial)}
    found = []
    for name, values in yaml.safe_load(file.read_text(encoding="utf-8")).items():
        for field in values:
            if field not in known:
                raise ValueError(f"`{field}` of trial {name} must be one of {', '.join(sorted(known))}, but is not.")
        found.append(Trial(name, **values))
    return found


def make_model(trial: Trial) -> Any:
    """Returns the model of a trial with its first weights, which follow from its seed."""
    torch.manual_seed(trial.seed)
    if trial.model == PEER:
        return make_marian(trial.sizes)
    model: Any = make_ours(trial.sizes, attention_bias=trial.attention_bias, scale_embedding=trial.scale_embedding)
    if trial.weights != "default":
        draw_weights(model, trial.weights, trial.embedding_std)
    return model


def batch_arguments(trial: Trial, corpus: Corpus) -> dict[str, Any]:
    """Returns the training arguments that cut an update."""
    if trial.batches_per_update and trial.model == OURS:
        return {
            "tokens_per_batch": TOKENS_PER_UPDATE // trial.batches_per_update,
            "gradient_accumulation_steps": trial.batches_per_update,
        }
    updates = len(TokenBudgetBatchSampler.from_dataset(corpus.train, TOKENS_PER_UPDATE))
    strategy = {"train_sampling_strategy": "group_by_length"} if trial.group_by_length else {}
    return {"per_device_train_batch_size": math.ceil(len(corpus.train) / updates), **strategy}


def run_trial(trial: Trial, corpus: Corpus, options: argparse.Namespace) -> list[Epoch]:
    """Trains, or goes on with a trial that was stopped; returns how the model stood after each epoch."""
    file, folder = options.output / f"{trial.name}.json", options.output / "checkpoints" / trial.name
    epochs = [Epoch(**values) for values in json.loads(file.read_text())] if file.exists() else []
    given = {name: value for name, value in asdict(trial).items() if name not in ("epochs", "until")}
    keep_arguments(folder, given, is_begun=bool(epochs))
    if trial.model == MARIAN_CPP:
        meter = LearningMeter(file, epochs, trial.epochs, trial.until, corpus)
        train_marian_cpp(meter, folder.resolve(), options.marian, asdict(trial))
        return meter.epochs
    checkpoint = last_whole_checkpoint(folder)
    done = round(json.loads((checkpoint / "trainer_state.json").read_text())["epoch"]) if checkpoint else 0
    meter = LearningMeter(file, epochs[:done], trial.epochs, trial.until, corpus)
    if not meter.is_done():
        trainer = make_trial_trainer(trial, folder, corpus, options.threads)
        trainer.add_callback(meter)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return meter.epochs[: trial.epochs]


def make_trial_trainer(trial: Trial, folder: Path, corpus: Corpus, threads: int) -> Any:
    """Returns the trainer of a trial: ours for our model, the stock one for MarianMT."""
    return make_trainer(
        trial.model,
        Settings("cpu", "float32", threads, 0, 1, trial.sizes),
        corpus.train,
        corpus.tokenizer,
        model=make_model(trial),
        seed=trial.seed,
        max_steps=-1,
        num_train_epochs=MAX_EPOCHS,
        output_dir=str(folder),
        save_strategy="no",  # but for what the meter asks for
        save_total_limit=1,
        learning_rate=trial.learning_rate,
        warmup_steps=trial.warmup_steps,
        **batch_arguments(trial, corpus),
        **OPTIMIZER,
    )


def read_table(table: Path) -> dict[str, dict[str, str]]:
    """Returns the rows of the table by the names of their trials."""
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as file:
        return {row["trial"]: row for row in csv.DictReader(file)}


def add_row(table: Path, trial: Trial, corpus_name: str, epochs: Sequence[Epoch]) -> None:
    """Writes the table with a trial's row: a list, by epoch, in each of the last columns."""
    rows: dict[str, dict[str, Any]] = dict(read_table(table))
    lists: dict[str, list[Any]] = {
        "updates": [epoch.update for epoch in epochs],
        "minutes": [f"{epoch.seconds / 60:.2f}" for epoch in epochs],
        "bleu": [f"{epoch.bleu:.2f}" for epoch in epochs],
        "loss": [f"{epoch.loss:.3f}" for epoch in epochs if epoch.loss is not None],
    }
    rows[trial.name] = {
        "trial": trial.name,
        "corpus": corpus_name,
        "seed": trial.seed,
        "changes": trial.changes,
        **{name: " ".join(map(str, values)) for name, values in lists.items()},
    }
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[trial.name]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    write_text(table, text.getvalue())


def describe(rows: dict[str, dict[str, str]], score: float) -> str:
    """Returns the table in Markdown: BLEU after each epoch, the minutes of an epoch, and those to a score."""
    longest = max((len(row["bleu"].split()) for row in rows.values()), default=0)
    numbers = [str(epoch) for epoch in range(1, longest + 1)]
    lines: list[Sequence[str]] = [
        ("trial", "changes", "seed", *numbers, "last loss", "minutes an epoch", f"minutes to {score:g}")
    ]
    lines.append(("---",) * len(lines[0]))
    for name, row in rows.items():
        bleu, minutes, losses = (row[column].split() for column in ("bleu", "minutes", "loss"))
        reached = (minute for minute, value in zip(minutes, bleu, strict=True) if float(value) >= score)
        cells = [name, row["changes"] or "-", row["seed"], *bleu, *[""] * (longest - len(bleu))]
        cells += [losses[-1] if losses else "", f"{float(minutes[-1]) / len(bleu):.1f}", next(reached, "")]
        lines.append(cells)
    return markdown(lines)


def draw(rows: dict[str, dict[str, str]], path: Path) -> None:
    """Draws the BLEU of each trial by update and by minute."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for number, (name, row) in enumerate(rows.items()):
        style = "-" if number < 10 else "--" if number < 20 else ":"
        bleu = [float(value) for value in row["bleu"].split()]
        for axes, column in zip(panels, ("updates", "minutes"), strict=True):
            places = [float(value) for value in row[column].split()]
            axes.plot(places, bleu, linestyle=style, marker="o", markersize=3, label=name)
    panels[0].set_xlabel("updates")
    panels[1].set_xlabel("minutes of training on one core")
    panels[0].set_ylabel("validation BLEU (13a, greedy)")
    for axes in panels:
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=120)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, sides = parser.add_argument, ("SOURCE", "TARGET")
    add("--train", nargs=2, metavar=sides, help="text files of the training pairs")
    add("--validation", nargs=2, metavar=sides, help="text files of the validation pairs")
    add("--corpus", default="multi30k", help="what the rows call these files (default multi30k)")
    add("--output", type=Path, metavar="DIR", help="for checkpoints and epochs of trials that are not done")
    add("--only", default="*", metavar="PATTERN", help="run and show the trials whose names match (default all)")
    add("--trials", type=Path, default=TRIALS, help="the trials (default learning_trials.yaml beside this script)")
    add("--table", type=Path, default=TABLE, help="the table (default learning_trials.csv beside this script)")
    add("--picture", type=Path, metavar="PNG", help="where the curves are drawn (default: not)")
    add("--draw-only", action="store_true", help="print and draw the table, and run nothing")
    add("--score", type=float, default=33.0, help="the BLEU of the table's last column (default 33)")
    add("--marian", default="python", metavar="PYTHON", help="the Python that has pymarian (default python)")
    add("--threads", type=int, default=1, help="of torch (default 1)")
    options = parser.parse_args(arguments)
    if not options.draw_only and None in (options.train, options.validation, options.output):
        parser.error("--train, --validation and --output must be given, unless --draw-only is")
    return options


def run_all(options: argparse.Namespace) -> None:
    """Runs the trials that are named and have no row yet, and writes a row for each at once."""
    torch.set_num_threads(options.threads)
    corpora: dict[int, Corpus] = {}
    for trial in read_trials(options.trials):
        if fnmatch.fnmatch(trial.name, options.only) and not has_row(trial, read_table(options.table)):
            size = trial.vocab_size
            if size not in corpora:
                corpora[size] = Corpus.load(tuple(options.train), tuple(options.validation), size)
            add_row(options.table, trial, options.corpus, run_trial(trial, corpora[size], options))


def has_row(trial: Trial, rows: dict[str, dict[str, str]]) -> bool:
    """Returns whether the table has a trial's row, as far as the trial now goes."""
    bleu = [float(value) for value in rows[trial.name]["bleu"].split()] if trial.name in rows else []
    return len(bleu) >= trial.epochs or (trial.until is not None and any(value >= trial.until for value in bleu))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is not done yet, then prints and draws the table."""
    options = parse_arguments(arguments)
    if not options.draw_only:
        run_all(options)
    rows = {name: row for name, row in read_table(options.table).items() if fnmatch.fnmatch(name, options.only)}
    print(describe(rows, options.score))
    if options.picture is not None:
        draw(rows, options.picture)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from the last epoch.", file=sys.stderr)
        sys.exit(130)
