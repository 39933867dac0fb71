"""MarianMT models of every kind become ours and go back: equal logits, equal generated ids, or a refusal."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from huggingface_hub import split_torch_state_dict_into_shards
from reference.tiny_models import pad, random_sentences, tiny_model
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from hf_seq2seq import train_tokenizer
from hf_seq2seq.interop import from_marian, to_ctranslate2, to_marian
from hf_seq2seq.loading import load_model
from hf_seq2seq.output_limits import end_ids, up_to_end


VOCAB_SIZE, PAD, EOS = 50, 49, 0
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60}
# No token twice: random models would repeat one without end.
SETTINGS = {"max_length": 20, "bad_words_ids": [[PAD]], "renormalize_logits": True, "no_repeat_ngram_size": 1}

KINDS: dict[str, dict[str, Any]] = {
    "one table": {},
    "a source, a target and an output table": {**SEPARATE, "tie_word_embeddings": False},
    "a source and a target table": SEPARATE,
    "one table for both sides, and an output table": {"tie_word_embeddings": False},
    "ReLU": {"activation_function": "relu"},
    "unscaled embeddings": {"scale_embedding": False},
    "a deep encoder": {"encoder_layers": 3, "decoder_layers": 1},
    "a deep decoder": {"encoder_layers": 1, "decoder_layers": 3},
    "unequal heads": {"encoder_attention_heads": 4, "encoder_ffn_dim": 12},
    "an odd width": {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5},
}


def marian_model(seed: int = 0, **overrides: Any) -> Any:
    """A small MarianMT model whose every weight is random, the final logits bias too."""
    fields: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 512,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "forced_eos_token_id": EOS,
        "decoder_start_token_id": PAD,
    }
    model: Any = MarianMTModel(MarianConfig(**(fields | overrides)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            if "embed_positions" not in name and "embed_tokens" not in name:  # the latter follow
                noise = torch.randn(tensor.shape, generator=generator) * 0.3
                tensor.copy_(1 + noise if "norm" in name and name.endswith("weight") else noise)
        for stack in (model.model.encoder, model.model.decoder):
            if model.config.share_encoder_decoder_embeddings:
                stack.embed_tokens.weight.copy_(model.model.shared.weight)
            else:
                stack.embed_tokens.weight.copy_(torch.randn(stack.embed_tokens.weight.shape, generator=generator))
        if model.config.tie_word_embeddings:
            assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    model.generation_config.update(**SETTINGS)
    return model.eval()


def save(model: Any, folder: Path, **config_values: Any) -> Path:
    """Save as transformers does, with values of the config that older versions wrote."""
    model.save_pretrained(folder)
    if config_values:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config_values))
    return folder


def save_as_pickle(model: Any, folder: Path, left_out: tuple[str, ...] = ()) -> Path:
    """Save as transformers did before safetensors."""
    save(model, folder)
    (folder / "model.safetensors").unlink()
    weights = {name: tensor for name, tensor in model.state_dict().items() if name not in left_out}
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


def batch(length: int = 9) -> dict[str, Tensor]:
    """Three sources of unequal length with their mask, and targets."""
    input_ids, mask = pad(random_sentences([length, 3, 6], vocab_size=PAD), value=PAD)
    targets = torch.tensor(random_sentences([length, length, length], vocab_size=PAD, seed=1))
    return {"input_ids": input_ids, "attention_mask": mask, "decoder_input_ids": targets}


@torch.no_grad()
def logits(model: Any, length: int = 9) -> Tensor:
    result: Tensor = model(**batch(length)).logits
    return result


def assert_same_logits(actual: Any, expected: Any, length: int = 9) -> None:
    torch.testing.assert_close(logits(actual, length), logits(expected, length), rtol=0, atol=1e-5)


def assert_same_ids(actual: Any, expected: Any) -> None:
    inputs = {name: tensor for name, tensor in batch().items() if name != "decoder_input_ids"}
    for num_beams in (1, 4):
        ids, others = (outputs_of(model, inputs, num_beams) for model in (expected, actual))
        assert len({token for row in ids for token in row}) > 5  # else nothing is shown
        assert others == ids


def outputs_of(model: Any, inputs: dict[str, Tensor], num_beams: int) -> list[list[int]]:
    """What a model writes, up to the end: a stock model fills beams with `</s>` after it where the pad id is 0."""
    rows = model.generate(**inputs, num_beams=num_beams)[:, 1:].tolist()
    return [up_to_end(row, end_ids(model.generation_config)) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_same_logits_and_ids(kind: str, tmp_path: Path) -> None:
    """Tables that differ stay apart: https://github.com/huggingface/transformers/issues/26216."""
    marian = marian_model(**KINDS[kind])
    ours = from_marian(save(marian, tmp_path))
    assert_same_logits(ours, marian)
    assert_same_ids(ours, marian)


