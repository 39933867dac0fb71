"""The average of checkpoints is the mean of what their files hold; what cannot be averaged is refused by name."""

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from reference.tiny_models import tiny_model
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from hf_seq2seq.loading import load_model
from hf_seq2seq.training import averaging
from hf_seq2seq.training.averaging import average_checkpoints


Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast) -> Save:
    """A function that saves a random model and a tokenizer in a folder of a name, as a whole checkpoint is."""

    def save_one(name: str, seed: int = 0, **overrides: Any) -> Path:
        tiny_model(seed, **({"vocab_size": 30, "encoder_layers": 1, "decoder_layers": 1} | overrides)).save_pretrained(
            tmp_path / name
        )
        letter_tokenizer.save_pretrained(tmp_path / name)
        (tmp_path / name / "trainer_state.json").write_text("{}")
        return tmp_path / name

    return save_one


def weights(folder: Path) -> dict[str, npt.NDArray[Any]]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize(
    "layout",
    [{}, {"tie_word_embeddings": False, "lm_head_bias": True}, {"share_encoder_decoder_embeddings": False}],
    ids=["tied", "untied", "two tables"],
)
def test_each_weight_is_the_mean_of_the_files_weights(
    layout: dict[str, Any], number: int, save: Save, tmp_path: Path
) -> None:
    checkpoints = [save(f"checkpoint-{seed}", seed, **layout) for seed in range(number)]
    average_checkpoints(checkpoints, tmp_path / "average")
    averaged = weights(tmp_path / "average")
    assert averaged.keys() == weights(checkpoints[0]).keys()
    for name, value in averaged.items():
        expected = np.stack([weights(folder)[name] for folder in checkpoints]).mean(axis=0, dtype=np.float64)
        np.testing.assert_array_equal(value, expected.astype(np.float32))


def test_what_is_tied_stays_tied(save: Save, tmp_path: Path) -> None:
    average_checkpoints([save("a", 1), save("b", 2)], tmp_path / "average")
    model = load_model(tmp_path / "average")
    assert model.lm_head.weight is model.get_input_embeddings().weight is model.get_decoder_input_embeddings().weight
    assert len([name for name in weights(tmp_path / "average") if "embed" in name or "lm_head" in name]) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_stays_half_and_is_rounded_once(dtype: torch.dtype, save: Save, tmp_path: Path) -> None:
    checkpoints = [save(f"checkpoint-{seed}", seed, dtype=dtype) for seed in range(3)]
    average_checkpoints(checkpoints, tmp_path / "average")
    saved = [load_tensors(folder / "model.safetensors") for folder in checkpoints]
    for name, value in load_tensors(tmp_path / "average" / "model.safetensors").items():
        mean = np.mean([tensors[name].to(torch.float64).numpy() for tensors in saved], axis=0)
        assert value.dtype == dtype
        assert torch.equal(value, torch.from_numpy(mean).to(dtype))


def test_the_sum_is_exact_where_float32_would_lose_the_small_one(save: Save, tmp_path: Path) -> None:
    checkpoints = [save(f"checkpoint-{number}") for number in range(3)]
    for folder, value in zip(checkpoints, (2.0**26, 3.0, -(2.0**26)), strict=True):
        model = load_model(folder)
        torch.nn.init.constant_(model.model.encoder.layers[0].fc1.bias, value)
        model.save_pretrained(folder)
    average_checkpoints(checkpoints, tmp_path / "average")
    assert (weights(tmp_path / "average")["model.encoder.layers.0.fc1.bias"] == 1).all()


def test_tokenizer_and_generation_settings_are_the_last_ones(save: Save, tmp_path: Path) -> None:
    first, last = save("a", 1, dropout=0.3), save("b", 2, dropout=0.1)
    settings = json.loads((last / "generation_config.json").read_text())
    (last / "generation_config.json").write_text(json.dumps(settings | {"num_beams": 7}))
    tokenizer = AutoTokenizer.from_pretrained(last)
    tokenizer.model_max_length = 77
    tokenizer.save_pretrained(last)
    average_checkpoints([first, last], tmp_path / "average")
    assert GenerationConfig.from_pretrained(tmp_path / "average").num_beams == 7
    assert AutoTokenizer.from_pretrained(tmp_path / "average").model_max_length == 77
    assert load_model(tmp_path / "average").config.dropout == 0.1


