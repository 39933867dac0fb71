"""Runs one training of either model through its trainer, and measures time, real tokens and memory."""

import ctypes
import gc
import json
import os
import platform
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
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
    """The settings that all measurements of a benchmark share."""

    device: str
    dtype: str
    threads: int
    steps: int
    repeats: int
    sizes: ModelSizes
    warmup: int = 5  # steps before any is measured


@dataclass
class Measurement:
    """What was measured in a training run: real target tokens, seconds, steps, and the peak of a step in bytes."""

    tokens: int
    seconds: float
    steps: int
    memory: int | None

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens a second."""
        return self.tokens / self.seconds


class Memory:
    """Measures how many bytes come into use after this object is made.

    On a CPU these are the resident bytes of this process (only on Linux), on a GPU those that torch allocates. Memory
    that was freed before goes back to the system first, since a step could use it again unseen.
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
        """Returns the most bytes in use at once, above those in use when this object was made."""
        peak: int = torch.cuda.max_memory_allocated() if self.device == "cuda" else self._status("VmHWM")
        return peak - self.level

    @staticmethod
    def _status(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


class Meter(TrainerCallback):
    """Measures the time from the end of the warm-up to the end of the last step, and the memory of one more step."""

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
        """Starts to measure the memory before the extra step."""
        if self.done == self.last:
            self.memory = Memory(self.device)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes the time after the first and the last timed step, and the memory after the extra one."""
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
        """Returns what was measured, after the training."""
        return Measurement(int(self.tokens), self.times[1] - self.times[0], self.last - self.first, self.peak)


class _Metered:
    """Counts the tokens of each batch with a meter."""

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
        tokenizer: The tokenizer, for padding. `None` if all pairs have the same length.
        model: The model. By default a new one with the settings' sizes.
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
    """Trains a new model for `settings.steps` after a warm-up.

    Args:
        kind: PEER or OURS.
        settings: Device, type, sizes and numbers of steps.
        data: The training pairs.
        tokenizer: The tokenizer, for padding. `None` if all pairs have the same length.
        measures_memory: Whether to measure the memory of one more step.
        profiler: Runs during the timed steps.
        **options: Further arguments of `make_trainer`.
    """
    torch.set_num_threads(settings.threads)
    meter = Meter(settings, measures_memory=measures_memory, profiler=profiler)
    trainer = make_trainer(kind, settings, data, tokenizer, max_steps=meter.max_steps, **options)
    trainer.meter = meter
    trainer.add_callback(meter)
    trainer.train()
    return meter.measurement()


def make_profiler(device: str) -> torch.profiler.profile:
    """Returns a profiler of the CPU's operators and, if the device is a GPU, of its kernels."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    return torch.profiler.profile(activities=activities)


def print_operators(profiler: torch.profiler.profile, device: str) -> None:
    """Prints the 15 operators that took most of the time."""
    averages = profiler.key_averages()
    print(averages.table(sort_by=f"self_{device}_time_total", row_limit=15, max_name_column_width=60))


def tell(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def describe_machine(settings: Settings) -> dict[str, Any]:
    """Returns the processor, the system and the versions of libraries, on which figures depend."""
    cpu_info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpu_info.read_text()) if cpu_info.exists() else []
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if settings.device == "cuda" else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "transformers", "accelerate", "datasets", "numpy")},
    }


def write_json(content: dict[str, Any], file: Path) -> None:
    """Writes settings, machine and results of a benchmark, and makes the folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
