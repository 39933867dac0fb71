"""The loss of an evaluation: the mean over all target tokens, whatever the batches and the number of processes."""

import inspect
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import slice_tensors
from torch import nn


class EvaluationLosses:
    """Sums the losses of an evaluation, and gathers what the processes found, without the pairs that are repeated.

    Args:
        accelerator: What joins the processes.
        num_pairs: The number of pairs where an `InOrderBatchSampler` makes the batches; None where accelerate loads
            them.
    """

    def __init__(self, accelerator: Accelerator, num_pairs: int | None = None) -> None:
        self._accelerator = accelerator
        self._num_left = num_pairs  # of the steps to come
        self._num_wanted = 0  # pairs of this step, of all processes
        self._sums: list[torch.Tensor] = []  # of each step, shape (2,): loss and number of targets

    def begin_step(self, rows: torch.Tensor) -> None:
        """Notes the size of a batch, that of all processes in this step."""
        if self._num_left is not None:
            self._num_wanted = min(len(rows) * self._accelerator.num_processes, self._num_left)
            self._num_left -= self._num_wanted

    def gather(self, values: Any) -> Any:
        """Returns the rows that all processes found in this step, each once."""
        if self._num_left is None:
            return self._accelerator.gather_for_metrics(values)
        return slice_tensors(self._accelerator.gather(values), slice(0, self._num_wanted))

    def compute(self, model: nn.Module, inputs: dict[str, Any], needs_logits: bool) -> tuple[torch.Tensor, Any]:
        """Adds the loss of a batch, and returns its mean and the logits, shape (B, T, V), or None.

        The model of this package then never holds the logits of the whole batch, as in training.
        """
        if self._num_left is None:
            return self._compute_by_rows(model, inputs)
        labels = inputs["labels"]
        num_own = self._num_wanted - self._accelerator.process_index * len(labels)
        if num_own < len(labels):  # the rows behind them are repeated ones
            labels = labels.masked_fill(torch.arange(len(labels), device=labels.device)[:, None] >= num_own, -100)
            inputs = {**inputs, "labels": labels}
        logits = None
        if needs_logits or not _computes_loss_in_chunks(self._accelerator.unwrap_model(model)):
            logits = model(**inputs).logits
            summed = _summed_by_row(logits, labels).sum()
        else:
            summed = model(**inputs, return_logits=False, num_items_in_batch=1).loss.sum()
        count = (labels != -100).sum()
        self._sums.append(torch.stack((summed.float(), count.float())))
        return summed / count.clamp(min=1), logits

    def _compute_by_rows(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[torch.Tensor, Any]:
        """Does the same for batches that accelerate loads, which alone knows the rows that are repeated."""
        logits, labels = model(**inputs).logits, inputs["labels"]
        rows = torch.stack((_summed_by_row(logits, labels), (labels != -100).sum(dim=1).float()), dim=1)
        self._sums.append(self._accelerator.gather_for_metrics(rows).sum(dim=0) / self._accelerator.num_processes)
        return rows[:, 0].sum() / rows[:, 1].sum().clamp(min=1), logits

    def mean(self) -> float | None:
        """Returns the mean loss of all target tokens of all processes, or None where no batch had targets."""
        if not self._sums:
            return None
        sums = self._accelerator.gather(torch.stack(self._sums)[None])  # (processes, steps, 2)
        loss, count = sums.cpu().double().sum(dim=(0, 1)).tolist()
        return float(loss / max(count, 1))


def _computes_loss_in_chunks(model: Any) -> bool:
    """Returns whether a model, or the one that PEFT wraps, can leave its logits out."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "return_logits" in inspect.signature(base.forward).parameters


def _summed_by_row(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the summed cross-entropy of each row, shape (B,); logits (B, T, V), labels (B, T)."""
    losses = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="none"
    )
    return losses.view_as(labels).sum(dim=1)
