"""An output ends at an end token of its model or at its greatest length, which is the paper's."""

import pytest
from transformers import GenerationConfig

from hf_seq2seq.output_limits import end_ids, longest_output, up_to_end


def test_an_output_has_at_most_50_tokens_more_than_its_source_and_no_more_than_there_are_positions() -> None:
    assert longest_output(7) == 57
    assert longest_output(7, num_positions=56) == 56


@pytest.mark.parametrize(("eos_token_id", "expected"), [(None, []), (2, [2]), ([2, 5], [2, 5])])
def test_a_model_may_have_no_end_token_or_several(eos_token_id: int | list[int] | None, expected: list[int]) -> None:
    assert end_ids(GenerationConfig(eos_token_id=eos_token_id)) == expected


def test_what_follows_the_first_end_token_is_filling() -> None:
    assert up_to_end([7, 5, 2, 2, 0], [2, 5]) == [7, 5]
    assert up_to_end([7, 8, 0], [2]) == [7, 8, 0]
