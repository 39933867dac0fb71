"""Vocabularies grow and shrink with everything that depends on them, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import pad, random_sentences, tiny_config, tiny_model
from torch import Tensor
from transformers import AutoModel, AutoModelForSeq2SeqLM

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Seq2SeqTransformerModel


Model = Seq2SeqTransformerForConditionalGeneration
LAYOUTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied head": {"tie_word_embeddings": False},
    "separate": {"share_encoder_decoder_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 44},
    "nothing tied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
separate_layouts = pytest.mark.parametrize("layout", list(LAYOUTS.values())[2:], ids=list(LAYOUTS)[2:])
shared_layouts = pytest.mark.parametrize("layout", list(LAYOUTS.values())[:2], ids=list(LAYOUTS)[:2])
more_or_fewer = pytest.mark.parametrize("change", [5, -3])
both_ways_to_draw = pytest.mark.parametrize("mean_resizing", [True, False], ids=["around the mean", "as at first"])


def batch() -> dict[str, Tensor]:
    input_ids, attention_mask = pad(random_sentences((7, 2, 5), vocab_size=40, seed=1))
    labels, _ = pad(random_sentences((4, 6, 3), vocab_size=40, seed=2), value=-100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def weights(model: Model) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def assert_consistent(model: Model, source_size: int, target_size: int) -> None:
    """All that depends on the vocabularies agrees, and what was tied still is."""
    config, source, target = model.config, model.model.encoder.embed_tokens, model.model.decoder.embed_tokens
    assert (config.vocab_size, config.decoder_vocab_size) == (source_size, target_size)
    assert source.weight.shape == (source.num_embeddings, 16) == (source_size, 16)
    assert target.weight.shape == (target.num_embeddings, 16) == (target_size, 16)
    assert model.lm_head.weight.shape == (model.lm_head.out_features, 16) == (target_size, 16)
    assert model.lm_head.bias.shape == (target_size,)
    assert (source.weight is target.weight) == config.share_encoder_decoder_embeddings
    assert (target.weight is model.lm_head.weight) == config.tie_word_embeddings


def assert_works(model: Model, folder: Path) -> None:
    """Computes, trains, generates, and does the same after saving and loading."""
    loss = model.train()(**batch()).loss
    loss.backward()
    assert loss.isfinite()
    with torch.no_grad():
        logits = model.eval()(**batch()).logits
    assert logits.shape[-1] == model.config.decoder_vocab_size
    assert logits.isfinite().all()
    model.save_pretrained(folder)
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert_consistent(reloaded, model.config.vocab_size, model.config.decoder_vocab_size or 0)
    with torch.no_grad():
        assert torch.equal(reloaded(**batch()).logits, logits)
    generated = [each.generate(batch()["input_ids"], max_new_tokens=5) for each in (model, reloaded)]
    assert torch.equal(*generated)


def assert_kept(before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    """Old rows of each weight are as before, and so is each weight that has no rows to gain or lose."""
    assert before.keys() == after.keys()
    for name, weight in before.items():
        num_kept = min(len(weight), len(after[name]))
        assert torch.equal(after[name][:num_kept], weight[:num_kept]), name


@more_or_fewer
@both_ways_to_draw
@shared_layouts
def test_a_shared_vocabulary_is_resized_on_both_sides(
    layout: dict[str, Any], mean_resizing: bool, change: int, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/1124."""
    model = tiny_model(lm_head_bias=True, **layout)
    before = weights(model)
    returned = model.resize_token_embeddings(50 + change, mean_resizing=mean_resizing)
    assert returned is model.get_input_embeddings()
    assert_consistent(model, 50 + change, 50 + change)
    assert_kept(before, weights(model))
    assert_works(model, tmp_path)


