"""What is saved comes back: by the Auto classes, in a fresh process, in parts, in half precision, by a device map."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import pad, random_sentences, tiny_config, tiny_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, GenerationConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_imports, get_relative_import_files, get_relative_imports

import hf_seq2seq
from hf_seq2seq import (
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerModel,
    train_tokenizer,
)
from hf_seq2seq.model import modeling_seq2seq_transformer


Model = Seq2SeqTransformerForConditionalGeneration
SHARED, TIED = "share_encoder_decoder_embeddings", "tie_word_embeddings"
TIES: list[dict[str, Any]] = [{SHARED: shared, TIED: tied} for shared in (True, False) for tied in (True, False)]
all_ties = pytest.mark.parametrize("ties", TIES, ids=lambda ties: f"shared={ties[SHARED]}, tied={ties[TIED]}")
STACKS = {
    "base model": Seq2SeqTransformerModel,
    "head model": Seq2SeqTransformerForConditionalGeneration,
    "encoder": modeling_seq2seq_transformer.Seq2SeqTransformerEncoder,
    "decoder": modeling_seq2seq_transformer.Seq2SeqTransformerDecoder,
}


def batch() -> dict[str, Tensor]:
    input_ids, attention_mask = pad(random_sentences((7, 2, 5), vocab_size=40, seed=1))
    decoder_input_ids, _ = pad(random_sentences((3, 5, 1), vocab_size=40, seed=2))
    return {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}


@torch.no_grad()
def logits(model: nn.Module) -> Tensor:
    return model(**batch()).logits  # type: ignore[no-any-return]


def load(folder: Path, auto_class: Any = AutoModelForSeq2SeqLM, **settings: Any) -> Any:
    """The model from a folder, of which nothing may be missing, left over or of another shape."""
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, **settings)
    assert {name: found for name, found in info.items() if found} == {}
    return model


def matrices(model: Model) -> list[nn.Parameter]:
    """Source embeddings, target embeddings, output projection."""
    return [model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight, model.lm_head.weight]


def assert_tied_as(model: Model, ties: dict[str, Any]) -> None:
    shared, tied = ties[SHARED], ties[TIED]
    source, target, head = matrices(model)
    assert (source is target, source.data_ptr() == target.data_ptr()) == (shared, shared)
    assert (target is head, target.data_ptr() == head.data_ptr()) == (tied, tied)
    assert (source is head) == (shared and tied)


def saved_weights(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        part = load_file(path)
        assert not weights.keys() & part.keys()
        weights |= part
    return weights


# Ties


@all_ties
def test_matrices_are_one_where_they_are_tied_and_stay_so_on_disk_and_back(
    ties: dict[str, Any], tmp_path: Path
) -> None:
    """https://github.com/PrimeIntellect-ai/prime-rl/pull/1998 and https://github.com/huggingface/transformers/issues/26216."""
    model = tiny_model(**ties)
    assert_tied_as(model, ties)
    model.save_pretrained(tmp_path)
    in_file = [name for name, weight in saved_weights(tmp_path).items() if weight.shape == (50, 16)]
    assert len(in_file) == len({weight.data_ptr() for weight in matrices(model)})
    reloaded = load(tmp_path)
    assert_tied_as(reloaded, ties)
    for actual, expected in zip(matrices(reloaded), matrices(model), strict=True):
        assert torch.equal(actual, expected)
    assert torch.equal(logits(reloaded), logits(model))


