"""The scores of the model that a run ends with."""

import math
from typing import TYPE_CHECKING, Any

from hf_seq2seq.evaluation import decode, score, scores_in

from .trainer import WAYS_OUT, Seq2SeqTransformerTrainer


if TYPE_CHECKING:
    from datasets import Dataset


# To translate more pairs than these at the end of a run would take long; `hf-seq2seq evaluate` scores all.
MAX_SCORED_PAIRS = 1000


def evaluate_final_model(trainer: Seq2SeqTransformerTrainer, dataset: "Dataset", texts: "Dataset") -> dict[str, Any]:
    """Scores translations of the first validation pairs against their texts.

    Decoded labels would not do as references: they lack what was cut off and what the tokenizer does not know.

    Args:
        trainer: What holds the model and the tokenizer.
        dataset: The tokenized pairs.
        texts: Their texts, in the same order.

    Returns:
        `validation_loss`, the values and signatures that `score` returns, and `num_scored_pairs` of
        `num_validation_pairs`.

    Raises:
        FloatingPointError: If the loss is not a finite number.
    """
    num_scored = min(len(dataset), MAX_SCORED_PAIRS)
    predicted = trainer.translate(dataset.select(range(num_scored)), metric_key_prefix="validation")
    loss = (predicted.metrics or {})["validation_loss"]
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"The loss of the validation pairs must be a finite number, but is {loss} instead, so that the model in "
            f"`{trainer.args.output_dir}` is of no use. {WAYS_OUT}"
        )
    hypotheses = decode(trainer.processing_class, predicted.predictions)
    scored = texts[:num_scored]
    scores = score(hypotheses, scored["target"], trainer.args.metrics, sources=scored["source"])
    return {
        "validation_loss": loss,
        **scores_in(scores),
        "num_scored_pairs": num_scored,
        "num_validation_pairs": len(dataset),
    }