@more_or_fewer
@separate_layouts
def test_a_separate_source_vocabulary_is_resized_alone(layout: dict[str, Any], change: int, tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/1124."""
    model = tiny_model(lm_head_bias=True, **layout)
    before, target_size = weights(model), model.config.decoder_vocab_size or 0
    model.resize_token_embeddings(50 + change)
    assert_consistent(model, 50 + change, target_size)
    assert_kept(before, weights(model))
    assert_works(model, tmp_path)


@more_or_fewer
@both_ways_to_draw
@separate_layouts
def test_a_separate_target_vocabulary_is_resized_alone(
    layout: dict[str, Any], mean_resizing: bool, change: int, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/1124."""
    model = tiny_model(lm_head_bias=True, **layout)
    before, target_size = weights(model), model.config.decoder_vocab_size or 0
    returned = model.resize_decoder_token_embeddings(target_size + change, mean_resizing=mean_resizing)
    assert returned is model.get_decoder_input_embeddings()
    assert_consistent(model, 50, target_size + change)
    assert_kept(before, weights(model))
    assert_works(model, tmp_path)


@separate_layouts
def test_both_separate_vocabularies_can_be_resized(layout: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model(lm_head_bias=True, **layout)
    model.resize_decoder_token_embeddings(60)
    model.resize_token_embeddings(45)
    assert_consistent(model, 45, 60)
    assert_works(model, tmp_path)


def test_a_shared_target_vocabulary_cannot_be_resized_alone() -> None:
    model = tiny_model(lm_head_bias=True)
    with pytest.raises(ValueError, match=r"`resize_decoder_token_embeddings` needs .* Call `resize_token_embeddings`"):
        model.resize_decoder_token_embeddings(60)
    assert_consistent(model, 50, 50)


@every_layout
def test_sizes_are_rounded_up_to_the_multiple_that_is_asked_for(layout: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model(lm_head_bias=True, **layout)
    shared, before = model.config.share_encoder_decoder_embeddings, weights(model)
    model.resize_token_embeddings(50, pad_to_multiple_of=8)
    if not shared:
        model.resize_decoder_token_embeddings(57, pad_to_multiple_of=16)
    assert_consistent(model, 56, 56 if shared else 64)
    assert_kept(before, weights(model))
    assert_works(model, tmp_path)


@every_layout
def test_asking_for_the_size_or_for_nothing_changes_nothing(layout: dict[str, Any]) -> None:
    model = tiny_model(lm_head_bias=True, **layout)
    before, target_size = weights(model), model.config.decoder_vocab_size or 0
    assert model.resize_token_embeddings() is model.get_input_embeddings()
    model.resize_token_embeddings(50)
    assert_consistent(model, 50, target_size)
    assert all(torch.equal(weight, before[name]) for name, weight in weights(model).items())


@every_layout
def test_frozen_embeddings_stay_frozen(layout: dict[str, Any]) -> None:
    model = tiny_model(lm_head_bias=True, **layout).requires_grad_(False)
    model.resize_token_embeddings(55)
    if not model.config.share_encoder_decoder_embeddings:
        model.resize_decoder_token_embeddings(55)
    assert not [name for name, parameter in model.named_parameters() if parameter.requires_grad]


@pytest.mark.parametrize("layout", [LAYOUTS["tied"], LAYOUTS["two vocabularies"]], ids=["tied", "two vocabularies"])
def test_the_base_model_is_resized_and_saved_too(layout: dict[str, Any], tmp_path: Path) -> None:
    model = Seq2SeqTransformerModel(tiny_config(**layout))
    shared = model.config.share_encoder_decoder_embeddings
    model.resize_token_embeddings(55)
    model.save_pretrained(tmp_path)
    reloaded = AutoModel.from_pretrained(tmp_path)
    assert reloaded.encoder.embed_tokens.num_embeddings == reloaded.config.vocab_size == 55
    expected = 55 if shared else 44
    assert reloaded.decoder.embed_tokens.num_embeddings == reloaded.config.decoder_vocab_size == expected
    assert (reloaded.encoder.embed_tokens.weight is reloaded.decoder.embed_tokens.weight) == shared