@pytest.mark.parametrize("field", [SHARED, TIED])
def test_two_different_matrices_in_a_file_are_both_kept_though_the_config_ties_them(
    field: str, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/26216: tying must not overwrite what was loaded."""
    model = tiny_model(**TIES[-1])
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace(f'"{field}": false', f'"{field}": true'))
    reloaded = load(tmp_path)
    assert getattr(reloaded.config, field)
    assert torch.equal(logits(reloaded), logits(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ties", TIES[1:], ids=lambda ties: f"shared={ties[SHARED]}, tied={ties[TIED]}")
def test_a_table_that_is_untied_at_loading_begins_as_a_copy(
    ties: dict[str, Any], dtype: torch.dtype, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(dtype=dtype)
    model.save_pretrained(tmp_path)
    untied = load(tmp_path, **ties)
    assert_tied_as(untied, ties)
    assert torch.equal(logits(untied), logits(model))
    assert caplog.records == []
    untied.save_pretrained(tmp_path)
    assert torch.equal(logits(load(tmp_path)), logits(model))


def test_a_table_of_another_size_is_not_copied(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    options: dict[str, Any] = {SHARED: False, TIED: False, "decoder_vocab_size": 60}
    found: Any = Model.from_pretrained(tmp_path, output_loading_info=True, **options)
    model, info = found
    assert model.lm_head.weight.shape == (60, 16)
    assert info["missing_keys"] == {"lm_head.weight", "model.decoder.embed_tokens.weight"}


def test_a_head_that_was_given_weights_of_its_own_is_saved_though_the_config_ties_it(tmp_path: Path) -> None:
    model = tiny_model()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() * 2)
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(load(tmp_path)), logits(model))


def test_ties_that_a_config_does_not_name_are_the_papers() -> None:
    """https://github.com/PrimeIntellect-ai/prime-rl/pull/1998."""
    assert_tied_as(Model(tiny_config()), TIES[0])


@all_ties
def test_a_tied_matrix_learns_from_every_place_it_stands_in(ties: dict[str, Any]) -> None:
    model = tiny_model(**ties).train()
    unused = 49
    model(**batch(), labels=batch()["decoder_input_ids"]).loss.backward()
    source, target, head = matrices(model)
    assert head.grad is not None
    assert head.grad[unused].abs().sum() > 0  # the softmax reaches every token
    for embeddings, reached in ((source, ties[SHARED] and ties[TIED]), (target, ties[TIED])):
        assert embeddings.grad is not None
        assert (embeddings.grad[unused].abs().sum() > 0) == reached


@all_ties
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_loads_in_half_precision(ties: dict[str, Any], dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model(**ties)
    model.save_pretrained(tmp_path)
    half = load(tmp_path, dtype=dtype)
    assert_tied_as(half, ties)
    for name, weight in half.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name].to(dtype))
    half.save_pretrained(tmp_path)
    assert {weight.dtype for weight in saved_weights(tmp_path).values()} == {dtype}
    assert load(tmp_path, dtype="auto").dtype == dtype
    assert torch.equal(logits(load(tmp_path, dtype="auto")), logits(half))