@pytest.mark.parametrize(
    ("kind", "is_shared", "is_tied"),
    [
        ("one table", True, True),
        ("a source and a target table", False, True),
        ("one table for both sides, and an output table", True, False),
        ("a source, a target and an output table", False, False),
    ],
)
def test_tables_that_are_one_stay_one(kind: str, is_shared: bool, is_tied: bool, tmp_path: Path) -> None:
    config = from_marian(save(marian_model(**KINDS[kind]), tmp_path)).config
    assert (config.share_encoder_decoder_embeddings, config.tie_word_embeddings) == (is_shared, is_tied)


def test_far_positions_have_the_same_logits(tmp_path: Path) -> None:
    marian = marian_model()
    ours = from_marian(save(marian, tmp_path))
    assert ours.config.position_embedding_type == "sinusoidal"
    assert_same_logits(ours, marian, length=400)


# An odd width has positions in a table, which MarianMT does not save.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "an odd width"])
def test_there_and_back_again_gives_the_same_weights_and_ids(kind: str, tmp_path: Path) -> None:
    marian = marian_model(**KINDS[kind])
    back = to_marian(from_marian(save(marian, tmp_path / "marian")))
    for name, tensor in marian.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    assert back.generation_config == marian.generation_config
    assert_same_ids(from_marian(save(back, tmp_path / "back")), marian)


