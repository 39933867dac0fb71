"""The benchmark of the start: its table, and the first line of the smallest model."""

from pathlib import Path

import pytest
from inference.test_translator import letters_model
from transformers import PreTrainedTokenizerFast

from scripts.benchmarks.benchmark_startup import OURS, PEER, STAGES, main, stage_seconds, table


def test_the_table_has_the_least_and_the_median() -> None:
    assert table({"x": [3.0, 1.0, 2.5]}).splitlines()[-1] == "| `x` | 1.00 | 2.50 |"


def test_stages_share_their_variables_and_are_timed_in_order() -> None:
    seconds = stage_seconds(
        {"set": "a = 1", "use": "end = time.process_time() + 0.05\nwhile time.process_time() < end: a += 1"}
    )
    assert list(seconds) == ["set", "use"]
    assert seconds["use"] >= 0.05  # the loop sees to it


@pytest.mark.slow
def test_the_first_line_is_measured_against_marian(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = letters_model(end_bias=3.0, norm_position="post")
    model.save_pretrained(tmp_path)
    letter_tokenizer.save_pretrained(tmp_path)
    main(["--model", str(tmp_path), "--sentence", "a b c", "--rounds", "1"])
    out = capsys.readouterr().out
    assert "the same line: yes" in out
    for name in (OURS, PEER):
        assert f"| `{name}` |" in out
    assert all(f"| {stage} | " in out for stage in STAGES[OURS])
