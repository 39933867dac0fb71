"""Rows of unequal length become one tensor, whose mask tells tokens from padding."""

from typing import Literal

import pytest

from hf_seq2seq.inference.padding import pad_rows


@pytest.mark.parametrize(
    ("side", "ids", "mask"),
    [
        ("right", [[4, 5, 6], [7, 9, 9], [9, 9, 9]], [[1, 1, 1], [1, 0, 0], [0, 0, 0]]),
        ("left", [[4, 5, 6], [9, 9, 7], [9, 9, 9]], [[1, 1, 1], [0, 0, 1], [0, 0, 0]]),
    ],
)
def test_shorter_rows_are_filled_up_on_one_side(
    side: Literal["left", "right"], ids: list[list[int]], mask: list[list[int]]
) -> None:
    padded = pad_rows([[4, 5, 6], [7], []], pad_id=9, side=side)
    assert [tensor.tolist() for tensor in padded] == [ids, mask]
