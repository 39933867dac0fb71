"""Rows of token ids become the tensors of a batch."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def pad_rows(
    rows: Sequence[Sequence[int]],
    pad_id: int,
    device: torch.device | str = "cpu",
    side: Literal["left", "right"] = "right",
) -> tuple[Tensor, Tensor]:
    """Returns rows of unequal length as ids (B, L) and their mask (B, L), which is 1 for tokens and 0 for padding.

    Args:
        rows: Token ids.
        pad_id: What fills the shorter rows up.
        device: Where the tensors are.
        side: Where the padding is.
    """
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad_id, padding_side=side)
    mask = pad_sequence([torch.ones_like(row) for row in tensors], batch_first=True, padding_side=side)
    return ids.to(device), mask.to(device)