@all_ties
def test_a_model_saved_in_several_files_comes_back(ties: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model(**ties)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    assert saved_weights(tmp_path).keys() == index["weight_map"].keys()
    reloaded = load(tmp_path)
    assert_tied_as(reloaded, ties)
    assert torch.equal(logits(reloaded), logits(model))


@all_ties
@pytest.mark.parametrize("device_map", ["auto", "cpu", {"": "cpu"}], ids=str)
def test_a_device_map_leaves_the_model_as_it_is(device_map: Any, ties: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model(**ties)
    model.save_pretrained(tmp_path)
    reloaded = load(tmp_path, device_map=device_map)
    assert_tied_as(reloaded, ties)
    assert torch.equal(logits(reloaded), logits(model))


@all_ties
def test_a_model_made_without_storage_can_be_filled_later(ties: dict[str, Any]) -> None:
    """https://github.com/huggingface/transformers/issues/48892: nothing that only constructors could fill."""
    model = tiny_model(**ties)
    with torch.device("meta"):
        empty = Model(model.config)
    empty.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in empty.parameters():
            parameter.fill_(torch.nan)
    empty.init_weights()
    assert_tied_as(empty, ties)
    assert logits(empty.eval()).isfinite().all()
    empty.load_state_dict(model.state_dict())
    assert torch.equal(logits(empty), logits(model))
    assert list(empty.buffers()) == []


# Classes


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("position_embedding_type", ["sinusoidal", "learned"])
def test_every_class_saves_and_loads(
    stack: type[PreTrainedModel], norm_position: str, position_embedding_type: str, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/48253."""
    config = tiny_config(norm_position=norm_position, position_embedding_type=position_embedding_type)
    model = stack(config)
    model.save_pretrained(tmp_path)
    reloaded = load(tmp_path, stack)
    assert type(reloaded) is stack
    assert reloaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in reloaded.state_dict().items())


def test_every_class_of_the_modeling_file_is_among_those() -> None:
    classes = [value for value in vars(modeling_seq2seq_transformer).values() if isinstance(value, type)]
    with_forward = {
        value for value in classes if issubclass(value, PreTrainedModel) and value.forward is not nn.Module.forward
    }
    assert with_forward == set(STACKS.values())


def test_base_and_head_models_load_from_each_others_folders(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path / "head")
    base = load(tmp_path / "head", AutoModel)
    assert torch.equal(base.eval()(**batch()).last_hidden_state @ model.lm_head.weight.T, logits(model))
    base.save_pretrained(tmp_path / "base")
    assert torch.equal(logits(load(tmp_path / "base")), logits(model))


@all_ties
def test_no_weight_is_drawn_anew_after_loading(ties: dict[str, Any], tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/46620."""
    model = tiny_model(position_embedding_type="learned", lm_head_bias=True, attention_bias=True, **ties)
    fill(model)
    model.save_pretrained(tmp_path)
    for stack in (Seq2SeqTransformerModel, Seq2SeqTransformerForConditionalGeneration):
        reloaded = stack.from_pretrained(tmp_path)
        assert all((parameter == 0.5).all() for parameter in reloaded.parameters())


def test_a_part_with_a_bias_missing_keeps_the_weight_that_was_loaded(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/46620: only what is missing may be drawn."""
    model = tiny_model(attention_bias=True, lm_head_bias=True)
    model.save_pretrained(tmp_path)
    kept = {name: weight for name, weight in saved_weights(tmp_path).items() if not name.endswith("bias")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(reloaded[name], torch.zeros_like(weight) if name.endswith("bias") else weight), name


@torch.no_grad()
def fill(model: nn.Module, value: float = 0.5) -> None:
    for parameter in model.parameters():
        parameter.fill_(value)


# Settings


def test_decoding_settings_are_in_the_generation_config_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/huggingface/transformers/issues/28793 and https://github.com/huggingface/transformers/pull/32659."""
    model = tiny_model()
    model.generation_config.update(num_beams=5, length_penalty=0.6, early_stopping=False)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model.save_pretrained(tmp_path)
    assert caplog.records == []
    config = json.loads((tmp_path / "config.json").read_text())
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    tokens = {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}
    in_both = {"use_cache", "output_attentions", "output_hidden_states", "transformers_version"}
    assert set(vars(GenerationConfig())) & config.keys() <= tokens | in_both
    expected: dict[str, Any] = {"num_beams": 5, "length_penalty": 0.6, "early_stopping": False, "max_length": 256}
    expected |= {"suppress_tokens": [0, 1], **{name: config[name] for name in tokens}}
    assert settings == settings | expected
    reloaded = load(tmp_path).generation_config
    assert {name: getattr(reloaded, name) for name in expected} == expected


# Damaged folders


@pytest.mark.parametrize("share_left", [0.0, 0.01, 0.5, 0.999], ids=str)
def test_a_weight_file_that_is_cut_short_is_an_error(share_left: float, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share_left)])
    with pytest.raises(SafetensorError, match=r"(?i)header|not fully covered|invalid"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


def test_a_missing_part_of_the_weights_is_an_error(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path, max_shard_size="10KB")
    sorted(tmp_path.glob("*.safetensors"))[1].unlink()
    with pytest.raises(OSError, match="model-00002-of-"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_that_is_no_model_is_an_error_that_names_what_is_missing(missing: str, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises((OSError, ValueError), match=missing):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


# Training tools


def training_arguments(folder: Path, **settings: Any) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        str(folder), per_device_train_batch_size=3, use_cpu=True, report_to="none", disable_tqdm=True, **settings
    )


@all_ties
def test_a_stopped_training_run_goes_on_from_what_it_saved(
    ties: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each matrix is stored once, and loading knows: https://github.com/huggingface/transformers/issues/29128,
    https://github.com/huggingface/transformers/issues/27972 and https://github.com/huggingface/transformers/issues/33807.
    """
    from transformers import Trainer

    rows = batch() | {"labels": batch()["decoder_input_ids"]}
    examples = [{name: value[row] for name, value in rows.items()} for row in range(3)]

    def train(seed: int, resume: bool) -> Any:
        model = tiny_model(seed, **ties)
        arguments = training_arguments(tmp_path, max_steps=2, save_steps=2)
        trainer = Trainer(model, arguments, train_dataset=examples)
        trainer.train(resume_from_checkpoint=resume)
        trainer.save_model(str(tmp_path / "saved"))
        return model.eval()

    before = train(0, resume=False)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    after = train(1, resume=True)
    assert not [record for record in caplog.records if "keys in the checkpoint" in record.getMessage()]
    assert_tied_as(after, ties)
    assert torch.equal(logits(after), logits(before))
    assert torch.equal(logits(load(tmp_path / "saved")), logits(before))
    for folder in ("saved", "checkpoint-2"):
        in_file = [weight for weight in saved_weights(tmp_path / folder).values() if weight.shape == (50, 16)]
        assert len(in_file) == len({weight.data_ptr() for weight in matrices(before)})


def test_accelerate_saves_each_tied_matrix_once(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/33807."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(tiny_model())
    expected = logits(model)
    accelerator.save_state(str(tmp_path))
    assert len([weight for weight in saved_weights(tmp_path).values() if weight.shape == (50, 16)]) == 1
    fill(model)
    accelerator.load_state(str(tmp_path))
    assert_tied_as(model, TIES[0])
    assert torch.equal(logits(model), expected)


# A fresh process


LOAD_AND_REPORT = """
import sys, torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
folder, settings = sys.argv[1], eval(sys.argv[2])
inputs = torch.load(folder + "/inputs.pt")
report = {"config": type(AutoConfig.from_pretrained(folder, **settings)).__name__}
for auto_class in (AutoModel, AutoModelForSeq2SeqLM):
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, **settings)
    report[auto_class.__name__] = type(model).__name__
    report["info"] = report.get("info", []) + [found for found in info.values() if found]
    report["weights"] = model.state_dict()
with torch.no_grad():
    report["logits"] = model.eval()(**inputs).logits
report["generated"] = model.generate(inputs["input_ids"], max_new_tokens=5)
report["token_ids"] = AutoTokenizer.from_pretrained(folder, **settings)(["one two", "two"]).input_ids
torch.save(report, folder + "/report.pt")
"""


def report_of_a_fresh_process(folder: Path, first_line: str, **settings: Any) -> dict[str, Any]:
    torch.save(batch(), folder / "inputs.pt")
    command = [sys.executable, "-c", first_line + LOAD_AND_REPORT, str(folder), str(settings)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return torch.load(folder / "report.pt")  # type: ignore[no-any-return]


def assert_reported(report: dict[str, Any], model: Model, tokenizer: Any) -> None:
    assert report["config"] == "Seq2SeqTransformerConfig"
    assert report["AutoModel"] == "Seq2SeqTransformerModel"
    assert report["AutoModelForSeq2SeqLM"] == "Seq2SeqTransformerForConditionalGeneration"
    assert report["info"] == []
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in report["weights"].items())
    assert torch.equal(report["logits"], logits(model))
    assert torch.equal(report["generated"], model.generate(batch()["input_ids"], max_new_tokens=5))
    assert report["token_ids"] == tokenizer(["one two", "two"]).input_ids


CODE = {
    path.stem: path for path in Path(modeling_seq2seq_transformer.__file__).parent.glob("*_seq2seq_transformer.py")
}


@pytest.mark.parametrize("path", CODE.values(), ids=CODE)
def test_code_that_travels_with_a_model_needs_its_own_kind_and_transformers_alone(path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/29714; what transformers' own finders of imports read."""
    assert set(get_relative_imports(path)) <= CODE.keys()
    assert set(get_imports(path)) - sys.stdlib_module_names <= {"torch", "transformers", "huggingface_hub"}
    assert "__future__" not in get_imports(path)  # annotations as strings would hide the config's class


def test_the_code_that_travels_is_what_the_modeling_file_imports() -> None:
    """The package copies all files of these names; transformers takes from a folder those that it finds imported."""
    found = {Path(path).stem for path in get_relative_import_files(modeling_seq2seq_transformer.__file__)}
    assert found | {"modeling_seq2seq_transformer"} == CODE.keys()


@pytest.mark.slow
def test_a_fresh_process_that_imports_the_package_loads_model_and_tokenizer(tmp_path: Path) -> None:
    model = tiny_model()
    tokenizer = train_tokenizer(iter(["one two", "two one"]), kind="word", vocab_size=6)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert_reported(report_of_a_fresh_process(tmp_path, "import hf_seq2seq"), model, tokenizer)


@pytest.mark.slow
def test_a_fresh_process_without_the_package_loads_model_and_tokenizer_with_the_code_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/huggingface/transformers/issues/29714, and with all weights 0.5, since they could be drawn
    anew: https://github.com/huggingface/transformers/issues/46620.
    """
    for registered in (hf_seq2seq.Seq2SeqTransformerConfig, Seq2SeqTransformerModel, Model):
        monkeypatch.setattr(registered, "_auto_class", None)  # undone afterwards, or every later save would copy code
    hf_seq2seq.Seq2SeqTransformerConfig.register_for_auto_class()
    Seq2SeqTransformerModel.register_for_auto_class("AutoModel")
    Model.register_for_auto_class("AutoModelForSeq2SeqLM")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))

    model = tiny_model(position_embedding_type="learned")
    fill(model)
    tokenizer = train_tokenizer(iter(["one two", "two one"]), kind="word", vocab_size=6)
    model.config.auto_map = {"AutoModel": "modeling_seq2seq_transformer.Seq2SeqTransformerModel"}
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for path in CODE.values():
        assert (tmp_path / path.name).read_text() == path.read_text()
    report = report_of_a_fresh_process(
        tmp_path, "import sys; sys.modules['hf_seq2seq'] = None", trust_remote_code=True
    )
    assert_reported(report, model, tokenizer)
