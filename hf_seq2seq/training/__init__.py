"""Train a model: arguments, trainer, learning rate, scores, and a whole run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from hf_seq2seq.evaluation import generation_metrics, score

    from .arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
    from .averaging import average_checkpoints
    from .command_line import parse_arguments
    from .run import run_training
    from .schedule import paper_learning_rate
    from .trainer import Seq2SeqTransformerTrainer


# Imported when first asked for: scoring needs no trainer, and reading arguments needs no datasets.
_LAZY = {
    "DataArguments": ".arguments",
    "ModelArguments": ".arguments",
    "Seq2SeqTransformerTrainer": ".trainer",
    "Seq2SeqTransformerTrainingArguments": ".arguments",
    "average_checkpoints": ".averaging",
    "generation_metrics": "hf_seq2seq.evaluation",
    "paper_learning_rate": ".schedule",
    "parse_arguments": ".command_line",
    "run_training": ".run",
    "score": "hf_seq2seq.evaluation",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)


__all__ = [
    "DataArguments",
    "ModelArguments",
    "Seq2SeqTransformerTrainer",
    "Seq2SeqTransformerTrainingArguments",
    "average_checkpoints",
    "generation_metrics",
    "paper_learning_rate",
    "parse_arguments",
    "run_training",
    "score",
]
