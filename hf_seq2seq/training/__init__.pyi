from .arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from .averaging import average_checkpoints
from .command_line import parse_arguments
from .former_names import generation_metrics, score
from .run import run_training
from .schedule import paper_learning_rate
from .trainer import Seq2SeqTransformerTrainer

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
