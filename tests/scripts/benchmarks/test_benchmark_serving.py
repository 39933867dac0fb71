"""The benchmark of the server: its table, and on the smallest model a whole run."""

from pathlib import Path

import pytest
from inference.test_translator import letters_model, random_texts
from transformers import PreTrainedTokenizerFast

from scripts.benchmarks import benchmark_serving
from scripts.benchmarks.benchmark_serving import Run, main, table


def test_the_table_compares_with_the_file_of_the_same_round() -> None:
    seconds = [number / 1000 for number in range(100, 0, -1)]
    runs = {"translate, a file": [Run(10.0), Run(20.0)], "1 client": [Run(9.0, seconds), Run(24.0, seconds)]}
    assert table(runs).splitlines()[2:] == [
        "| translate, a file | 15.0 (10.0 to 20.0) | 1.00 (1.00 to 1.00) |  |  |",
        "| 1 client | 16.5 (9.0 to 24.0) | 1.05 (0.90 to 1.20) | 50 (50 to 50) | 95 (95 to 95) |",
    ]


@pytest.mark.slow
def test_a_run_measures_every_kind_of_client(
    letter_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    letters_model(end_bias=3.0).save_pretrained(tmp_path)
    letter_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "source").write_text("".join(f"{text}\n" for text in random_texts(*[5] * 100)))
    monkeypatch.setattr(benchmark_serving, "CLIENTS", (1, 3))
    main([str(tmp_path), "--source", str(tmp_path / "source"), "--rounds", "1", "--", "--beam-size", "1"])
    rows = capsys.readouterr().out.splitlines()
    names = ["translate, a file", "1 client", "3 clients", "1 client, lists of 200"]
    assert [row.split(" | ")[0].strip("| ") for row in rows[2:]] == names
