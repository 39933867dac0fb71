"""The texts that a trainer's evaluation generates, and their scores."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_seq2seq.text_lines import as_one_line

from .metrics import chosen_metrics, score


if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedTokenizerBase


def generation_metrics(
    tokenizer: "PreTrainedTokenizerBase",
    references: Sequence[str] | None = None,
    metrics: str | Iterable[str] | None = None,
    sources: Sequence[str] | None = None,
) -> Callable[["EvalPrediction"], dict[str, float]]:
    """Returns a `compute_metrics` for a Seq2SeqTrainer that evaluates by generation (`predict_with_generate`).

    It returns the values of `score` without the signatures: experiment trackers take only numbers.

    Args:
        tokenizer: The tokenizer of the model.
        references: The text of each target, in the order of the dataset that is evaluated. Without them the decoded
            labels take their place. Those lack what the tokenizer does not know and what was cut off, so that scores
            are too high where there is such.
        metrics: The names of the metrics, such as "bleu,chrf"; None is `DEFAULT_METRICS`.
        sources: The text of each source, for metrics of your own.
    """
    metrics = metrics if metrics is None or isinstance(metrics, str) else list(metrics)
    names = list(chosen_metrics(metrics))

    def compute_metrics(prediction: "EvalPrediction") -> dict[str, float]:
        texts = decode(tokenizer, prediction.label_ids) if references is None else list(references)
        scores = score(decode(tokenizer, prediction.predictions), texts, metrics, sources=sources)
        return {name: scores[name] for name in names}

    return compute_metrics


def decode(tokenizer: "PreTrainedTokenizerBase", ids: Any) -> list[str]:
    """Returns the texts of rows of token ids as a trainer returns them, with -100 for padding.

    A text is one line, as in translations: a line break in it becomes a space.
    """
    ids = np.where(np.asarray(ids) == -100, tokenizer.pad_token_id, ids)
    texts: list[str] = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return [as_one_line(text) for text in texts]
