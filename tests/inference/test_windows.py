"""Items are grouped without a loss, the first ones soon and those of like length together."""

from collections.abc import Iterator

import pytest

from hf_seq2seq.inference.windows import in_batches, in_windows


def test_windows_grow_and_hold_all_items_in_order() -> None:
    windows = list(in_windows(range(100), 20))
    assert [len(window) for window in windows] == [1, 8, 20, 20, 20, 20, 11]
    assert [item for window in windows for item in window] == list(range(100))


def test_a_window_that_is_due_is_not_filled_up() -> None:
    assert list(in_windows("abcd", 8, is_due=lambda: True)) == [["a"], ["b"], ["c"], ["d"]]


def test_what_came_before_a_failure_is_given_out_first() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("the disk is gone")

    windows = in_windows(items(), 8)
    assert [next(windows), next(windows)] == [[1], [2, 3]]
    with pytest.raises(OSError, match="the disk is gone"):
        next(windows)


def test_batches_begin_with_the_longest_and_keep_to_the_budget_but_for_a_single_item() -> None:
    assert list(in_batches([9, 30, 10, 2, 1], lambda length: length, batch_tokens=20)) == [[30], [10, 9], [2, 1]]
