"""Every part of the benchmark on models and texts so small that seconds do; no figure is judged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import output_limits
from hf_seq2seq.interop import to_marian
from scripts.benchmarks import benchmark_inference
from scripts.benchmarks.benchmark_inference import (
    PARTS,
    main,
    measure_file,
    pad,
    random_model,
    score_difference,
    search,
    timed,
)
from scripts.benchmarks.benchmark_models import OURS, PEER, ModelSizes, make_ours
from scripts.benchmarks.benchmark_report import inference_table
from scripts.benchmarks.benchmark_run import Settings


SIZES = ModelSizes(vocab_size=30, d_model=16, layers=1, ffn_dim=16, heads=2)
SETTINGS = Settings(device="cpu", dtype="float32", threads=1, steps=0, repeats=1, sizes=SIZES)
LINES = [" ".join("abcdefgh"[n % 5 : n % 5 + 1 + n % 4]) for n in range(12)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_inference, "SIZES", SIZES)
    monkeypatch.setattr(benchmark_inference, "BATCHES", {1: 2, 3: 2})
    monkeypatch.setattr(benchmark_inference, "FILE_BATCH", 4)
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 4)


@pytest.fixture
def large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the bytes of a tokenizer that is trained."""
    monkeypatch.setattr(benchmark_inference, "SIZES", replace(SIZES, vocab_size=300))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return file


def save_model(folder: Path, tokenizer: PreTrainedTokenizerFast, **options: Any) -> str:
    torch.manual_seed(0)
    make_ours(SIZES, **options).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def run(source: Path, parts: list[str], *more: str) -> dict[str, Any]:
    folder = source.parent / "results"
    main(
        [
            *more,
            "--source",
            str(source),
            "--repeats",
            "2",
            "--threads",
            "1",
            "--parts",
            *parts,
            "--output",
            str(folder),
        ]
    )
    content: dict[str, Any] = json.loads((folder / "benchmark_inference.json").read_text(encoding="utf-8"))
    assert (folder / "benchmark_inference.png").stat().st_size > 0
    return content


def test_generation_and_files_are_measured_and_both_models_write_the_same_tokens(
    source: Path, tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path / "model", letter_tokenizer)
    content = run(source, ["generate", "file"], model, "--reference", str(source))
    generated, file = content["results"]["generate"], content["results"]["file"]
    assert list(generated) == ["greedy, batch 1", "greedy, batch 3", "beam 4, batch 1", "beam 4, batch 3"]
    for case in generated.values():
        assert case["tokens"]["differing"] == case["tokens"]["ties"]
        assert case[PEER]["tokens"] == case[OURS]["tokens"]
        assert len(case[OURS]["seconds"]) == len(case[PEER]["cpu_seconds"]) == 2
    assert [generated[f"greedy, batch {size}"][OURS]["sentences"] for size in (1, 3)] == [2, 6]
    assert list(file) == [PEER, "Translator", "CTranslate2 float32", "CTranslate2 int8"]
    assert {way["sentences"] for way in file.values()} == {12}
    assert file[PEER]["bleu"] == pytest.approx(file["Translator"]["bleu"])
    assert {"torch", "ctranslate2"} <= content["machine"]["versions"].keys()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines[0] == "| measure | peer | ours | ratio |"
    assert {line.count("|") for line in lines} == {5}
    for way in (*generated, *list(file)[1:]):
        assert any(way in line for line in lines)


@pytest.mark.slow
@pytest.mark.usefixtures("large_vocabulary")
def test_the_memory_of_a_search_is_measured_in_processes_of_their_own(source: Path) -> None:
    memory = run(source, ["memory"])["results"]["memory"]
    assert set(memory) == {PEER, OURS}
    assert min(memory.values()) >= 0


