# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""Dropout that is cheap on a CPU. This file travels with published checkpoints."""

import torch
from torch import nn


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Returns states of which each element was set to 0 with probability p: Vaswani et al. (2017), section 5.4.

    torch draws a random number for each element. On a CPU this function draws one 64-bit number for four elements, 16
    bits each, so p is rounded to a multiple of 2^-16. Kept elements are divided by 1 minus the rounded rate, so that
    the mean stays.

    Measured on one core with torch 2.13: 2 ns for an element instead of 13, and 502 ms for a training step instead of
    536 (3 + 3 layers of width 128, 2,000 tokens, 64 pairs of 16 tokens).

    Args:
        states: Any shape. On other devices, and where the code is compiled or transformed by torch.func, torch's own
            dropout is used.
        p: The rate.
        training: Whether anything is dropped.
    """
    is_plain = type(states) is torch.Tensor and states.device.type == "cpu" and not torch.compiler.is_compiling()
    is_plain = is_plain and not torch._C._are_functorch_transforms_active()  # which give each row its own numbers
    num_dropped = round(p * 2**16)  # of 2^16 equally likely numbers
    if not training or not is_plain or not 0 < num_dropped < 2**16:
        return nn.functional.dropout(states, p=p, training=training)
    bits = torch.empty((states.numel() + 3) // 4, dtype=torch.int64, device=states.device).random_(-(2**63), None)
    numbers = bits.view(torch.int16)[: states.numel()].view(states.shape)  # from -2^15
    return states * (numbers >= num_dropped - 2**15) * (2**16 / (2**16 - num_dropped))
