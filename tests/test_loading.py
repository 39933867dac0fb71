"""A folder that is no model, or a damaged one, is named with what is wrong with it."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub.constants import HF_HUB_CACHE
from reference.tiny_models import tiny_model
from safetensors import safe_open
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.commands.export import export
from hf_seq2seq.hub.publishing import stage
from hf_seq2seq.interop.marian import from_marian, load_marian_tokenizer
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.tokenization import train_tokenizer
from hf_seq2seq.training.averaging import average_checkpoints


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model with its tokenizer."""
    folder = tmp_path / "model"
    model = tiny_model()
    model.generation_config.num_beams = 4
    model.save_pretrained(folder)
    train_tokenizer(iter(["a b c"]), vocab_size=50, kind="char").save_pretrained(folder)
    return folder


def change_config(**fields: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def cut(name: str, size: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return change


def double_a_field(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("{", '{"d_model": 8, ', 1))


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def test_a_saved_model_comes_back_whole_with_fields_changed(folder: Path) -> None:
    model = load_model(folder, dtype="bfloat16", dropout=0.3)
    assert model.dtype == torch.bfloat16
    assert model.config.dropout == model.model.encoder.layers[0].dropout == 0.3
    assert not model.training
    reloaded = load_model(str(folder))
    for name, weight in tiny_model().state_dict().items():
        assert torch.equal(reloaded.state_dict()[name], weight)
    assert reloaded.generation_config.num_beams == 4
    assert load_tokenizer(folder)("ab")["input_ids"][-1] == 2


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(folder: Path, number: float) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.model.decoder.layers[1].fc1.bias[3] = number
    model.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"must be finite numbers, but those of `.*layers.1.fc1.bias` are not"):
        load_model(folder)


def test_a_tokenizer_does_not_build_what_the_models_config_says(folder: Path) -> None:
    """transformers would make a list of a thousand million labels."""
    change_config(num_labels=10**9, id2label=5)(folder)
    assert load_tokenizer(folder)("ab")["input_ids"][-1] == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut("model.safetensors", -1), "safetensors files of `.*model` must be whole, but one is cut short .*earlier"),
        (cut("model.safetensors", 100), "safetensors files of `.*model` must be whole, but one is cut short"),
        (cut("model.safetensors", 0), "safetensors files of `.*model` must be whole, but one is cut short"),
        (remove("model.safetensors"), "`.*model` must be a model's folder, .* but holds config.json, generation_con"),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            r"must be a model's folder, .* but holds .* instead\..*pickle files \(.bin, .pt\) are not read",
        ),
        (remove("config.json"), "`.*model` must be a model's folder, with config.json"),
        (cut("config.json", 50), "`.*config.json` must be JSON, but is not"),
        (
            lambda folder: (folder / "config.json").write_text("[1]"),
            "`.*config.json` must be a JSON object, but is",
        ),
        (double_a_field, "`.*config.json` must be JSON, but is not: The field `d_model` must be there once, but is"),
        (
            lambda folder: (folder / "config.json").write_text("[" * 100_000),
            "`.*config.json` must be JSON, but is not: it is nested too deeply",
        ),
        (cut("generation_config.json", 5), "`.*generation_config.json` must be valid, but is not: "),
        (change_config(model_type="marian"), "`model_type` .* must be 'seq2seq_transformer', but is 'marian' instead"),
        (change_config(d_model=15), "The config of `.*model` must be valid, but is not: `d_model` must be a multiple"),
        (change_config(d_model=32), "weights of `.*model` must have the sizes that its config.json says, but `"),
        (change_config(encoder_layers=3), r"must have as many layers as .* says \(`encoder_layers` 3\), but have 2"),
        (change_config(decoder_layers=1), r"must have as many layers as .* says \(`decoder_layers` 1\), but have 2"),
        (change_config(attention_bias=True), "weights of `.*model` must be those .* but 24 are missing or left over"),
        (
            change_config(tie_word_embeddings=False),
            "must be those .* but 1 are missing or left over, `lm_head.weight`",
        ),
        (
            lambda folder: (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "another"}'),
            r"`.*model` must be a whole model, but holds an adapter too \(adapter_config.json\)\. Merge it",
        ),
        (lambda folder: shutil.rmtree(folder), "`.*model` must be the folder of a model, or the name of a repository"),
    ],
)
def test_what_is_wrong_with_a_model_is_named(damage: Callable[[Path], object], message: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises((ValueError, OSError), match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("tokenizer.json"), "`.*model` must hold the files of a tokenizer .* but they are missing or damaged"),
        (cut("tokenizer.json", 100), "`.*model` must hold the files of a tokenizer"),
        (cut("tokenizer_config.json", 100), "`.*model` must hold the files of a tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "`.*model` must hold the files of a tokenizer"),
        (remove("tokenizer_config.json"), "tokenizer of `.*model` must have a `pad_token`, but has none"),
        (lambda folder: shutil.rmtree(folder), "`.*model` must be the folder of a tokenizer, or the name of a reposi"),
    ],
)
def test_what_is_wrong_with_a_tokenizer_is_named(damage: Callable[[Path], object], message: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises((ValueError, OSError), match=message):
        load_tokenizer(folder)


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_what_can_be_no_repository_is_not_asked_for_on_the_hub(load: Callable[[str], object], folder: Path) -> None:
    with pytest.raises(NotADirectoryError, match=re.escape(f"is a file instead. Name the folder {folder}.")):
        load(str(folder / "config.json"))
    with pytest.raises(FileNotFoundError, match="must be a folder, but there is none"):
        load("nothere/")


def link_outside(name: str) -> Callable[[Path], object]:
    """Returns a damage: a file of a model becomes a link to a copy of it outside the folder."""

    def change(folder: Path) -> None:
        outside = folder.parent / "outside"
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return change


def shard(file_name: str) -> Callable[[Path], object]:
    """Returns a damage: the weights are another whole model's, which an index names."""

    def change(folder: Path) -> None:
        other = folder.parent / "other" / "model.safetensors"
        other.parent.mkdir()
        (folder / "model.safetensors").rename(other)
        with safe_open(other, framework="pt") as weights:
            names = list(weights.keys())
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, file_name.format(other=other))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def name_in(name: str, field: str, value: str) -> Callable[[Path], object]:
    """Returns a damage: a file names, for the running version of transformers, a copy outside the folder."""

    def change(folder: Path) -> None:
        shutil.copy(folder / value, folder.parent / value.replace(".json", ".4.0.0.json"))
        path = folder / name
        fields = json.loads(path.read_text()) | {field: [f"../{value.replace('.json', '.4.0.0.json')}"]}
        path.write_text(json.dumps(fields))

    return change


