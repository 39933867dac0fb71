"""What the model's forward takes beside the usual: caches, encoder outputs and masks in every form."""

import pytest
import torch
from reference.tiny_models import pad, random_sentences, tiny_config, tiny_model
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration


@torch.no_grad()
def test_a_config_may_ask_for_tuples() -> None:
    model = tiny_model()
    inputs = {"input_ids": torch.tensor([[5, 6, 2]]), "decoder_input_ids": torch.tensor([[1, 7]])}
    expected = model(**inputs).logits
    model.config.return_dict = False
    found = model(**inputs)
    assert isinstance(found, tuple)
    assert torch.equal(found[0], expected)


def test_a_plain_cache_keeps_the_encoders_keys_out_of_the_targets() -> None:
    model = tiny_model()
    source, mask = pad(random_sentences([5, 3]))
    target, _ = pad(random_sentences([4, 4], seed=1))
    whole = model(source, mask, decoder_input_ids=target).logits
    first = model(source, mask, decoder_input_ids=target[:, :3], cache=DynamicCache(), use_cache=True)
    rest = model(source, mask, decoder_input_ids=target[:, 3:], cache=first.cache, use_cache=True)
    torch.testing.assert_close(torch.cat((first.logits, rest.logits), dim=1), whole, atol=1e-5, rtol=0)


@torch.no_grad()
def test_encoder_outputs_may_be_of_any_kind() -> None:
    model = tiny_model()
    source, mask = pad(random_sentences([5, 3]))
    target, _ = pad(random_sentences([4, 4], seed=1))
    expected = model(source, mask, decoder_input_ids=target).logits
    states = model.model.encoder(source, mask).last_hidden_state
    for outputs in (
        (states,),
        {"last_hidden_state": states},
        BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states),
    ):
        logits = model(attention_mask=mask, encoder_outputs=outputs, decoder_input_ids=target).logits
        torch.testing.assert_close(logits, expected, atol=0, rtol=0)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_a_ready_mask_of_truth_values_masks(attention: str) -> None:
    model = tiny_model(attention=attention)
    source, mask = pad(random_sentences([5, 3]))
    expected = model.model.encoder(source, mask).last_hidden_state
    ready = mask.bool()[:, None, None, :].expand(-1, 1, 5, -1)
    states = model.model.encoder(source, ready).last_hidden_state
    torch.testing.assert_close(states[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)


@torch.no_grad()
def test_eager_attention_keeps_float64() -> None:
    source, mask = pad(random_sentences([9, 3]))
    target, _ = pad(random_sentences([4, 4], seed=1))
    eager, sdpa = (
        tiny_model(attention=name, dtype=torch.float64)(source, mask, decoder_input_ids=target).logits
        for name in ("eager", "sdpa")
    )
    torch.testing.assert_close(eager, sdpa, atol=1e-12, rtol=0)


@torch.no_grad()
def test_the_end_is_never_suppressed_where_it_is_the_start_token_too() -> None:
    model = tiny_model(decoder_start_token_id=2, eos_token_id=2, lm_head_bias=True)
    model.lm_head.bias[2] = 1000.0
    assert model.generate(torch.tensor([[5, 6, 2]]), max_length=12).tolist() == [[2, 2]]


def test_flash_attention_is_refused_where_keys_and_values_differ_in_width() -> None:
    """Its kernels would fail with a message of their own."""
    model = Seq2SeqTransformerForConditionalGeneration(tiny_config(key_dim=4))
    assert not model._supports_flash_attn
    assert Seq2SeqTransformerForConditionalGeneration(tiny_config(key_dim=8))._supports_flash_attn
