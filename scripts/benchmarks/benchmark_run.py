"""One training run of either model through its trainer, with a meter for time, real tokens and memory."""

import ctypes
import gc
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    default_data_collator,
)

from hf_seq2seq.data import Seq2SeqCollator
from hf_seq2seq.training import Seq2SeqTransformerTrainer, Seq2SeqTransformerTrainingArguments
from scripts.benchmarks.benchmark_models import MODEL_MAKERS, PEER, ModelSizes


PAIRS = 64  # in a batch of random or length-grouped pairs

# Training arguments that a benchmark may change.
DEFAULTS: dict[str, Any] = {
    "output_dir": str(Path(tempfile.gettempdir()) / "benchmark_training"),  # nothing is written there
    "save_strategy": "no",
    "per_device_train_batch_size": PAIRS,
    "learning_rate": 1e-4,
}


@dataclass(frozen=True)
class Settings:
    """What holds for every measurement."""

    device: str
    dtype: str
    threads: int
    steps: int
    repeats: int
    sizes: ModelSizes
    warmup: int = 5  # steps before any is measured


@dataclass
class Measurement:
    """What a training run showed."""

    tokens: int
    seconds: float
    steps: int
    memory: int | None

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens a second."""
        return self.tokens / self.seconds


class Memory:
    """Bytes in use above a level: the resident memory of this process (Linux), or what is allocated on the GPU.

    On a CPU freed memory is given back to the system first, else a step could use it unseen.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        gc.collect()
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.level = torch.cuda.memory_allocated()
        else:
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM, the peak, to VmRSS, the level
            self.level = self._status("VmRSS")

    def peak(self) -> int:
        """Returns the most bytes above the level since this object was made."""
        peak: int = torch.cuda.max_memory_allocated() if self.device == "cuda" else self._status("VmHWM")
        return peak - self.level

    @staticmethod
    def _status(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


class Meter(TrainerCallback):
    """Takes the time between the end of the warm-up and the end of the last step, and the memory of one step more."""

    def __init__(self, settings: Settings, *, measures_memory: bool = False, profiler: Any = None) -> None:
        self.device, self.profiler = settings.device, profiler
        self.first, self.last = settings.warmup, settings.warmup + settings.steps
        self.max_steps = self.last + measures_memory
        self.done = 0
        self.tokens: torch.Tensor | int = 0
        self.times: list[float] = []
        self.memory: Memory | None = None
        self.peak: int | None = None

    def count(self, labels: torch.Tensor) -> None:
        """Adds the real tokens of a step's labels."""
        if self.first <= self.done < self.last:
            self.tokens += (labels != -100).sum()

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Notes the memory before the last step of all."""
        if self.done == self.last:
            self.memory = Memory(self.device)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Notes time and memory."""
        self.done += 1
        if self.done in (self.first, self.last):
            if self.device == "cuda":
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())
            if self.profiler is not None:
                (self.profiler.start if self.done == self.first else self.profiler.stop)()
        if self.memory is not None:
            self.peak = self.memory.peak()

    def measurement(self) -> Measurement:
        """Returns what was measured, once training is over."""
        return Measurement(int(self.tokens), self.times[1] - self.times[0], self.last - self.first, self.peak)


class _Metered:
    """What both trainers get: they show each batch to a meter."""

    meter: Meter | None = None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        if self.meter is not None:
            self.meter.count(inputs["labels"])
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        return loss


class StockTrainer(_Metered, Seq2SeqTrainer):
    """The stock trainer with a meter."""


class OurTrainer(_Metered, Seq2SeqTransformerTrainer):
    """Our trainer with a meter."""


def make_trainer(
    kind: str,
    settings: Settings,
    data: Any,
    tokenizer: PreTrainedTokenizerFast | None,
    *,
    model: PreTrainedModel | None = None,
    seed: int = 0,
    max_steps: int = 1,
    **options: Any,
) -> Any:
    """Returns a trainer of a model: ours for our model, the stock one for MarianMT.

    Args:
        kind: PEER or OURS.
        settings: Device, type and sizes.
        data: The training pairs.
        tokenizer: What pads; `None` where all pairs have one length.
        model: The model; by default a new one of the settings' sizes.
        seed: The seed of weights and batches.
        max_steps: Number of steps.
        **options: Fields of the training arguments.
    """
    if model is None:
        torch.manual_seed(seed)
        model = MODEL_MAKERS[kind](settings.sizes)
    make_arguments = Seq2SeqTrainingArguments if kind == PEER else Seq2SeqTransformerTrainingArguments
    arguments = make_arguments(
        seed=seed,
        max_steps=max_steps,
        bf16=settings.dtype == "bfloat16",
        use_cpu=settings.device == "cpu",
        label_smoothing_factor=0.1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **(DEFAULTS | options),
    )
    collator: Any = default_data_collator
    if tokenizer is not None:
        collator = (DataCollatorForSeq2Seq if kind == PEER else Seq2SeqCollator)(tokenizer, model=model)
    trainer = (StockTrainer if kind == PEER else OurTrainer)(model, arguments, collator, data)
    trainer.remove_callback(PrinterCallback)
    return trainer


def train(
    kind: str,
    settings: Settings,
    data: Any,
    tokenizer: PreTrainedTokenizerFast | None = None,
    *,
    measures_memory: bool = False,
    profiler: Any = None,
    **options: Any,
) -> Measurement:
    """Trains a new model for `settings.steps` after a warm-up; see `make_trainer` for the arguments."""
    torch.set_num_threads(settings.threads)
    meter = Meter(settings, measures_memory=measures_memory, profiler=profiler)
    trainer = make_trainer(kind, settings, data, tokenizer, max_steps=meter.max_steps, **options)
    trainer.meter = meter
    trainer.add_callback(meter)
    trainer.train()
    return meter.measurement()
