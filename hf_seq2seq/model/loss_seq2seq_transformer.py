# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""The loss: label-smoothed cross-entropy (Vaswani et al., 2017, section 5.4), with R-Drop where it is asked for.

In training the logits of a whole batch are never held at once: the output projection and the loss are computed for a
chunk of positions at a time. This file travels with published checkpoints.

Shapes: B batch, T target length, D d_model, V vocabulary, N target positions that have a label.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


# Positions projected onto the vocabulary at a time in training.
LOSS_CHUNK = 256
# Factor on float16 gradients of the hidden states, divided out again in the backward pass: where a token is almost
# certain, what is left is spread over the vocabulary in parts too small for float16.
_HALF_SCALE = 64.0


def check_labels(labels: torch.Tensor, vocab_size: int, smoothing: float, r_drop_alpha: float) -> None:
    """Checks that labels can be learned from; looks at their values only on a CPU, since a GPU would be waited for.

    Args:
        labels: Target token ids, shape (B, T); -100 where none is to be predicted.
        vocab_size: The target vocabulary's size.
        smoothing: The share of the target distribution that is spread over the vocabulary.
        r_drop_alpha: The weight of R-Drop's term; 0 without it.

    Raises:
        ValueError: If a number is out of range, a label is no target token's id, **or** with R-Drop, if the number of
            rows is odd or the labels of two copies differ.
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"`smoothing` must be from 0 to 1, but is {smoothing} instead.")
    if not 0 <= r_drop_alpha < math.inf:
        raise ValueError(f"`r_drop_alpha` must be at least 0 and finite, but is {r_drop_alpha} instead.")
    if r_drop_alpha and len(labels) % 2:
        raise ValueError(
            f"The number of rows must be even with `r_drop_alpha` ({r_drop_alpha}), but is {len(labels)} instead. "
            "Repeat every tensor of the batch with `tensor.repeat_interleave(2, dim=0)`."
        )
    if labels.device.type != "cpu" or torch.compiler.is_compiling() or _is_transformed():
        return
    is_foreign = (labels >= vocab_size) | ((labels < 0) & (labels != -100))
    if is_foreign.any():
        raise ValueError(
            f"`labels` must be at least 0 and below the target vocabulary's size ({vocab_size}), or -100, but one "
            f"is {int(labels[is_foreign][0])} instead. Use the tokenizer that the model was made for."
        )
    if r_drop_alpha and not torch.equal(labels[0::2], labels[1::2]):
        raise ValueError(
            "`labels` must be equal in rows 2i and 2i + 1 with `r_drop_alpha`, but differ. Repeat every tensor of "
            "the batch with `tensor.repeat_interleave(2, dim=0)`."
        )


def summed_loss(
    head: nn.Module,
    hidden_states: torch.Tensor,
    logits: torch.Tensor | None,
    labels: torch.Tensor,
    label_smoothing: float,
    r_drop_alpha: float,
) -> torch.Tensor:
    """Returns the loss, summed over labels that are not -100.

    Args:
        head: The output projection, D to V.
        hidden_states: What it projects, shape (B, T, D).
        logits: What it made of them, shape (B, T, V), or `None`: they are then computed a chunk at a time.
        labels: Target token ids, shape (B, T); -100 where none is to be predicted.
        label_smoothing: The share eps_ls of the target distribution that is spread over the vocabulary.
        r_drop_alpha: The weight alpha of R-Drop's term. Where it is not 0, rows 2i and 2i + 1 are copies of one pair.
    """
    if logits is None and _has_gradients_for_each_row(head):
        logits = head(hidden_states)
    if r_drop_alpha:  # the two copies of a position side by side: (B, T, ...) -> (B / 2, T, 2, ...)
        hidden_states, labels = (x.unflatten(0, (-1, 2)).transpose(1, 2) for x in (hidden_states, labels))
        logits = None if logits is None else logits.unflatten(0, (-1, 2)).transpose(1, 2)
    if logits is not None:
        return _plain_loss(logits.flatten(0, -2), labels.flatten(), label_smoothing, r_drop_alpha)
    is_target = labels != -100
    states, targets = hidden_states[is_target], labels[is_target]  # (B, T, D) -> (N, D)
    if _is_plain(head):
        loss: torch.Tensor = _ChunkedCrossEntropy.apply(
            states, head.weight, head.bias, targets, label_smoothing, r_drop_alpha
        )
        return loss
    chunk_size = _chunk_size(r_drop_alpha)
    # Where no label is left, there is one empty chunk, so that the loss has a gradient.
    chunk_losses = [
        checkpoint(
            lambda x, y: _plain_loss(head(x), y, label_smoothing, r_drop_alpha),
            chunk,
            chunk_targets,
            use_reentrant=False,
        )
        for chunk, chunk_targets in zip(states.split(chunk_size), targets.split(chunk_size), strict=True)
    ]
    return torch.stack(chunk_losses).sum()


def _is_transformed() -> bool:
    """Returns whether a function transform of torch.func is at work, under which values cannot be looked at."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def _has_gradients_for_each_row(head: nn.Module) -> bool:
    """Returns whether chunks of positions would hide from which row a gradient comes, or stop a torch.func transform.

    Opacus, whose hooks give each parameter a gradient for each row, names it `grad_sample`.
    """
    return _is_transformed() or hasattr(getattr(head, "weight", None), "grad_sample")


