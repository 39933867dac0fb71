r"""Measures how long training takes to reach a BLEU score on validation pairs, against MarianMT's.

    python scripts/benchmarks/benchmark_time_to_score.py \
        --train train.en train.de --validation val.en val.de --output results/

Ours is trained by `Seq2SeqTransformerTrainer` with batches by tokens, MarianMT by the stock `Seq2SeqTrainer` with
batches of as many pairs, random or of about equal lengths (`group_by_length`). Sizes, tokenizer, seed, label
smoothing, optimizer and learning rate are the same. The rate is that of recipe `small` of reproduce_multi30k.py and
not chosen for MarianMT. Ours is there twice: with the paper's post-norm, which MarianMT has too, and with pre-norm.

After each epoch the validation pairs are translated greedily by `generate()`, the same way for all; the clock stands
still meanwhile. The time is the processor's, of this process, up to the end of the epoch that reaches the score. With
one thread and nothing else on the machine that is the time that passes. Stopped and started again with the same
arguments, the benchmark goes on from its last epoch.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sacrebleu.metrics.bleu import BLEU
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState

from hf_seq2seq.atomic_writing import write_text
from hf_seq2seq.data import Seq2SeqCollator, TokenBudgetBatchSampler, load_parallel
from hf_seq2seq.inference.torch_search import Ids
from hf_seq2seq.training.checkpoints import last_whole_checkpoint
from scripts.benchmarks.benchmark_inference import batches_of, pad, search
from scripts.benchmarks.benchmark_models import OURS, PEER, ModelSizes
from scripts.benchmarks.benchmark_report import markdown
from scripts.benchmarks.benchmark_run import Settings, make_trainer
from scripts.benchmarks.benchmark_training import load_corpus, tell
from scripts.run_arguments import keep_arguments


TOKENS_PER_BATCH = 2048
SIZES = ModelSizes(vocab_size=8000, d_model=256, layers=3, ffn_dim=1024, heads=4, dropout=0.3)
OPTIMIZER: dict[str, Any] = {
    "learning_rate": 1e-3,
    "lr_scheduler_type": "inverse_sqrt",
    "warmup_steps": 1000,
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
    "weight_decay": 0.0,
}
RUNS: dict[str, tuple[str, ModelSizes]] = {
    "ours-pre-norm": (OURS, replace(SIZES, norm_position="pre")),
    "ours-post-norm": (OURS, SIZES),
    "marian-random": (PEER, SIZES),
    "marian-grouped": (PEER, SIZES),
}
SAMPLING = {"marian-grouped": {"train_sampling_strategy": "group_by_length"}}


@dataclass(frozen=True)
class Epoch:
    """How a model stood after an epoch: processor seconds of training so far, and its greedy BLEU (13a).

    `update` is the number of updates so far, and `loss` the mean cross-entropy of a validation token, unsmoothed.
    """

    epoch: int
    seconds: float
    bleu: float
    update: int = 0
    loss: float = math.nan


@dataclass(frozen=True)
class Corpus:
    """The tokenized training pairs, and the validation pairs as ids of both sides and target texts."""

    train: Dataset
    tokenizer: Any
    sources: list[Ids]
    targets: list[Ids]
    references: list[str]

    @classmethod
    def load(cls, train: tuple[str, str], validation: tuple[str, str], vocab_size: int) -> "Corpus":
        """Reads the files, source and target of each, and trains the tokenizer."""
        data, tokenizer = load_corpus(*train, vocab_size)
        pairs = list(load_parallel(*validation, streaming=True))
        references = [pair["target"] for pair in pairs]
        sources, targets = (tokenizer(side)["input_ids"] for side in ([pair["source"] for pair in pairs], references))
        return cls(data, tokenizer, sources, targets, references)


class ScoreMeter(TrainerCallback):
    """Scores the model after each epoch, with the clock stopped, and ends training at the score.

    Args:
        file: Where the epochs are kept.
        epochs: Those of before, where a run goes on.
        wanted: The score.
        corpus: The validation pairs, and what decodes.
    """

    def __init__(self, file: Path, epochs: Sequence[Epoch], wanted: float, corpus: Corpus) -> None:
        self.file, self.epochs, self.wanted, self.corpus = file, list(epochs), wanted, corpus
        self.started = 0.0

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Starts the clock."""
        self.started = time.process_time()

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stops the clock and scores."""
        seconds = time.process_time() - self.started
        bleu, loss = greedy_bleu(kwargs["model"], self.corpus), validation_loss(kwargs["model"], self.corpus)
        before = self.epochs[-1].seconds if self.epochs else 0.0
        self.epochs.append(Epoch(round(state.epoch or 0), before + seconds, bleu, state.global_step, loss))
        write_text(self.file, json.dumps([asdict(epoch) for epoch in self.epochs], indent=2) + "\n")
        tell(f"{self.file.stem}, epoch {len(self.epochs)}: BLEU {bleu:.2f} after {(before + seconds) / 60:.1f} min")
        control.should_save = True
        control.should_training_stop |= bleu >= self.wanted


def greedy_bleu(model: Any, corpus: Corpus) -> float:
    """Returns the BLEU of greedy translations of the validation sources, which are batched by length."""
    order = sorted(range(len(corpus.sources)), key=lambda row: len(corpus.sources[row]))
    model.eval()
    ids: list[Ids] = []
    for batch in batches_of([corpus.sources[row] for row in order], 64):
        ids += search(model, pad(corpus.tokenizer, batch, model.device), beam_size=1)
    model.train()
    by_row = dict(zip(order, corpus.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True))
    return float(BLEU().corpus_score([by_row[row] for row in range(len(order))], [corpus.references]).score)


@torch.no_grad()
def validation_loss(model: Any, corpus: Corpus) -> float:
    """Returns the mean cross-entropy of the validation targets' tokens, without label smoothing."""
    order = sorted(range(len(corpus.targets)), key=lambda row: len(corpus.targets[row]))
    collate = Seq2SeqCollator(corpus.tokenizer, model=model)
    total, count = 0.0, 0
    model.eval()
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        pairs = [{"input_ids": corpus.sources[row], "labels": corpus.targets[row]} for row in rows]
        batch = {name: value.to(model.device) for name, value in collate(pairs).items()}
        labels = batch.pop("labels")
        logits = model(**batch).logits
        total += float(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
        count += int((labels != -100).sum())
    model.train()
    return total / count


def train_to_score(name: str, options: argparse.Namespace, corpus: Corpus) -> list[Epoch]:
    """Trains until the score or the last epoch, or goes on with a run that was stopped; returns its epochs."""
    file, folder = options.output / f"{name}.json", options.output / "checkpoints" / name
    checkpoint = last_whole_checkpoint(folder)
    done = json.loads((checkpoint / "trainer_state.json").read_text())["epoch"] if checkpoint else 0
    epochs = [Epoch(**values) for values in json.loads(file.read_text())] if checkpoint else []
    meter = ScoreMeter(file, [epoch for epoch in epochs if epoch.epoch <= round(done)], options.score, corpus)
    is_reached = any(epoch.bleu >= options.score for epoch in meter.epochs)
    if is_reached or len(meter.epochs) >= options.max_epochs:
        return up_to_score(meter.epochs, options)
    kind, sizes = RUNS[name]
    batches = len(TokenBudgetBatchSampler.from_dataset(corpus.train, TOKENS_PER_BATCH))
    pairs = math.ceil(len(corpus.train) / batches)
    settings = Settings("cpu", "float32", options.threads, 0, 1, sizes)
    of_kind: dict[str, Any] = {"tokens_per_batch": TOKENS_PER_BATCH}
    if kind == PEER:
        of_kind = {"per_device_train_batch_size": pairs} | SAMPLING.get(name, {})
    trainer = make_trainer(
        kind,
        settings,
        corpus.train,
        corpus.tokenizer,
        seed=options.seed,
        max_steps=-1,
        num_train_epochs=options.max_epochs,
        output_dir=str(folder),
        save_strategy="no",  # but for what the meter asks for
        save_total_limit=1,
        **of_kind,
        **OPTIMIZER,
    )
    trainer.add_callback(meter)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return up_to_score(meter.epochs, options)


def up_to_score(epochs: Sequence[Epoch], options: argparse.Namespace) -> list[Epoch]:
    """Returns the epochs up to the first that reaches the score, or to the last that is wanted."""
    wanted = epochs[: options.max_epochs]
    number = next((number for number, epoch in enumerate(wanted, 1) if epoch.bleu >= options.score), len(wanted))
    return list(wanted[:number])


def table(results: dict[str, list[Epoch]], wanted: float) -> str:
    """Returns the Markdown table of what each run needed to the score."""
    rows: list[Sequence[str]] = [("model", "epochs", "BLEU", "minutes of one core"), ("---",) * 4]
    for name, epochs in results.items():
        last = epochs[-1]
        missed = "" if last.bleu >= wanted else " (stopped before the score)"
        rows.append((name, str(last.epoch), f"{last.bleu:.2f}{missed}", f"{last.seconds / 60:.1f}"))
    return markdown(rows)


def draw(results: dict[str, list[Epoch]], wanted: float, path: Path) -> None:
    """Draws the score of each run over its time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, epochs in results.items():
        minutes = [epoch.seconds / 60 for epoch in epochs]
        axes.plot(minutes, [epoch.bleu for epoch in epochs], marker="o", markersize=3, label=name)
    axes.axhline(wanted, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xlabel("minutes of training on one core")
    axes.set_ylabel("validation BLEU (13a, greedy)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, sides = parser.add_argument, ("SOURCE", "TARGET")
    add("--train", nargs=2, required=True, metavar=sides, help="text files of the training pairs")
    add("--validation", nargs=2, required=True, metavar=sides, help="text files of the validation pairs")
    add("--output", type=Path, required=True, metavar="DIR", help="for checkpoints, figures and a picture")
    add("--models", nargs="+", choices=RUNS, default=list(RUNS), help="what is trained (default all)")
    add("--score", type=float, default=33.0, help="BLEU to reach (default 33)")
    add("--max-epochs", type=int, default=40, help="where a run ends at last (default 40)")
    add("--threads", type=int, default=1, help="of torch (default 1)")
    add("--seed", type=int, default=1, help="of weights, dropout and the order of batches (default 1)")
    options = parser.parse_args(arguments)
    if options.max_epochs < 1:
        parser.error(f"--max-epochs must be at least 1, but is {options.max_epochs}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains each model in turn and writes what was measured."""
    options = parse_arguments(arguments)
    files = {name: [str(Path(file).resolve()) for file in getattr(options, name)] for name in ("train", "validation")}
    is_begun = any(options.output.glob("checkpoints/*/checkpoint-*"))
    keep_arguments(options.output, files | {"seed": options.seed, "threads": options.threads}, is_begun=is_begun)
    torch.set_num_threads(options.threads)
    corpus = Corpus.load(tuple(options.train), tuple(options.validation), SIZES.vocab_size)
    results = {name: train_to_score(name, options, corpus) for name in options.models}
    draw(results, options.score, options.output / "time_to_score.png")
    print(table(results, options.score))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from the last epoch.", file=sys.stderr)
        sys.exit(130)
