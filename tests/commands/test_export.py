"""The verb `export`: what it writes, and what it says of it."""

import sys
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import onnxruntime
import pytest
from reference.tiny_models import tiny_model
from transformers import AutoTokenizer, PreTrainedTokenizerFast


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def source(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """The folder of a model."""
    model = tiny_model(vocab_size=len(letter_tokenizer), encoder_layers=1, decoder_layers=1)
    model.save_pretrained(tmp_path / "model")
    letter_tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_ctranslate2_model_is_written_and_described(source: Path, command: Command, tmp_path: Path) -> None:
    output = tmp_path / "ct2"
    status, out, err = command("export", "ctranslate2", source, output)
    assert (status, err) == (0, "")
    status, _, error = command("translate", output)
    assert status == 1
    assert "is an export for CTranslate2. Run it with `--backend ctranslate2`" in error
    result = ctranslate2.Translator(str(output)).translate_batch([["a", "b", "</s>"]], max_decoding_length=5)
    assert result[0].hypotheses[0]
    assert AutoTokenizer.from_pretrained(output)("a b")["input_ids"] == [4, 5, 2]
    size = (output / "model.bin").stat().st_size
    weights = sum(
        weight.nbytes for weight in tiny_model(vocab_size=30, encoder_layers=1, decoder_layers=1).parameters()
    )
    assert out.splitlines() == [
        f"{output}: {size / 1e6:.1f} MB of weights, {100 * size / weights:.0f} % of the model's",
        f"  model.bin  {size / 1e6:.1f} MB",
        "  config.json, generation_config.json, shared_vocabulary.json, tokenizer.json, tokenizer_config.json",
        f"Try it with `hf-seq2seq translate {output} --backend ctranslate2`.",
    ]


def test_quantization_reaches_the_weights(source: Path, command: Command, tmp_path: Path) -> None:
    for name, options in (("full", []), ("small", ["--quantization", "int8"])):
        status, _, _ = command("export", "ctranslate2", source, tmp_path / name, *options)
        assert status == 0
    full, small = ((tmp_path / name / "model.bin").stat().st_size for name in ("full", "small"))
    assert small < full
    assert ctranslate2.Translator(str(tmp_path / "small")).compute_type.startswith("int8")


@pytest.mark.slow
def test_onnx_graphs_are_written_and_described(source: Path, command: Command, tmp_path: Path) -> None:
    status, out, err = command("export", "onnx", source, tmp_path / "onnx")
    assert (status, err) == (0, "")
    for name in ("decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"):
        onnxruntime.InferenceSession(tmp_path / "onnx" / name)
        assert f"  {name}  0.0 MB" in out.splitlines()
    assert out.splitlines()[-2:] == [
        "  config.json, generation_config.json, tokenizer.json, tokenizer_config.json",
        "Load each graph with `onnxruntime.InferenceSession`, and the tokenizer with AutoTokenizer.",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["onnx", "{source}", "out", "--quantization", "int8"],
            "`--quantization` must be left out for onnx, but is 'int8' instead.",
        ),
        (["ctranslate2", "{source}", "out", "--quantization", "int4"], "`quantization` must be one of int8, "),
        (["ctranslate2", "{source}", "{source}"], "`{source}` must be a new or empty folder, but holds "),
        (["onnx", "nowhere", "out"], "`nowhere` must be the folder of a model"),
        # Told before a model is looked for.
        (["onnx", "nowhere", "{source}"], "`{source}` must be a new or empty folder, but holds "),
    ],
)
def test_a_wrong_argument_is_one_line_and_writes_nothing(
    arguments: list[str],
    message: str,
    source: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("export", *(argument.format(source=source) for argument in arguments))
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: {message.format(source=source)}")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_missing_package_is_one_line(
    source: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hf_seq2seq.interop.ctranslate2", None)
    status, out, err = command("export", "ctranslate2", source, tmp_path / "ct2")
    assert (status, out) == (1, "")
    assert err.startswith("Error: ")
    assert "ctranslate2" in err


def test_an_unknown_format_names_the_known_ones(source: Path, command: Command, tmp_path: Path) -> None:
    status, _, err = command("export", "tflite", source, tmp_path / "out")
    assert status == 2
    assert "'tflite' is not one of 'argos', 'ctranslate2', 'marian', 'onnx', 'web'" in err