def _is_plain(head: nn.Module) -> bool:
    """Returns whether the head's weight can be used directly: no adapter, no sharding, no hook of accelerate's."""
    hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
    is_linear = type(head) is nn.Linear and type(head.weight) is nn.Parameter
    return is_linear and not any(hooks) and not hasattr(head, "_hf_hook")


def _plain_loss(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float, r_drop_alpha: float
) -> torch.Tensor:
    """Returns the loss of (N, V) logits, in float32 or wider, summed over labels but -100.

    It is the label-smoothed cross-entropy and, where `r_drop_alpha` is not 0 and rows 2n and 2n + 1 are twins,
    R-Drop's term: KL(p1 || p2) + KL(p2 || p1) is the sum of (p1 - p2) log(p1 / p2) over the vocabulary.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = nn.functional.cross_entropy(
        logits, labels, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    if r_drop_alpha:
        first, second = logits.log_softmax(dim=-1).unflatten(0, (-1, 2)).unbind(dim=1)
        divergence = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1)
        loss = loss + r_drop_alpha / 2 * divergence.masked_fill(labels[0::2] == -100, 0).sum()
    return loss


def _chunk_size(r_drop_alpha: float) -> int:
    """Returns the number of positions in a chunk: with R-Drop a whole number of twins, at least one pair of them."""
    return max(LOSS_CHUNK // 2, 1) * 2 if r_drop_alpha else LOSS_CHUNK


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Projection and label-smoothed cross-entropy, summed over positions, without ever holding all logits.

    Loss and gradients are formed in one pass over chunks of positions, so that no logits are kept or computed again
    for the backward pass. R-Drop's divergence is added where it is asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        label_smoothing: float,
        r_drop_alpha: float,
    ) -> torch.Tensor:
        """Returns the summed loss of `hidden_states` (N, D) against `labels` (N,), none of them -100.

        Where `r_drop_alpha` is not 0, positions 2n and 2n + 1 are twins.
        """
        device = hidden_states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_states.dtype
        scale = _HALF_SCALE if dtype == torch.float16 else 1.0
        ctx.input_dtypes = (hidden_states.dtype, weight.dtype)
        ctx.scale = scale
        sum_dtype = torch.promote_types(dtype, torch.float32)
        loss = torch.zeros((), dtype=sum_dtype, device=hidden_states.device)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden_states, dtype=dtype) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=sum_dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=sum_dtype) if needs_bias and bias is not None else None
        with torch.autocast(device, enabled=False):
            projection = weight.to(dtype)
            chunk_size = _chunk_size(r_drop_alpha)
            for start in range(0, hidden_states.shape[0], chunk_size):
                rows = slice(start, start + chunk_size)
                states = hidden_states[rows].to(dtype)
                logits = (states @ projection.t()).to(sum_dtype)  # (N, D) -> (N, V)
                if bias is not None:
                    logits += bias
                chunk_loss, grad_logits = _loss_and_gradient(logits, labels[rows], label_smoothing, r_drop_alpha)
                loss += chunk_loss
                if grad_bias is not None:
                    grad_bias += grad_logits.sum(0)
                if grad_weight is not None and dtype == torch.bfloat16:
                    grad_weight += grad_logits.to(dtype).t() @ states
                elif grad_weight is not None:  # in float32 also for float16, in which a chunk's sum could overflow
                    grad_weight.addmm_(grad_logits.t(), states.to(sum_dtype))
                if grad_hidden is not None:
                    grad_hidden[rows] = grad_logits.mul_(scale).to(dtype) @ projection
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Scales the gradients formed in the forward pass.

        Raises:
            RuntimeError: If these are to be differentiated again (`create_graph=True`): they are constants here.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "`return_logits` must be True for second derivatives of the loss in training mode, but is not. Call "
                "the model with `return_logits=True`."
            )
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        hidden_dtype, weight_dtype = ctx.input_dtypes
        return (
            None
            if grad_hidden is None
            else (grad_hidden.to(grad_loss.dtype) * (grad_loss / ctx.scale)).to(hidden_dtype),
            None if grad_weight is None else (grad_weight * grad_loss).to(weight_dtype),
            None if grad_bias is None else (grad_bias * grad_loss).to(weight_dtype),
            None,
            None,
            None,
        )


def _loss_and_gradient(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float, r_drop_alpha: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the summed loss of (N, V) logits and its gradient, which is written over the logits.

    The target distribution is 1 - eps on the label plus eps / V everywhere, so the gradient of the cross-entropy is
    softmax(logits) - (1 - eps) onehot(label) - eps / V. Where `r_drop_alpha` is not 0, `_add_divergence` adds to both.
    """
    num_tokens = logits.shape[-1]
    logits -= logits.amax(dim=-1, keepdim=True)
    at_label = logits.gather(-1, labels[:, None])[:, 0]
    mean = logits.mean(dim=-1) if label_smoothing else at_label
    twin_difference = logits[0::2] - logits[1::2] if r_drop_alpha else None
    total = logits.exp_().sum(dim=-1, keepdim=True)
    loss = (total[:, 0].log() - (1 - label_smoothing) * at_label - label_smoothing * mean).sum()
    gradient = logits.div_(total)
    if twin_difference is not None:
        loss += _add_divergence(gradient, twin_difference, r_drop_alpha)
    if label_smoothing:
        gradient -= label_smoothing / num_tokens
    gradient.scatter_add_(-1, labels[:, None], gradient.new_full((len(labels), 1), label_smoothing - 1))
    return loss, gradient


