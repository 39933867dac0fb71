"""The texts that a trainer's evaluation generates, and their scores."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .metrics import METRICS, score


if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedTokenizerBase


def generation_metrics(tokenizer: "PreTrainedTokenizerBase") -> Callable[["EvalPrediction"], dict[str, float]]:
    """Returns a `compute_metrics` for a Seq2SeqTrainer that evaluates by generation (`predict_with_generate`).

    It returns the values of `score` without the signatures: experiment trackers take only numbers.
    """

    def compute_metrics(prediction: "EvalPrediction") -> dict[str, float]:
        scores = score(decode(tokenizer, prediction.predictions), decode(tokenizer, prediction.label_ids))
        return {name: scores[name] for name in METRICS}

    return compute_metrics


def decode(tokenizer: "PreTrainedTokenizerBase", ids: Any) -> list[str]:
    """Returns the texts of rows of token ids as a trainer returns them, with -100 for padding."""
    ids = np.where(np.asarray(ids) == -100, tokenizer.pad_token_id, ids)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)