def test_a_saved_import_loads_with_its_generation_settings(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/28793: they are only in generation_config.json."""
    marian = marian_model()
    marian.generation_config.num_beams = 6
    from_marian(save(marian, tmp_path / "marian")).save_pretrained(tmp_path / "ours")
    ours = load_model(tmp_path / "ours")
    settings = json.loads((tmp_path / "ours/generation_config.json").read_text())
    assert settings["num_beams"] == 6
    assert settings.items() >= SETTINGS.items()
    assert "suppress_tokens" not in settings
    assert not SETTINGS.keys() & json.loads((tmp_path / "ours/config.json").read_text()).keys()
    assert_same_logits(ours, marian)
    assert_same_ids(ours, marian)


def test_generation_settings_of_an_old_config_are_taken_over(tmp_path: Path) -> None:
    folder = save(marian_model(), tmp_path, bad_words_ids=[[7]], num_beams=3, max_length=11)
    (folder / "generation_config.json").unlink()
    settings = from_marian(folder).generation_config
    assert (settings.bad_words_ids, settings.num_beams, settings.max_length) == ([[7]], 3, 11)
    assert settings.suppress_tokens is None


def test_pytorch_files_are_read(tmp_path: Path) -> None:
    marian = marian_model(**SEPARATE)
    assert_same_logits(from_marian(save_as_pickle(marian, tmp_path)), marian)


def test_pytorch_files_in_shards_are_read(tmp_path: Path) -> None:
    marian = marian_model()
    weights = marian.state_dict()
    save(marian, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    shards = split_torch_state_dict_into_shards(
        weights, filename_pattern="pytorch_model{suffix}.bin", max_shard_size=8000
    )
    for name, keys in shards.filename_to_tensors.items():
        torch.save({key: weights[key].clone() for key in keys}, tmp_path / name)
    index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert len(shards.filename_to_tensors) > 2
    assert_same_logits(from_marian(tmp_path), marian)


def test_an_untied_file_with_the_shared_table_alone_is_whole(tmp_path: Path) -> None:
    marian = marian_model(tie_word_embeddings=False)
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    ours = from_marian(save_as_pickle(marian, tmp_path, left_out=names))
    assert ours.config.share_encoder_decoder_embeddings
    assert_same_logits(ours, marian)


def test_untied_tables_that_training_set_apart_stay_apart(tmp_path: Path) -> None:
    marian = marian_model(tie_word_embeddings=False)
    with torch.no_grad():
        marian.model.decoder.embed_tokens.weight[5] += 1
    ours = from_marian(save_as_pickle(marian, tmp_path))
    assert not ours.config.share_encoder_decoder_embeddings
    assert_same_logits(ours, marian)


def test_half_precision_is_kept(tmp_path: Path) -> None:
    ours = from_marian(save(marian_model().half(), tmp_path))
    assert ours.dtype == torch.float16
    assert ours.config.position_embedding_type == "sinusoidal"
    assert to_marian(ours).dtype == torch.float16


def test_position_tables_of_another_kind_become_learned_positions(tmp_path: Path) -> None:
    marian = marian_model()
    with torch.no_grad():
        marian.model.encoder.embed_positions.weight[3] += 1
    ours = from_marian(save_as_pickle(marian, tmp_path))
    assert_same_logits(ours, marian)
    assert ours.config.position_embedding_type == "learned"


def test_what_old_configs_say_besides_is_no_hindrance(tmp_path: Path) -> None:
    marian = marian_model()
    folder = save(
        marian,
        tmp_path,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
        add_bias_logits=False,
        num_hidden_layers=2,
        bos_token_id=0,
        classif_dropout=0.0,
        extra_pos_embeddings=0,
    )
    assert_same_logits(from_marian(folder), marian)


def test_layerdrop_is_left_out_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save(marian_model(encoder_layerdrop=0.1), tmp_path)
    with caplog.at_level(logging.WARNING, logger="hf_seq2seq"):
        from_marian(folder)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("hf_seq2seq")] == [
        "`encoder_layerdrop` (0.1) is left out: it drops layers in training, which this package does not do."
    ]


def test_all_that_cannot_be_represented_is_named_at_once(tmp_path: Path) -> None:
    folder = save(marian_model(), tmp_path, normalize_before=True, normalize_embedding=True)
    (folder / "model.safetensors").unlink()
    weights = marian_model().state_dict() | {"model.encoder.layer_norm.weight": torch.ones(16)}
    del weights["model.encoder.layers.1.fc1.bias"]
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="must be a model that this package can represent, but: ") as caught:
        from_marian(folder)
    assert "`normalize_before` is True, not False; `normalize_embedding` is True, not False" in str(caught.value)
    assert "the weight `model.encoder.layer_norm.weight` is left over" in str(caught.value)
    assert "the weight `model.encoder.layers.1.fc1.bias` is missing" in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (6, r"104 weights are missing, from `model\.decoder\.layers\.2\.\S+` to `model\.decoder\.layers\.5\.\S+`:"),
        (1, r"26 weights are left over, from `model\.decoder\.layers\.1\.\S+` to `model\.decoder\.layers\.1\.\S+`:"),
    ],
)
def test_layers_that_are_missing_or_left_over_are_named_in_short(layers: int, message: str, tmp_path: Path) -> None:
    folder = save(marian_model(), tmp_path, decoder_layers=layers)
    with pytest.raises(ValueError, match=rf"{message} config\.json and .* must be those that were saved together\."):
        from_marian(folder)


def test_what_keeps_a_model_from_loading_is_named_with_the_rest(tmp_path: Path) -> None:
    folder = save(marian_model(), tmp_path, activation_function="sine", normalize_before=True)
    with pytest.raises(ValueError, match=r"`normalize_before` is True.*no `activation_function` 'sine'.*cannot load"):
        from_marian(folder)


def test_damaged_generation_settings_are_refused(tmp_path: Path) -> None:
    (save(marian_model(), tmp_path) / "generation_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"MarianMTModel cannot load it .*generation_config\.json"):
        from_marian(tmp_path)


def test_damaged_safetensors_are_refused(tmp_path: Path) -> None:
    path = save(marian_model(), tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"MarianMTModel cannot load it \(SafetensorError"):
        from_marian(tmp_path)


def test_sizes_that_contradict_the_config_are_refused(tmp_path: Path) -> None:
    folder = save(marian_model(), tmp_path, encoder_ffn_dim=99)
    with pytest.raises(ValueError, match="MarianMTModel cannot load it"):
        from_marian(folder)


def test_a_pickle_that_runs_code_is_refused_unrun(tmp_path: Path) -> None:
    class Malice:
        def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
            return Path.touch, (tmp_path / "was_run",)

    folder = save(marian_model(), tmp_path / "marian")
    (folder / "model.safetensors").unlink()
    torch.save({"final_logits_bias": Malice()}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"its pytorch_model\.bin is damaged or holds more than tensors"):
        from_marian(folder)
    assert not (tmp_path / "was_run").exists()


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="must be 'marian', but is 'seq2seq_transformer' instead"):
        from_marian(tmp_path)


def test_a_folder_without_a_config_or_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be a model's folder, but has no config\.json"):
        from_marian(tmp_path)
    (save(marian_model(), tmp_path) / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="MarianMTModel cannot load it"):
        from_marian(tmp_path)


def test_a_name_that_is_no_folder_and_not_on_the_hub_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("offline")

    monkeypatch.setattr("hf_seq2seq.interop.stock_models.snapshot_download", fail)
    with pytest.raises(FileNotFoundError, match=r"but is no folder, and the Hub did not give it \(offline Check"):
        from_marian("nobody/nothing")


@pytest.mark.parametrize("has_safetensors", [True, False])
def test_of_a_repository_pickles_are_fetched_only_where_there_is_nothing_else(
    has_safetensors: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marian, fetched = marian_model(), []
    (save if has_safetensors else save_as_pickle)(marian, tmp_path)

    def download(repo: str, allow_patterns: list[str]) -> str:
        fetched.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("hf_seq2seq.interop.stock_models.snapshot_download", download)
    assert_same_logits(from_marian("somebody/something"), marian)
    assert any(pattern.endswith(".bin") for pattern in fetched) != has_safetensors


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"attention_bias": True, "lm_head_bias": True},
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60, "tie_word_embeddings": False},
        {"share_encoder_decoder_embeddings": False},
        {"tie_word_embeddings": False},
        {"key_dim": 3},
        {"key_dim": 3, "encoder_attention_heads": 4, "attention_bias": True},
        {"encoder_layers": 1, "decoder_layers": 3, "encoder_ffn_dim": 12},
        {"activation_function": "gelu", "scale_embedding": False},
    ],
    ids=str,
)
def test_our_models_become_marian_and_come_back_with_the_same_logits_and_ids(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    ours = tiny_model(**fields)
    ours.generation_config.update(max_length=20, no_repeat_ngram_size=1)
    marian = to_marian(ours)
    assert_same_logits(marian, ours)
    assert_same_ids(marian, ours)
    back = from_marian(save(marian, tmp_path))
    assert_same_logits(back, ours)
    assert_same_ids(back, ours)


def test_marian_has_positions_for_the_longest_output() -> None:
    ours = tiny_model(max_position_embeddings=5)
    ours.generation_config.update(max_length=20, no_repeat_ngram_size=1)
    marian = to_marian(ours)
    assert marian.config.max_position_embeddings == 20
    assert_same_ids(marian, ours)


def test_to_marian_leaves_the_model_alone() -> None:
    ours = tiny_model()
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    marian = to_marian(ours)
    with torch.no_grad():
        for parameter in marian.parameters():
            parameter.zero_()
    marian.generation_config.num_beams = 7
    assert ours.generation_config.num_beams is None
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_what_the_converter_of_ctranslate2_reads_of_ours_is_as_told(tmp_path: Path) -> None:
    """It takes the last token for the padding, which is the first of ours, so it does not read them."""
    tokenizer = train_tokenizer(iter(["a b c d e f"]), kind="word", vocab_size=10)
    ours = tiny_model(vocab_size=len(tokenizer), decoder_vocab_size=len(tokenizer))
    for model in (to_marian(ours), tokenizer):
        model.save_pretrained(tmp_path / "marian")
    with pytest.raises(ValueError, match="vocabulary of size 9"):
        TransformersConverter(str(tmp_path / "marian")).convert(str(tmp_path / "theirs"))
    to_ctranslate2(ours, tokenizer, tmp_path / "ours")
    assert ctranslate2.Translator(str(tmp_path / "ours")).translate_batch([["a", "</s>"]])
    assert "CTranslate2's own converter cannot read" in (to_marian.__doc__ or "")


def test_all_that_marian_cannot_represent_is_named_at_once() -> None:
    ours = tiny_model(norm_position="pre", position_embedding_type="learned", key_dim=9, decoder_attention_heads=4)
    ours.config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="must be one that MarianMT can represent, but: ") as caught:
        to_marian(ours)
    assert "`norm_position` is 'pre', not 'post'" in str(caught.value)
    assert "`position_embedding_type` is 'learned', not 'sinusoidal'" in str(caught.value)
    assert "`key_dim` is 9, more than the 4 of a head's values" in str(caught.value)
    assert "`decoder_start_token_id` is None" in str(caught.value)


def test_only_a_model_with_an_output_projection_goes_to_marian() -> None:
    with pytest.raises(TypeError, match="must be a Seq2SeqTransformerForConditionalGeneration, but is a Seq2Seq"):
        to_marian(tiny_model().model)


def test_a_foreign_config_picks_no_kernels(tmp_path: Path) -> None:
    folder = save(marian_model(), tmp_path, attn_implementation="someone/kernels")
    assert from_marian(folder).config._attn_implementation == "sdpa"
