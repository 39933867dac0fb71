"""Every part of the benchmark of latency on models so small that moments do; no figure is judged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from scripts.benchmarks import benchmark_latency
from scripts.benchmarks.benchmark_latency import linears_of_a_step, main, random_bench
from scripts.benchmarks.benchmark_models import ModelSizes, make_ours


SIZES = ModelSizes(vocab_size=40, d_model=16, layers=2, ffn_dim=32, heads=2)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_latency, "SIZES", {"small": SIZES})
    monkeypatch.setattr(benchmark_latency, "CASES", {"one": (1, 1), "three": (3, 2)})
    monkeypatch.setattr(benchmark_latency, "OUTPUT_LENGTH", 4)


def test_all_parts_are_measured_and_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--sizes", "small", "--repeats", "2", "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "benchmark_latency.json").read_text(encoding="utf-8"))["results"]["small"]
    assert set(results) == {"against others", "floor", "trials"}
    for case, outputs in (("one", 1), ("three", 3)):
        found = results["against others"][case]
        assert (found["steps"], found["equal"]) == (4, {"generate()": outputs, "Translator": outputs})
        assert f"| {outputs} of {outputs} |" in printed
    for found in (*results["against others"].values(), *results["floor"].values()):
        assert all(len(times) == 2 for times in found["milliseconds"].values())
    assert all(f"| {part} |" in printed for part in results["trials"])


@pytest.mark.slow
def test_a_trained_model_is_measured_on_a_text(
    tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    model: Any = make_ours(SIZES)
    model.save_pretrained(tmp_path / "model")
    letter_tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "source").write_text("a b c\n\nd\ne f\n", encoding="utf-8")
    main(["--model", str(tmp_path / "model"), "--source", str(tmp_path / "source"), "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "| 1 of 1 |" in printed
    assert " of 3 |" in printed  # of which this model never ends, so that limits differ in a batch


def test_a_step_reads_all_linear_layers_but_those_of_the_source() -> None:
    model = random_bench(SIZES).model
    hooked: list[Any] = []
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda module, *_: hooked.append(module))
    ids = torch.tensor([[5, 6, 2]])
    encoded = model.model.encoder(ids)
    first = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[1]]), use_cache=True)
    hooked.clear()
    model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[7]]), cache=first.cache, use_cache=True)
    assert {id(module) for module in hooked} == {id(module) for module in linears_of_a_step(model)}
    assert len(hooked) == len(linears_of_a_step(model))


def test_neither_model_nor_sizes_is_a_usage_error() -> None:
    with pytest.raises(SystemExit):
        main(["--model", "out/"])