def _add_divergence(probabilities: torch.Tensor, twin_difference: torch.Tensor, r_drop_alpha: float) -> torch.Tensor:
    """Returns R-Drop's term for twins, and adds its gradient by the logits to their probabilities.

    The term is alpha (KL(p1 || p2) + KL(p2 || p1)) / 2: Liang et al. (2021), section 2.1, equation 2. Its gradient by
    the logits of p1 is alpha / 2 times p1 (log(p1 / p2) - KL(p1 || p2)) + p1 - p2. The difference of the logits stands
    for log(p1 / p2), from which it differs by a constant for each pair of twins: that cancels in both.

    Args:
        probabilities: Softmax of the logits, shape (2 N, V), rows 2n and 2n + 1 being twins; overwritten.
        twin_difference: Logits of p1 minus those of p2, shape (N, V); overwritten.
        r_drop_alpha: The weight alpha of the term.

    Returns:
        The term, summed over the N pairs of twins.
    """
    first, second = probabilities[0::2], probabilities[1::2]
    first_change, second_change = first * twin_difference, second * twin_difference
    first_kl = first_change.sum(dim=-1, keepdim=True)  # KL(p1 || p2) plus the constant
    second_kl = second_change.sum(dim=-1, keepdim=True).neg_()  # KL(p2 || p1) minus the constant
    difference = torch.sub(first, second, out=twin_difference)
    first_change.addcmul_(first, first_kl, value=-1).add_(difference)
    second_change.addcmul_(second, second_kl).add_(difference)
    first.add_(first_change, alpha=r_drop_alpha / 2)
    second.sub_(second_change, alpha=r_drop_alpha / 2)
    return (first_kl + second_kl).sum() * (r_drop_alpha / 2)
