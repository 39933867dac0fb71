"""FSMT models of every kind become ours: equal logits, equal generated ids, or a refusal."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import pad, random_sentences
from torch import Tensor
from transformers import FSMTConfig, FSMTForConditionalGeneration

from hf_seq2seq.interop import from_fsmt
from hf_seq2seq.interop.fsmt import load_fsmt_tokenizer
from hf_seq2seq.loading import load_model
from hf_seq2seq.training.preparing_tokenizer import check_tokenizer


PAD = 1

KINDS: dict[str, dict[str, Any]] = {
    "three tables": {},
    "one table": {"tie_word_embeddings": True, "src_vocab_size": 40},
    "ReLU": {"activation_function": "relu"},
    "unscaled embeddings": {"scale_embedding": False},
    "a deep encoder": {"encoder_layers": 3, "decoder_layers": 1},
    "a deep decoder": {"encoder_layers": 1, "decoder_layers": 3},
    "unequal heads": {"encoder_attention_heads": 4, "encoder_ffn_dim": 12},
    "another id of the padding": {"pad_token_id": 3},
    "an odd width": {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5},
}


def fsmt_model(seed: int = 0, **overrides: Any) -> Any:
    """A small FSMT model whose every weight is random, but for its sinusoids."""
    fields: dict[str, Any] = {
        "langs": ["en", "de"],
        "src_vocab_size": 50,
        "tgt_vocab_size": 40,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 512,
        "activation_function": "swish",
        "max_length": 20,
    }
    model: Any = FSMTForConditionalGeneration(FSMTConfig(**(fields | overrides)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                noise = torch.randn(parameter.shape, generator=generator) * 0.3
                parameter.copy_(1 + noise if "norm" in name and name.endswith("weight") else noise)
    # No token twice, since random models would repeat one without end; and no padding, which trained models never
    # generate: FSMT would give it another position.
    model.generation_config.update(no_repeat_ngram_size=1, bad_words_ids=[[model.config.pad_token_id]])
    return model.eval()


def save(model: Any, folder: Path, **config_values: Any) -> Path:
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config_values))
    return folder


def save_as_pickle(model: Any, folder: Path, *left_out: str) -> Path:
    """Save as transformers did before safetensors, without the weights whose names end so."""
    (save(model, folder) / "model.safetensors").unlink()
    weights = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(left_out)}
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


def batch(pad_id: int, length: int = 9) -> dict[str, Tensor]:
    """Three sources of unequal length with their mask, and targets."""
    input_ids, mask = pad(random_sentences([length, 3, 6], vocab_size=40), value=pad_id)
    targets = torch.tensor(random_sentences([length, length, length], vocab_size=40, seed=1))
    return {"input_ids": input_ids, "attention_mask": mask, "decoder_input_ids": targets}


@torch.no_grad()
def assert_same_logits(actual: Any, expected: Any, length: int = 9) -> None:
    inputs = batch(expected.config.pad_token_id, length)
    expected_logits = expected(**inputs, use_cache=False).logits  # with a cache FSMT has no causal mask
    torch.testing.assert_close(actual(**inputs).logits, expected_logits, rtol=0, atol=1e-5)


def assert_same_ids(actual: Any, expected: Any) -> None:
    inputs = batch(expected.config.pad_token_id)
    del inputs["decoder_input_ids"]
    for num_beams in (1, 5):
        ids = expected.generate(**inputs, num_beams=num_beams)
        assert len(ids.unique()) > 5  # else nothing is shown
        assert torch.equal(actual.generate(**inputs, num_beams=num_beams), ids)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_same_logits_and_ids(kind: str, tmp_path: Path) -> None:
    """Tables that differ stay apart: https://github.com/huggingface/transformers/issues/26216."""
    fsmt = fsmt_model(**KINDS[kind])
    ours = from_fsmt(save(fsmt, tmp_path))
    assert_same_logits(ours, fsmt)
    assert_same_ids(ours, fsmt)


@pytest.mark.parametrize(("kind", "is_one"), [("one table", True), ("three tables", False)])
def test_tables_that_are_one_stay_one(kind: str, is_one: bool, tmp_path: Path) -> None:
    config = from_fsmt(save(fsmt_model(**KINDS[kind]), tmp_path)).config
    assert (config.share_encoder_decoder_embeddings, config.tie_word_embeddings) == (is_one, is_one)


def test_the_last_positions_have_the_same_logits(tmp_path: Path) -> None:
    fsmt = fsmt_model()
    assert_same_logits(from_fsmt(save(fsmt, tmp_path)), fsmt, length=512)


def test_the_position_table_is_long_enough_for_the_longest_output(tmp_path: Path) -> None:
    fsmt = fsmt_model(max_position_embeddings=12, max_length=20)
    ours = from_fsmt(save(fsmt, tmp_path))
    assert ours.config.max_position_embeddings == 20
    assert_same_logits(ours, fsmt, length=20)
    assert_same_ids(ours, fsmt)


