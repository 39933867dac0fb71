"""What messages quote of an error."""

import pytest

from hf_seq2seq.error_messages import first_line


@pytest.mark.parametrize(
    ("error", "quoted"),
    [(OSError("\nno room\nat all"), "no room"), (ValueError(""), "ValueError"), (KeyError(), "KeyError")],
    ids=repr,
)
def test_the_first_line_of_an_error_is_never_empty(error: Exception, quoted: str) -> None:
    assert first_line(error) == quoted
