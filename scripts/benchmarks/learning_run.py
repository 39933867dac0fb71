"""Holds the parts of one trial of compare_learning.py: the corpus, the scores after each epoch, and the clock.

After each epoch the validation pairs are translated greedily, the same way for all models; the clock stands still
meanwhile. The time is the processor's, of training only: with one thread and nothing else on the machine that is the
time that passes.
"""

import json
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sacrebleu.metrics.bleu import BLEU
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState

from hf_seq2seq.atomic_writing import write_text
from hf_seq2seq.data import Seq2SeqCollator, load_parallel, read_lines
from scripts.benchmarks.benchmark_inference import batches_of, pad, search
from scripts.benchmarks.benchmark_run import tell
from scripts.benchmarks.benchmark_training import load_corpus


Ids = list[int]
Files = tuple[str, str]
BATCH = 64  # of the validation pairs
MARIAN_SCRIPT = Path(__file__).with_name("marian_cpp.py")


@dataclass(frozen=True)
class Epoch:
    """How a model stood after an epoch.

    Args:
        epoch: The number of epochs so far.
        seconds: Processor seconds of training so far.
        bleu: BLEU (13a) of greedy translations of the validation pairs.
        update: The number of updates so far.
        loss: The mean cross-entropy of a validation token, unsmoothed.
    """

    epoch: int
    seconds: float
    bleu: float
    update: int
    loss: float | None


@dataclass(frozen=True)
class Corpus:
    """The tokenized training pairs, and the validation pairs as ids of both sides and target texts."""

    files: Files
    train: Dataset
    tokenizer: Any
    sources: list[Ids]
    targets: list[Ids]
    source_texts: list[str]
    references: list[str]

    @classmethod
    def load(cls, train: Files, validation: Files, vocab_size: int) -> "Corpus":
        """Reads the files, source and target of each, and trains the tokenizer."""
        data, tokenizer = load_corpus(*train, vocab_size)
        pairs = list(load_parallel(*validation, streaming=True))
        sources, references = ([pair[side] for pair in pairs] for side in ("source", "target"))
        source_ids, reference_ids = (tokenizer(side)["input_ids"] for side in (sources, references))
        return cls(train, data, tokenizer, source_ids, reference_ids, sources, references)

    def bleu(self, translations: Sequence[str]) -> float:
        """Returns the BLEU of translations of the validation sources."""
        return float(BLEU().corpus_score(translations, [self.references]).score)


class LearningMeter(TrainerCallback):
    """Scores the model after each epoch, with the clock stopped, and ends training when that was wanted.

    Args:
        file: Where the epochs are kept.
        epochs: Those of before, where a trial goes on.
        num_epochs: The last epoch.
        until: The BLEU that ends it before, or `None`.
        corpus: The validation pairs, and what decodes.
    """

    def __init__(
        self, file: Path, epochs: Sequence[Epoch], num_epochs: int, until: float | None, corpus: Corpus
    ) -> None:
        self.file, self.epochs, self.num_epochs, self.until, self.corpus = (
            file,
            list(epochs),
            num_epochs,
            until,
            corpus,
        )
        self.started = 0.0

    def is_done(self) -> bool:
        """Returns whether the last epoch or the score is reached."""
        is_reached = self.until is not None and any(epoch.bleu >= self.until for epoch in self.epochs)
        return is_reached or len(self.epochs) >= self.num_epochs

    def add(self, seconds: float, bleu: float, update: int, loss: float | None) -> None:
        """Adds an epoch, which took so many seconds, and its scores."""
        seconds += self.epochs[-1].seconds if self.epochs else 0.0
        self.epochs.append(Epoch(len(self.epochs) + 1, seconds, bleu, update, loss))
        write_text(self.file, json.dumps([asdict(epoch) for epoch in self.epochs], indent=2) + "\n")
        tell(f"{self.file.stem}, epoch {len(self.epochs)}: BLEU {bleu:.2f} after {seconds / 60:.1f} min")

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Starts the clock."""
        self.started = time.process_time()

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stops the clock and scores."""
        seconds = time.process_time() - self.started
        model = kwargs["model"].eval()
        self.add(seconds, greedy_bleu(model, self.corpus), state.global_step, validation_loss(model, self.corpus))
        model.train()
        control.should_save = True
        control.should_training_stop |= self.is_done()


def greedy_bleu(model: Any, corpus: Corpus) -> float:
    """Returns the BLEU of greedy translations of the validation sources, which are batched by length."""
    order = sorted(range(len(corpus.sources)), key=lambda row: len(corpus.sources[row]))
    ids: list[Ids] = []
    for batch in batches_of([corpus.sources[row] for row in order], BATCH):
        ids += search(model, pad(corpus.tokenizer, batch, model.device), beam_size=1)
    by_row = dict(zip(order, corpus.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True))
    return corpus.bleu([by_row[row] for row in range(len(order))])


@torch.no_grad()
def validation_loss(model: Any, corpus: Corpus) -> float:
    """Returns the mean cross-entropy of the validation targets' tokens, without label smoothing."""
    sides = zip(corpus.sources, corpus.targets, strict=True)
    pairs = [{"input_ids": source, "labels": target} for source, target in sides]
    pairs.sort(key=lambda pair: len(pair["labels"]))
    collate = Seq2SeqCollator(corpus.tokenizer, model=model)
    total, count = 0.0, 0
    for start in range(0, len(pairs), BATCH):
        batch = {name: value.to(model.device) for name, value in collate(pairs[start : start + BATCH]).items()}
        labels = batch.pop("labels")
        logits = model(**batch).logits
        total += float(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
        count += int((labels != -100).sum())
    return total / count


def train_marian_cpp(meter: LearningMeter, folder: Path, python: str, settings: dict[str, Any]) -> None:
    """Trains Marian C++ in its own environment, an epoch at a time, until the meter has enough.

    Args:
        meter: What scores it.
        folder: Where the model is, or will be.
        python: The Python of that environment, which `scripts/install_peer.sh pymarian` makes.
        settings: Sizes, seed, rate and warm-up, as marian_cpp.py takes them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in zip(("train.source", "train.target"), meter.corpus.files, strict=True):
        write_text(folder / name, "".join(f"{line}\n" for line in read_lines(file)))
    sources = "".join(f"{text}\n" for text in meter.corpus.source_texts)
    command = [python, str(MARIAN_SCRIPT)]
    while not meter.is_done():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        now = json.dumps(settings | {"epochs": len(meter.epochs) + 1})
        _call([*command, "train", str(folder), now])
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        translations = _call([*command, "translate", str(folder), "1"], sources).splitlines()
        progress = (folder / "model.npz.progress.yml").read_text(encoding="utf-8")
        update = next(line.split()[1] for line in progress.splitlines() if line.startswith("batches:"))
        meter.add(seconds, meter.corpus.bleu(translations), int(update), None)


def _call(command: Sequence[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(
            f"`{' '.join(command)}` must end well, but ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return done.stdout
