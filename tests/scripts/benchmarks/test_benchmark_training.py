"""Every part of the benchmark on models, texts and vocabularies so small that seconds do; no figure is judged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from hf_seq2seq.data import TokenBudgetBatchSampler
from scripts.benchmarks import benchmark_training
from scripts.benchmarks.benchmark_models import MODEL_MAKERS, OURS, PEER, ModelSizes
from scripts.benchmarks.benchmark_report import OURS_BUDGET, PEER_GROUPED, PEER_RANDOM, table
from scripts.benchmarks.benchmark_run import Memory, Meter, Settings, train
from scripts.benchmarks.benchmark_training import PARTS, choose_budget, count_padding, main, synthetic_pairs


SIZES = ModelSizes(vocab_size=300, d_model=16, layers=1, ffn_dim=16, heads=2)
SETTINGS = Settings(device="cpu", dtype="float32", threads=1, steps=2, repeats=1, sizes=SIZES)
MODEL = ["--vocab-size", "300", "--d-model", "16", "--layers", "1", "--ffn-dim", "16", "--heads", "2"]
TINY = ["--steps", "2", "--repeats", "1", "--threads", "1", *MODEL]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files of 600 lines of 1 to 12 words."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [" ".join(["word", "other", f"{n}"][: n % 3 + 1] * (n % 4 + 1)) for n in range(600)]
    for name in ("source", "target"):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--source", str(folder / "source"), "--target", str(folder / "target")]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_training, "MEMORY_SHAPE", (4, 8))
    monkeypatch.setattr(benchmark_training, "MEMORY_VOCABULARY", 300)
    monkeypatch.setattr(benchmark_training, "LENGTHS", (8, 16))
    monkeypatch.setattr(benchmark_training, "VOCABULARIES", (300, 600))
    monkeypatch.setitem(benchmark_training.GROWTH_TOKENS, "cpu", 128)


def run(parts: list[str], corpus: list[str], folder: Path) -> dict[str, Any]:
    main([*corpus, *TINY, "--parts", *parts, "--output", str(folder)])
    content: dict[str, Any] = json.loads((folder / "benchmark_training.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.usefixtures("small")
def test_all_parts_in_one_process_write_figures_a_table_and_a_figure(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = run(["throughput", "padding", "growth"], corpus, tmp_path)
    results = content["results"]
    for way in (PEER_RANDOM, PEER_GROUPED, OURS_BUDGET):
        (measured,) = results["throughput"][way]
        assert measured["steps"] == 2
        assert measured["tokens_per_second"] == pytest.approx(measured["tokens"] / measured["seconds"])
    assert results["padding"][OURS_BUDGET]["share"] > results["padding"][PEER_RANDOM]["share"]
    assert list(results["growth"]["length"]) == ["8", "16"]
    assert content["machine"]["versions"]["torch"] == torch.__version__
    assert (tmp_path / "benchmark_training.png").stat().st_size > 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines[0] == "| measure | peer | ours | ratio |"
    assert {line.count("|") for line in lines} == {5}
    for measure in ("training, real target tokens a second", "real tokens in a batch, target", "time of a step"):
        assert any(line.startswith(f"| {measure}") for line in lines)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_memory_of_a_step_is_measured_in_processes_of_their_own(corpus: list[str], tmp_path: Path) -> None:
    memory = run(["memory"], corpus, tmp_path)["results"]["memory"]
    assert set(memory) == {PEER, OURS}
    assert min(memory.values()) >= 0


@pytest.mark.slow
def test_two_processes_are_measured_against_one(corpus: list[str], tmp_path: Path) -> None:
    processes = run(["processes"], corpus, tmp_path)["results"]["processes"]
    assert min(*processes["1"], *processes["2"]) > 0


def test_two_processes_on_one_gpu_are_skipped_with_the_reason() -> None:
    settings = Settings(device="cuda", dtype="float32", threads=1, steps=1, repeats=1, sizes=SIZES)
    skipped = benchmark_training.measure_processes(settings, Dataset.from_dict({}), None, 1)
    assert "skipped: processes would share one GPU" in table({"processes": skipped})


def test_the_profile_names_the_operators_of_a_step(corpus: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*corpus, *TINY, "--parts", "padding", "--profile"])
    assert "aten::mm" in capsys.readouterr().out


def test_both_models_have_the_same_weights_but_for_the_projections_biases_and_positions() -> None:
    ours, peer = (
        {
            name: weight.shape
            for name, weight in MODEL_MAKERS[kind](SIZES).named_parameters()
            if weight.ndim == 2 and "embed" not in name and "shared" not in name
        }
        for kind in (OURS, PEER)
    )
    assert ours == peer
    assert MODEL_MAKERS[PEER](SIZES).lm_head.weight.shape == (300, 16)


def test_the_meter_counts_the_real_tokens_of_the_timed_steps_alone() -> None:
    meter = Meter(SETTINGS)
    state: Any = None
    for step in range(meter.max_steps):
        meter.on_step_begin(None, state, state)
        meter.count(torch.tensor([[1, 1, -100], [1, -100, -100]]) if step >= SETTINGS.warmup else torch.ones(9))
        meter.on_step_end(None, state, state)
    assert (meter.measurement().tokens, meter.measurement().steps) == (6, 2)


def test_a_run_counts_all_places_of_synthetic_pairs_and_measures_memory_after_the_timed_steps() -> None:
    data = synthetic_pairs(4 * (SETTINGS.warmup + 3), length=6, vocab_size=300)
    measured = train(OURS, SETTINGS, data, measures_memory=True, per_device_train_batch_size=4)
    assert measured.tokens == 2 * 4 * 6
    assert measured.memory is not None


def test_memory_is_the_peak_above_the_level_and_not_what_is_left() -> None:
    memory = Memory("cpu")
    torch.ones(50, 2**20)  # 200 MiB, freed at once
    assert memory.peak() > 190 * 2**20
    assert Memory("cpu").peak() < 20 * 2**20


def test_padding_is_counted_over_both_sides_and_the_target_alone() -> None:
    batch = {"attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]), "labels": torch.tensor([[5, 2], [2, -100]])}
    counted = count_padding([batch, batch])  # type: ignore[arg-type]
    assert counted == {"share": 7 / 10, "target_share": 3 / 4, "target_tokens_per_batch": 3, "batches": 2}


def test_the_budget_makes_about_as_many_batches_as_64_pairs_a_batch() -> None:
    lengths = [n % 30 + 1 for n in range(6400)]
    data = Dataset.from_dict({"input_ids": [[1] * n for n in lengths], "labels": [[1] * n for n in lengths]})
    data = data.add_column("length", lengths)
    assert len(TokenBudgetBatchSampler.from_dataset(data, choose_budget(data))) in (99, 100)


def test_the_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(part in text for part in PARTS)