@pytest.mark.slow
def test_the_memory_of_a_search_grows_with_the_batch(
    tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = Path(save_model(tmp_path / "model", letter_tokenizer))
    small, large = (
        benchmark_inference.memory_of(OURS, SETTINGS, folder, [[*[5] * 200, 2]] * rows) for rows in (1, 64)
    )
    assert large > small + 2**20


def test_without_a_model_random_weights_write_about_as_much_as_they_read(
    letter_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 30)
    sources = letter_tokenizer(["a b c d e f g h", "i j k l", "m n o p q r", "s t"])["input_ids"]
    inputs, wanted = pad(letter_tokenizer, sources, "cpu"), sum(map(len, sources))
    model = random_model(letter_tokenizer, sources)
    distances = []
    for bias in (model.lm_head.bias[2].item(), 0.0, 20.0):
        model.lm_head.bias.data[2] = bias
        distances.append(abs(sum(map(len, search(model, inputs, beam_size=4))) - wanted))
    assert distances[0] < min(distances[1:])


@pytest.mark.usefixtures("large_vocabulary")
def test_random_weights_and_a_tokenizer_are_made_where_no_model_is_given(source: Path) -> None:
    results = run(source, ["generate"])["results"]
    assert results["generate"]["beam 4, batch 3"][OURS]["sentences"] == 6


def test_a_model_that_marian_cannot_hold_is_refused_with_the_reason(
    source: Path, tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    model = save_model(tmp_path / "model", letter_tokenizer, norm_position="pre")
    with pytest.raises(SystemExit, match="`norm_position` is 'pre', not 'post'"):
        run(source, ["generate"], model)


def test_rows_that_differ_are_counted_and_only_equal_scores_are_ties() -> None:
    torch.manual_seed(0)
    model: Any = make_ours(SIZES).eval()
    with torch.no_grad():
        model.model.decoder.embed_tokens.weight[7] = model.model.decoder.embed_tokens.weight[8]  # a perfect tie
    sources, outputs = [[5, 2], [6, 2], [9, 2]], {PEER: [[7, 2], [7, 2], [7, 2]], OURS: [[7, 2], [8, 2], [9, 10, 2]]}
    for beam_size in (1, 4):
        found = benchmark_inference.compare_tokens({OURS: model}, sources, outputs, beam_size, SETTINGS)
        assert (found["rows"], found["differing"], found["ties"]) == (3, 2, 1)
        assert found["largest_difference"] > 1e-2


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_difference_of_scores_is_that_of_what_the_search_compares(beam_size: int) -> None:
    torch.manual_seed(0)
    model: Any = make_ours(SIZES).eval()
    scores = []
    for output in ([7, 8, 2], [7, 9, 10, 2]):
        logits = model(torch.tensor([[5, 6, 2]]), decoder_input_ids=torch.tensor([[1, *output[:-1]]])).logits[0]
        chosen = logits.log_softmax(dim=-1)[range(len(output)), output]
        scores.append(chosen[1].item() if beam_size == 1 else chosen.sum().item() / len(output) ** 0.6)
    found = score_difference(model, [5, 6, 2], [7, 8, 2], [7, 9, 10, 2], beam_size)
    assert found == pytest.approx(abs(scores[0] - scores[1]), abs=1e-5)


def test_outputs_end_with_their_end_token_and_have_no_padding(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = random_model(letter_tokenizer, [[5, 6, 7, 2], [8, 2]])
    inputs = pad(letter_tokenizer, [[5, 6, 7, 2], [8, 2], [9, 10, 2]], "cpu")
    for either in (model, to_marian(model)):
        for beam_size in (1, 4):
            for output in search(either, inputs, beam_size):
                assert 2 not in output[:-1]
                assert not {0, 1} & set(output)


def test_wall_and_processor_time_are_both_taken() -> None:
    result, seconds, cpu_seconds = timed(lambda: torch.ones(3).sum().item(), "cpu")
    assert result == 3
    assert min(seconds, cpu_seconds) >= 0


def test_where_ctranslate2_is_missing_the_table_says_so(
    tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_inference, "find_spec", lambda name: None)
    folder = Path(save_model(tmp_path / "model", letter_tokenizer))
    found = measure_file(SETTINGS, folder, LINES, None)
    assert "skipped: ctranslate2 is not installed" in inference_table({"file": found})


def test_the_profile_names_the_operators_of_a_search(
    source: Path, tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path / "model", letter_tokenizer)
    main([model, "--source", str(source), "--profile", "--parts", "file", "--repeats", "1", "--threads", "1"])
    assert "mkldnn::_linear_pointwise" in capsys.readouterr().out


def test_the_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(part in text for part in PARTS)
