"""The ONNX graphs compute what the model computes, at sizes other than those that they were traced with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
from reference.tiny_models import pad, random_sentences, tiny_model
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, interop
from hf_seq2seq.interop import onnx as exporter
from hf_seq2seq.interop import to_onnx


Array = npt.NDArray[Any]
Model = Seq2SeqTransformerForConditionalGeneration

START, END = 1, 2
GRAPHS = ("encoder_model", "decoder_model", "decoder_with_past_model")


class Graphs:
    """An exported folder in onnxruntime: each method runs one graph on arrays by name."""

    def __init__(self, folder: Path) -> None:
        self.sessions = [ort.InferenceSession(folder / f"{name}.onnx") for name in GRAPHS]

    def run(self, number: int, **inputs: Array) -> dict[str, Array]:
        names = [output.name for output in self.sessions[number].get_outputs()]
        return dict(zip(names, self.sessions[number].run(None, inputs), strict=True))

    def encode(self, input_ids: Array, mask: Array) -> Array:
        return self.run(0, input_ids=input_ids, attention_mask=mask)["last_hidden_state"]

    def first_step(self, ids: Array, states: Array, mask: Array) -> tuple[Array, dict[str, Array]]:
        outputs = self.run(1, input_ids=ids, encoder_hidden_states=states, encoder_attention_mask=mask)
        return outputs.pop("logits"), outputs

    def next_step(self, ids: Array, mask: Array, present: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        past = {name.replace("present", "past_key_values"): states for name, states in present.items()}
        outputs = self.run(2, input_ids=ids, encoder_attention_mask=mask, **past)
        return outputs.pop("logits"), present | outputs


def export(folder: Path, tokenizer: PreTrainedTokenizerFast, **options: Any) -> tuple[Model, Graphs]:
    model = tiny_model(**options)
    to_onnx(model, tokenizer, folder)
    return model.float().eval(), Graphs(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture(scope="module")
def exported(folder: Path, letter_tokenizer: PreTrainedTokenizerFast) -> tuple[Model, Graphs]:
    """An export takes 20 seconds, so that its tests share one, and are slow ones."""
    return export(folder, letter_tokenizer, encoder_layers=1, key_dim=4)


@pytest.mark.parametrize("key_dim", [None, 4])
@torch.no_grad()
def test_what_is_traced_computes_what_the_model_does(key_dim: int | None) -> None:
    """The modules behind the graphs, before they are graphs."""
    model = tiny_model(key_dim=key_dim)
    input_ids, mask = pad(random_sentences([5, 2, 4]))
    target_ids, _ = pad(random_sentences([6, 6, 6], seed=1))
    expected = model(input_ids, attention_mask=mask, decoder_input_ids=target_ids).logits
    states = exporter._Encoder(model)(input_ids, mask)
    logits, present = exporter._Decoder(model)(target_ids[:, :3], states, mask)
    next_logits, target_states = exporter._DecoderWithPast(model)(target_ids[:, 3:], mask, present)
    torch.testing.assert_close(torch.cat((logits, next_logits), dim=1), expected, atol=1e-5, rtol=0)
    names = exporter.cache_names("present", 2)
    longer = dict(zip(exporter.cache_names("present", 2, ("decoder",)), target_states, strict=True))
    for name, part in zip(names, present, strict=True):
        if "decoder" in name:
            torch.testing.assert_close(longer[name][:, :, :3], part)


def ids_and_mask(lengths: list[int], seed: int = 0) -> tuple[Array, Array]:
    ids, mask = pad(random_sentences(lengths, seed=seed))
    return ids.numpy(), mask.numpy()


@torch.no_grad()
def expected_logits(model: Model, input_ids: Array, mask: Array, target_ids: Array) -> Array:
    logits: Array = model(
        torch.tensor(input_ids), attention_mask=torch.tensor(mask), decoder_input_ids=torch.tensor(target_ids)
    ).logits.numpy()
    return logits


def check_logits(model: Model, graphs: Graphs, source_lengths: list[int], num_first: int, num_next: int) -> None:
    """Decodes `num_first` target tokens without a cache, and `num_next` twice with one."""
    input_ids, mask = ids_and_mask(source_lengths)
    target_ids, _ = ids_and_mask([num_first + 2 * num_next] * len(source_lengths), seed=1)
    expected = expected_logits(model, input_ids, mask, target_ids)
    first, second, third = np.split(target_ids, [num_first, num_first + num_next], axis=1)
    logits, present = graphs.first_step(first, graphs.encode(input_ids, mask), mask)
    next_logits, present = graphs.next_step(second, mask, present)
    last_logits, present = graphs.next_step(third, mask, present)
    actual = np.concatenate((logits, next_logits, last_logits), axis=1)
    np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=0)
    assert present["present.0.decoder.key"].shape[2] == target_ids.shape[1]


@torch.no_grad()
def check_greedy(model: Model, graphs: Graphs, source_lengths: list[int], num_steps: int = 12) -> None:
    """Decodes with a loop as short as can be."""
    input_ids, mask = ids_and_mask(source_lengths)
    expected = model.generate(
        torch.tensor(input_ids),
        attention_mask=torch.tensor(mask),
        **{"num_beams": 1, "length_penalty": 1.0, "max_length": 1 + num_steps, "min_length": 1 + num_steps},
    )
    banned = [*(model.generation_config.suppress_tokens or []), END]
    tokens = np.full((len(input_ids), 1), START)
    logits, present = graphs.first_step(tokens, graphs.encode(input_ids, mask), mask)
    for _ in range(num_steps):
        logits[..., banned] = -np.inf
        tokens = np.concatenate((tokens, logits[:, -1:].argmax(axis=-1)), axis=1)
        logits, present = graphs.next_step(tokens[:, -1:], mask, present)
    assert tokens.tolist() == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("source_lengths", [[1], [4, 2], [9, 30, 1, 5]], ids=str)
@pytest.mark.parametrize(("num_first", "num_next"), [(1, 1), (2, 1), (5, 3)])
def test_logits_are_the_model_s_at_every_size(
    exported: tuple[Model, Graphs], source_lengths: list[int], num_first: int, num_next: int
) -> None:
    check_logits(*exported, source_lengths, num_first, num_next)


@pytest.mark.slow
@pytest.mark.parametrize("source_lengths", [[1], [4, 2], [9, 30, 1, 5]], ids=str)
def test_greedy_ids_are_those_of_generate(exported: tuple[Model, Graphs], source_lengths: list[int]) -> None:
    check_greedy(*exported, source_lengths)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {
            "norm_position": "pre",
            "activation_function": "gelu",
            "attention_bias": True,
            "share_encoder_decoder_embeddings": False,
            "decoder_vocab_size": 60,
            "dtype": torch.bfloat16,
        },
        {
            "position_embedding_type": "learned",
            "tie_word_embeddings": False,
            "lm_head_bias": True,
            "encoder_attention_heads": 4,
            "decoder_layers": 3,
            "attention": "eager",
        },
    ],
    ids=["pre-norm", "learned positions"],
)
def test_options_of_the_model_reach_the_graphs(
    options: dict[str, Any], letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model, graphs = export(tmp_path / "onnx", letter_tokenizer, **options)
    check_logits(model, graphs, [9, 30, 1, 5], 2, 1)
    check_greedy(model, graphs, [9, 30, 1, 5])


@pytest.mark.slow
def test_weights_too_large_for_one_file_lie_beside_it(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "_LARGEST_FILE", 0)
    model, graphs = export(tmp_path / "onnx", letter_tokenizer, encoder_layers=1, decoder_layers=1)
    assert (tmp_path / "onnx" / "decoder_model.onnx.data").exists()
    check_logits(model, graphs, [3, 2], 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_pass_the_checker_and_hold_nothing_of_the_code_they_come_from(
    name: str, exported: tuple[Model, Graphs], folder: Path
) -> None:
    path = folder / f"{name}.onnx"
    onnx.checker.check_model(path, full_check=True)
    graph = onnx.load(path)
    assert [(opset.domain, opset.version) for opset in graph.opset_import] == [("", 20)]
    assert path.stat().st_size < 100_000
    assert str(Path(exporter.__file__).parents[2]).encode() not in path.read_bytes()


@pytest.mark.slow
def test_inputs_and_outputs_have_the_names_and_axes_that_optimum_uses(exported: tuple[Model, Graphs]) -> None:
    sessions = exported[1].sessions
    names = [f"{i}.{stack}.{part}" for i in (0, 1) for stack in ("decoder", "encoder") for part in ("key", "value")]
    inputs = [{value.name: value.shape for value in session.get_inputs()} for session in sessions]
    outputs = [[value.name for value in session.get_outputs()] for session in sessions]
    source, target = ["batch", "source_length"], ["batch", "target_length"]
    assert inputs[0] == {"input_ids": source, "attention_mask": source}
    assert inputs[1] == {"input_ids": target, "encoder_hidden_states": [*source, 16], "encoder_attention_mask": source}
    past = {
        f"past_key_values.{name}": ["batch", 2, "past_length" if "decoder" in name else "source_length", width]
        for name in names
        for width in [4 if name.endswith("key") else 8]
    }
    assert inputs[2] == {"input_ids": target, "encoder_attention_mask": source, **past}
    assert outputs[0] == ["last_hidden_state"]
    assert outputs[1] == ["logits", *(f"present.{name}" for name in names)]
    assert outputs[2] == ["logits", *(f"present.{name}" for name in names if "decoder" in name)]


@pytest.mark.slow
def test_the_folder_is_whole_without_the_model_s(
    exported: tuple[Model, Graphs], folder: Path, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    config = AutoConfig.from_pretrained(folder)
    changed = {"dtype": None, "_name_or_path": ""}
    assert config.to_dict() | changed == exported[0].config.to_dict() | changed
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert GenerationConfig.from_pretrained(folder).max_length == 256
    assert AutoTokenizer.from_pretrained(folder)("a b") == letter_tokenizer("a b")


def test_a_folder_that_holds_something_is_left_alone(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"must be a new or empty folder, but holds 'notes.txt'. Name another"):
        to_onnx(tiny_model(), letter_tokenizer, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_nothing_is_left_where_writing_fails(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(torch.onnx, "export", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        to_onnx(tiny_model(), letter_tokenizer, tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


def test_another_kind_of_model_is_refused(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"must be a Seq2SeqTransformerForConditionalGeneration, but is a Linear"):
        to_onnx(torch.nn.Linear(1, 1), letter_tokenizer, tmp_path / "onnx")  # type: ignore[arg-type]


def test_a_missing_package_is_named(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(ImportError, match=r"needs the package onnxscript.*pip install 'hf-seq2seq\[export\]'"):
        interop.to_onnx(tiny_model(), letter_tokenizer, tmp_path / "onnx")