def test_a_saved_import_loads_with_its_generation_settings(tmp_path: Path) -> None:
    fsmt = fsmt_model(num_beams=3, length_penalty=1.15)
    from_fsmt(save(fsmt, tmp_path / "fsmt")).save_pretrained(tmp_path / "ours")
    ours = load_model(tmp_path / "ours")
    settings = json.loads((tmp_path / "ours/generation_config.json").read_text())
    assert settings.items() >= {"num_beams": 3, "length_penalty": 1.15, "max_length": 20}.items()
    assert "suppress_tokens" not in settings
    assert not {"num_beams", "max_length", "langs"} & json.loads((tmp_path / "ours/config.json").read_text()).keys()
    assert_same_logits(ours, fsmt)
    assert_same_ids(ours, fsmt)


def test_a_file_without_positions_is_whole(tmp_path: Path) -> None:
    fsmt = fsmt_model()
    assert_same_logits(from_fsmt(save_as_pickle(fsmt, tmp_path, "embed_positions.weight")), fsmt)


def test_a_file_without_an_output_table_shares_the_target_s(tmp_path: Path) -> None:
    fsmt = fsmt_model()
    ours = from_fsmt(save_as_pickle(fsmt, tmp_path, "output_projection.weight"))
    assert ours.config.tie_word_embeddings
    fsmt.model.decoder.output_projection.weight = fsmt.model.decoder.embed_tokens.weight
    assert_same_logits(ours, fsmt)


def test_all_that_cannot_be_represented_is_named_at_once(tmp_path: Path) -> None:
    folder = save_as_pickle(fsmt_model(), tmp_path, "layers.1.fc1.bias")
    save_values = json.loads((folder / "config.json").read_text()) | {"normalize_before": True}
    (folder / "config.json").write_text(json.dumps(save_values))
    with pytest.raises(ValueError, match="must be a model that this package can represent") as caught:
        from_fsmt(folder)
    assert "`normalize_before` is True, not False" in str(caught.value)
    assert "the weight `model.encoder.layers.1.fc1.bias` is missing" in str(caught.value)
    assert "the weight `model.decoder.layers.1.fc1.bias` is missing" in str(caught.value)


def test_a_config_that_ours_does_not_allow_is_named_with_the_rest(tmp_path: Path) -> None:
    folder = save(fsmt_model(), tmp_path, eos_token_id=45, normalize_before=True)  # a source's token, no target's
    with pytest.raises(ValueError, match=r"`normalize_before` is True.*does not fit ours \(`eos_token_id` must be"):
        from_fsmt(folder)


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    folder = save(fsmt_model(), tmp_path, model_type="bart")
    with pytest.raises(ValueError, match="must be 'fsmt', but is 'bart' instead"):
        from_fsmt(folder)


def write_tokenizer(folder: Path, source_words: list[str], target_words: list[str]) -> Path:
    """Files of an FSMT tokenizer whose texts are cut into letters."""
    for name, words in (("src", source_words), ("tgt", target_words)):
        letters = sorted(set("".join(words)))
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
        vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
        (folder / f"vocab-{name}.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("")
    (folder / "tokenizer_config.json").write_text(json.dumps({"langs": ["en", "de"]}))
    return folder


def test_the_tokenizer_gets_an_end_token(tmp_path: Path) -> None:
    tokenizer = load_fsmt_tokenizer(write_tokenizer(tmp_path, ["ab"], ["ab"]))
    assert tokenizer is not None
    assert tokenizer.eos_token == "</s>"
    assert tokenizer("ab")["input_ids"][-1] == tokenizer.eos_token_id == 2


@pytest.mark.parametrize(("target_words", "num_warnings"), [(["ab"], 0), (["äb"], 1)])
def test_a_tokenizer_that_cannot_encode_targets_warns(
    target_words: list[str], num_warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/huggingface/transformers/issues/6262."""
    folder = write_tokenizer(tmp_path, ["ab"], target_words)
    with caplog.at_level(logging.WARNING, logger="hf_seq2seq"):
        load_fsmt_tokenizer(folder)
    assert caplog.text.count("it is fit for translation, but not for training on") == num_warnings


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert load_fsmt_tokenizer(tmp_path) is None


def test_a_part_of_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (write_tokenizer(tmp_path, ["ab"], ["ab"]) / "merges.txt").unlink()
    with pytest.raises(ValueError, match=r"must have the files .* but has no merges\.txt"):
        load_fsmt_tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    (write_tokenizer(tmp_path, ["ab"], ["ab"]) / "vocab-src.json").write_text("{")
    with pytest.raises(ValueError, match="must be whole, but cannot be read"):
        load_fsmt_tokenizer(tmp_path)


def test_a_library_that_the_tokenizer_misses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ValueError, match=r"sacremoses.*pip install 'hf-seq2seq\[export\]'"):
        load_fsmt_tokenizer(write_tokenizer(tmp_path, ["ab"], ["ab"]))


def test_a_tokenizer_of_two_vocabularies_is_not_trained_with(tmp_path: Path) -> None:
    for target_word in ("ab", "äb"):
        (tmp_path / target_word).mkdir()
        write_tokenizer(tmp_path / target_word, ["ab"], [target_word])
    one, two = (load_fsmt_tokenizer(tmp_path / target_word) for target_word in ("ab", "äb"))
    assert one is not None
    assert two is not None
    one.add_tokens(["<2de>"])
    check_tokenizer(one, "one")
    with pytest.raises(ValueError, match=r"tokenizer of `.*` must encode targets, but is an FSMTTokenizer with a voc"):
        check_tokenizer(two, "two")
