"""The benchmark reads what it has written, and meets the fault at its end."""

from pathlib import Path

from scripts.benchmarks.benchmark_tmx import measure, write_memory


def test_all_units_are_read_up_to_the_fault(tmp_path: Path) -> None:
    file = tmp_path / "memory.tmx"
    write_memory(file, 1)
    num_units = file.read_text(encoding="utf-8").count("</tu>")
    found = measure(file, "reader")
    assert found["pairs"] == num_units >= 2000
    assert f"line {5 * num_units + 3}, column" in str(found["error"])
