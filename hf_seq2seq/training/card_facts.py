"""The facts of a run for its model card: its command, its settings and how much it trained."""

import json
import shlex
from dataclasses import replace
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from hf_seq2seq.data.lengths import side_lengths
from hf_seq2seq.evaluation import scores_in
from hf_seq2seq.hub.card import CardFacts

from .arguments import (
    FILE_FIELDS,
    TOKENIZER_FIELDS,
    DataArguments,
    ModelArguments,
    Seq2SeqTransformerTrainingArguments,
    changed_fields,
)
from .settings import SETTINGS_WITHOUT_INFLUENCE, Settings


_HYPERPARAMETERS = """
optim learning_rate lr_scheduler_type paper_schedule warmup_steps weight_decay adam_beta1 adam_beta2 adam_epsilon
max_grad_norm label_smoothing_factor tokens_per_batch per_device_train_batch_size gradient_accumulation_steps
r_drop_alpha average_checkpoints fp16 bf16 seed
""".split()  # noqa: SIM905

LINE_LENGTH = 110  # of the command

# Paths of which the command names only the last part: the folders before it are those of one machine.
_PATHS = {*FILE_FIELDS, *TOKENIZER_FIELDS, "model_name_or_path", "dataset_name", "output_dir"}


def describe_run(settings: Settings, dataset: Any) -> CardFacts:
    """Returns what is known of a run's model before it is trained.

    Args:
        settings: The settings of the run.
        dataset: The tokenized training pairs.
    """
    base = settings.model.model_name_or_path
    return replace(
        describe_data(settings.data, dataset),
        command=describe_command(*settings),
        hyperparameters=describe_hyperparameters(settings.training),
        hardware=describe_hardware(settings.training),
        versions={name: version(name) for name in ("hf-seq2seq", "torch", "transformers")},
        base_model=base if base is not None and not Path(base).exists() else None,
    )


def describe_end(trainer: Any, results: dict[str, Any], *, is_whole: bool) -> CardFacts:
    """Returns what is known of a run's model at its end.

    Args:
        trainer: What has trained it, with the facts known before.
        results: The results of the run.
        is_whole: Whether the run went on without a break, so that its time is known.
    """
    seconds = trainer.train_seconds if is_whole else None
    facts = describe_progress(trainer.card, results["num_steps"], trainer.state.epoch, seconds)
    return replace(facts, scores=describe_scores(results))


def describe_hyperparameters(args: Seq2SeqTransformerTrainingArguments) -> dict[str, Any]:
    """Returns the settings that decide what is learned, without those that are off or replaced by another."""
    replaced = {"learning_rate", "lr_scheduler_type"} if args.paper_schedule else set()
    replaced |= {"per_device_train_batch_size"} if args.tokens_per_batch is not None else set()
    values = {name: getattr(args, name) for name in _HYPERPARAMETERS if name not in replaced}
    if (
        args.mixed_precision != "no"
    ):  # asked of the launcher, perhaps, as by `accelerate launch --mixed_precision bf16`
        values[args.mixed_precision] = True
    values["num_processes"] = args.world_size
    return {name: _plain(value) for name, value in values.items() if value not in (None, False)}


def describe_hardware(args: Seq2SeqTransformerTrainingArguments) -> str:
    """Returns the device of each process, and how many there are."""
    if args.device.type == "cuda":
        device = torch.cuda.get_device_name(args.device)
    elif args.device.type == "cpu":
        device = f"CPU with {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"
    else:
        device = args.device.type
    return device if args.world_size == 1 else f"{args.world_size} x {device}"


def describe_command(
    model_args: ModelArguments, data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments
) -> str:
    """Returns a command that trains with these settings, of which it names those that are no defaults."""
    given = changed_fields(model_args) | changed_fields(data_args) | training_args.given
    given["output_dir"] = training_args.output_dir
    options = []
    for name, value in given.items():
        if value is not None and (name == "output_dir" or name not in SETTINGS_WITHOUT_INFLUENCE):
            words = [_word(name, one) for one in (value if isinstance(value, list) else [value])]
            options.append(" ".join([f"--{name}", *map(shlex.quote, words)]))
    lines = ["hf-seq2seq train"]
    for option in options:
        if len(lines[-1]) + len(option) > LINE_LENGTH:
            lines.append("   ")
        lines[-1] += f" {option}"
    return " \\\n".join(lines)


def describe_data(data_args: DataArguments, dataset: Any) -> CardFacts:
    """Returns the facts of the training pairs.

    Args:
        data_args: What names them.
        dataset: The tokenized pairs. Of a stream no numbers are known.
    """
    name = data_args.dataset_name
    is_on_hub = name is not None and not Path(name).exists()
    facts = CardFacts(datasets=[str(name)] if is_on_hub else [])
    if data_args.streaming:
        return facts
    num_target_tokens = int(side_lengths(dataset, "target").sum())
    return replace(facts, num_pairs=len(dataset), num_target_tokens=num_target_tokens)


def describe_scores(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the scores of a run's validation pairs as a card tells them, or none."""
    scores = scores_in(results)
    if not scores:
        return []
    number, total = results["num_scored_pairs"], results["num_validation_pairs"]
    note = {} if number == total else {"note": f"the first of {total:,}"}
    return [{"test_set": "Validation pairs", "split": "validation", "num_sentences": number, **note, **scores}]


def describe_progress(facts: CardFacts, num_updates: int, epochs: float | None, seconds: float | None) -> CardFacts:
    """Returns facts with how much was trained.

    Args:
        facts: The facts so far.
        num_updates: Number of updates.
        epochs: How often each pair was seen.
        seconds: How long it took. None where it is not known, as after a break, and 0 where the clock has not moved.
    """
    facts = replace(facts, updates=num_updates, epochs=None if epochs is None else round(epochs, 4))
    if not seconds:
        return facts
    facts = replace(facts, seconds=round(seconds, 1))
    if facts.num_target_tokens is None or epochs is None:
        return facts
    return replace(facts, target_tokens_per_second=round(epochs * facts.num_target_tokens / seconds, 1))


def _word(name: str, value: Any) -> str:
    if name in _PATHS and Path(str(value)).exists():
        return Path(str(value)).name
    value = _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