def test_at_most_two_models_are_held_at_a_time(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = [save(f"checkpoint-{seed}", seed) for seed in range(4)]
    models: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def count_and_load(folder: Path) -> Any:
        model = load_model(folder)
        gc.collect()
        models.append(weakref.ref(model))
        alive.append(sum(reference() is not None for reference in models))
        return model

    monkeypatch.setattr(averaging, "load_model", count_and_load)
    average_checkpoints(checkpoints, tmp_path / "average")
    assert alive == [1, 2, 2, 2]


# What is refused


def test_nothing_to_average_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`checkpoints` must name at least one folder, but is empty"):
        average_checkpoints([], tmp_path / "average")


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [("encoder_ffn_dim", 32, 16), ("norm_position", "'post'", "'pre'"), ("eos_token_id", 2, 3)],
)
def test_configs_that_differ_are_told_with_field_values_and_folder(
    field: str, before: object, after: object, save: Save, tmp_path: Path
) -> None:
    first, other = save("a"), save("b", **{field: after if isinstance(after, int) else "pre"})
    with pytest.raises(ValueError, match=rf"`{field}` must be {before} .*/a`, but is {after} in `.*/b` instead"):
        average_checkpoints([first, save("c", 1), other], tmp_path / "average")
    assert not (tmp_path / "average").exists()


def test_types_that_differ_are_an_error(save: Save, tmp_path: Path) -> None:
    checkpoints = [save("a"), save("b", dtype=torch.bfloat16)]
    with pytest.raises(ValueError, match=r"`dtype` must be 'float32' .*, but is 'bfloat16' in"):
        average_checkpoints(checkpoints, tmp_path / "average")


def test_the_same_folder_twice_is_an_error_however_it_is_written(save: Save, tmp_path: Path) -> None:
    folder = save("a")
    (tmp_path / "link").symlink_to(folder)
    for again in (str(folder) + "/", tmp_path / "b" / ".." / "a", tmp_path / "link"):
        with pytest.raises(ValueError, match=r"must be named once, but `.*` is named again"):
            average_checkpoints([folder, again], tmp_path / "average")


def test_a_folder_that_holds_something_is_left_as_it_is(save: Save, tmp_path: Path) -> None:
    first, second = save("a", 1), save("b", 2)
    before = weights(first)
    with pytest.raises(ValueError, match=r"/a` must be a new or empty folder, but holds '.*'. Name another"):
        average_checkpoints([first, second], first)
    assert all((weights(first)[name] == value).all() for name, value in before.items())
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="/file` must be a new or empty folder, but is a file"):
        average_checkpoints([first, second], tmp_path / "file")


def test_a_damaged_or_missing_checkpoint_is_named(save: Save, tmp_path: Path) -> None:
    first, second = save("a", 1), save("b", 2)
    with pytest.raises(FileNotFoundError, match="/c` must be the folder of a model"):
        average_checkpoints([tmp_path / "c", first], tmp_path / "average")
    file = first / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"The safetensors files of `.*/a` must be whole"):
        average_checkpoints([first, second], tmp_path / "average")
    assert not (tmp_path / "average").exists()


def test_a_full_disk_leaves_no_half_written_average(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        assert (folder / "model.safetensors").exists()
        raise OSError("No space left on device")

    folder = save("a")
    monkeypatch.setattr(averaging, "load_tokenizer", lambda folder: SimpleNamespace(save_pretrained=fail))
    with pytest.raises(OSError, match=r"/average` must be written whole, but could not be .*No space left"):
        average_checkpoints([folder], tmp_path / "average")
    assert not (tmp_path / "average").exists()


# The last checkpoints of a run