OUTSIDE: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights": (
        link_outside("model.safetensors"),
        r"model\.safetensors` must be a file in .*model`, but is one outside",
    ),
    "config": (
        link_outside("config.json"),
        r"config\.json` must be a file in .*outside, where a link leads",
    ),
    "tokenizer": (link_outside("tokenizer.json"), r"tokenizer\.json` must be a file in .*Put a copy of the file"),
    "shard": (shard("../other/model.safetensors"), r"names '\.\./other/model\.safetensors'\. Ask whoever made it"),
    "absolute shard": (shard("{other}"), "must name files of its own folder, but its `weight_map` names '/"),
    "version of the config": (
        name_in("config.json", "configuration_files", "config.json"),
        r"its `configuration_files` names '\.\./config\.4",
    ),
    "version of the tokenizer": (
        name_in("tokenizer_config.json", "fast_tokenizer_files", "tokenizer.json"),
        r"its `fast_tokenizer_files` names '\.\./tokenizer\.4",
    ),
}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_file_outside_the_folder_is_not_loaded_pushed_exported_or_averaged(kind: str, folder: Path) -> None:
    damage, message = OUTSIDE[kind]
    damage(folder)
    for use in (
        load_model,
        load_tokenizer,
        lambda path: stage(path, path.parent / "staged", repo_id="me/model"),
        lambda path: export("onnx", str(path), path.parent / "exported"),
        lambda path: average_checkpoints([path], path.parent / "averaged"),
        from_marian,
        load_marian_tokenizer,
    ):
        with pytest.raises(ValueError, match=message):
            use(folder)


def test_links_inside_a_folder_and_to_it_are_followed(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "weights-of-today.safetensors")
    (folder / "model.safetensors").symlink_to("weights-of-today.safetensors")
    (folder / "checkpoints").symlink_to(folder.parent)
    (folder.parent / "latest").symlink_to(folder)
    assert load_model(folder.parent / "latest").config.d_model == tiny_model().config.d_model


def test_a_folder_of_the_hub_s_cache_has_its_files_elsewhere_in_the_cache(folder: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--me--model" / "snapshots" / "abc", tmp_path / "models--me--model" / "blobs"
    snapshot.mkdir(parents=True)
    folder.rename(blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert load_model(snapshot).config.d_model == tiny_model().config.d_model
    load_tokenizer(snapshot)
    (tmp_path / "secret").write_text("{}")
    (snapshot / "generation_config.json").unlink()
    (snapshot / "generation_config.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"generation_config\.json` must be a file in"):
        load_model(snapshot)


def test_code_that_travels_with_a_model_is_not_run(folder: Path) -> None:
    change_config(auto_map={"AutoConfig": "evil.Config", "AutoModelForSeq2SeqLM": "evil.Model"})(folder)
    (folder / "evil.py").write_text("raise RuntimeError('run')")
    load_model(folder)
    load_tokenizer(folder)


def test_weights_in_a_pickle_file_of_a_repository_are_not_read(folder: Path) -> None:
    """A repository in the cache that holds nothing else."""
    repository = Path(HF_HUB_CACHE) / "models--someone--pickled"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copy(folder / "config.json", snapshot)
    torch.save(tiny_model().state_dict(), snapshot / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        load_model("someone/pickled")


def test_a_stock_tokenizer_that_cuts_the_tokens_added_to_it_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/huggingface/transformers/issues/29564"""
    trained = train_tokenizer(iter(["a b c"]), vocab_size=260)
    trained.add_tokens(["<2de>"], special_tokens=True)
    trained.save_pretrained(tmp_path / "ours")
    load_tokenizer(tmp_path / "ours")
    assert not caplog.records
    stock = PreTrainedTokenizerFast.from_pretrained(tmp_path / "ours")
    stock.add_special_tokens({"additional_special_tokens": ["<2fr>"]})
    stock.save_pretrained(tmp_path / "stock")
    assert load_tokenizer(tmp_path / "stock").tokenize("<2de>") == ["<2de>"]
    assert "cuts the special token '<2fr>', which was added to it, into 5 pieces" in caplog.text
    assert "with `add_tokens(['<2fr>'])` or after `import hf_seq2seq`" in caplog.text
