"""The model computes what the paper's equations say, whatever the padding, the cache and the attention kernel."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from reference.numpy_transformer import label_smoothed_cross_entropy, sinusoids, transformer_logits
from reference.tiny_models import pad, random_sentences, tiny_model
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration


START = 1
CONFIGS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm_position": "pre"},
    "untied head": {"tie_word_embeddings": False},
    "separate embeddings": {"share_encoder_decoder_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 40},
    "nothing tied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "norm_position": "pre"},
    "deep encoder": {"encoder_layers": 3, "decoder_layers": 1},
    "deep decoder": {"encoder_layers": 1, "decoder_layers": 3, "norm_position": "pre"},
    "unequal heads": {"encoder_attention_heads": 4, "decoder_attention_heads": 1},
    "unequal networks": {"encoder_ffn_dim": 24, "decoder_ffn_dim": 40},
    "narrow keys": {"key_dim": 3},
    "wide keys": {"key_dim": 12, "attention_bias": True},
    "learned positions": {"position_embedding_type": "learned"},
    "unscaled embeddings": {"scale_embedding": False},
    "attention bias": {"attention_bias": True},
    "head bias": {"lm_head_bias": True},
    "gelu": {"activation_function": "gelu"},
    "silu": {"activation_function": "silu"},
}
every_config = pytest.mark.parametrize("overrides", CONFIGS.values(), ids=CONFIGS)
both_norms = pytest.mark.parametrize("norm_position", ["post", "pre"])
both_kernels = pytest.mark.parametrize("attention", ["eager", "sdpa"])
both_sides = pytest.mark.parametrize("side", ["left", "right"])
both_positions = pytest.mark.parametrize("position_embedding_type", ["sinusoidal", "learned"])
all_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def numpy_weights(model: nn.Module) -> dict[str, Any]:
    return {name: weight.double().numpy() for name, weight in model.state_dict().items()}


def batch(side: str = "right", extra: int = 0, vocab_size: int = 40) -> dict[str, Tensor]:
    """Three pairs of unequal lengths; the longest source and the longest target are not one pair."""
    sources = random_sentences((7, 2, 5), vocab_size=vocab_size, seed=1)
    targets = [[START, *target] for target in random_sentences((3, 5, 1), vocab_size=vocab_size, seed=2)]
    input_ids, attention_mask = pad(sources, side=side, extra=extra)
    decoder_input_ids, decoder_attention_mask = pad(targets, side=side, extra=extra)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
        "decoder_attention_mask": decoder_attention_mask,
    }


def rows_without_padding(padded: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The same sentences one by one: batches of one row, without padding and without masks."""
    rows = zip(*padded.values(), strict=True)
    return [
        {"input_ids": source[source_mask == 1][None], "decoder_input_ids": target[target_mask == 1][None]}
        for source, source_mask, target, target_mask in rows
    ]


def real_logits(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Logits at the target's tokens, row after row: those at padding mean nothing."""
    with torch.no_grad():
        return at_tokens(model(**inputs).logits, inputs.get("decoder_attention_mask"))


def at_tokens(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits.flatten(0, 1) if mask is None else logits[mask == 1]


def assert_same(actual: Any, expected: Any, atol: float = 1e-5) -> None:
    torch.testing.assert_close(
        torch.as_tensor(actual), torch.as_tensor(expected), atol=atol, rtol=0, check_dtype=False
    )


# The network against the paper's equations


@both_sides
@every_config
def test_logits_are_those_of_the_papers_equations(overrides: dict[str, Any], side: str) -> None:
    model = tiny_model(**overrides)
    inputs = batch(side)
    expected = transformer_logits(
        numpy_weights(model),
        model.config,
        inputs["input_ids"].numpy(),
        inputs["decoder_input_ids"].numpy(),
        inputs["attention_mask"].numpy(),
        inputs["decoder_attention_mask"].numpy(),
    )
    assert_same(real_logits(model, inputs), expected[inputs["decoder_attention_mask"].numpy() == 1])


@both_sides
@every_config
def test_padded_rows_have_the_logits_of_the_equations_without_any_mask(overrides: dict[str, Any], side: str) -> None:
    model = tiny_model(**overrides)
    inputs = batch(side, extra=2)
    weights = numpy_weights(model)
    expected = [
        transformer_logits(weights, model.config, row["input_ids"].numpy(), row["decoder_input_ids"].numpy())[0]
        for row in rows_without_padding(inputs)
    ]
    assert_same(real_logits(model, inputs), np.concatenate(expected))


def test_a_long_sequence_in_float64_agrees_to_ten_digits() -> None:
    """float32 angles would be wrong by 3e-5 at position 512."""
    model = tiny_model(encoder_layers=1, decoder_layers=1, dtype=torch.float64)
    sentence = torch.tensor(random_sentences((600,)))
    expected = transformer_logits(numpy_weights(model), model.config, sentence.numpy(), sentence.numpy())
    assert_same(real_logits(model, {"input_ids": sentence, "decoder_input_ids": sentence})[None], expected, atol=1e-10)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's own advice on pre-norm
@both_norms
def test_logits_are_those_of_torchs_transformer_with_the_same_weights(norm_position: str) -> None:
    model = tiny_model(norm_position=norm_position, attention_bias=True, encoder_layers=3)
    inputs = batch()
    peer = torch_transformer(model)
    weights = dict(model.state_dict())

    def embed(stack: str, ids: Tensor) -> Tensor:
        positions = np.arange(ids.shape[1])[None]
        tokens = nn.functional.embedding(ids, weights[f"model.{stack}.embed_tokens.weight"])
        return tokens * math.sqrt(model.config.d_model) + torch.from_numpy(sinusoids(positions, 16)).float()

    states = peer(
        embed("encoder", inputs["input_ids"]),
        embed("decoder", inputs["decoder_input_ids"]),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs["decoder_input_ids"].shape[1]).isinf(),
        src_key_padding_mask=inputs["attention_mask"] == 0,
        tgt_key_padding_mask=inputs["decoder_attention_mask"] == 0,
        memory_key_padding_mask=inputs["attention_mask"] == 0,
    )
    expected = states[inputs["decoder_attention_mask"] == 1] @ weights["lm_head.weight"].T
    assert_same(real_logits(model, inputs), expected.detach())


def torch_transformer(model: Seq2SeqTransformerForConditionalGeneration) -> nn.Transformer:
    """torch's own Transformer with the weights of ours; without its final norms where ours has none."""
    config = model.config
    peer = nn.Transformer(
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.encoder_ffn_dim,
        dropout=0.0,
        batch_first=True,
        norm_first=config.norm_position == "pre",
    )
    stacks: Any = ((model.model.encoder, peer.encoder), (model.model.decoder, peer.decoder))
    for stack, peer_stack in stacks:
        for layer, peer_layer in zip(stack.layers, peer_stack.layers, strict=True):
            copy_layer(layer, peer_layer, is_decoder=stack is model.model.decoder)
        if config.norm_position == "pre":
            peer_stack.norm.load_state_dict(stack.layer_norm.state_dict())
        else:
            peer_stack.norm = None
    return peer


@torch.no_grad()
def copy_layer(layer: Any, peer: Any, is_decoder: bool) -> None:
    pairs = [(layer.fc1, peer.linear1), (layer.fc2, peer.linear2), (layer.self_attn_layer_norm, peer.norm1)]
    attentions = [(layer.self_attn, peer.self_attn)]
    if is_decoder:
        attentions += [(layer.encoder_attn, peer.multihead_attn)]
        pairs += [(layer.encoder_attn_layer_norm, peer.norm2), (layer.final_layer_norm, peer.norm3)]
    else:
        pairs += [(layer.final_layer_norm, peer.norm2)]
    for attention, peer_attention in attentions:
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        peer_attention.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        peer_attention.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
        pairs += [(attention.out_proj, peer_attention.out_proj)]
    for module, peer_module in pairs:
        peer_module.load_state_dict(module.state_dict())


# Attention kernels


@every_config
def test_sdpa_equals_eager(overrides: dict[str, Any]) -> None:
    inputs = batch()
    eager = tiny_model(attention="eager", **overrides)
    sdpa = tiny_model(attention="sdpa", **overrides)
    assert_same(real_logits(sdpa, inputs), real_logits(eager, inputs))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_flex_attention_equals_eager() -> None:
    inputs = batch()
    eager, flex = tiny_model(attention="eager"), tiny_model(attention="flex_attention")
    assert_same(real_logits(flex, inputs), real_logits(eager, inputs))


def test_attention_weights_are_probabilities_over_real_tokens_alone() -> None:
    model = tiny_model(attention="eager")
    inputs = batch()
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    source_is_padding = inputs["attention_mask"] == 0
    for weights in (*outputs.encoder_attentions, *outputs.cross_attentions):
        assert_same(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert weights.transpose(1, 3)[source_is_padding].abs().max() == 0
    for weights in outputs.decoder_attentions:
        assert_same(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert weights.triu(1).abs().max() == 0


# Caches


def cached_logits(
    model: Seq2SeqTransformerForConditionalGeneration, inputs: dict[str, Tensor], cache: EncoderDecoderCache | None
) -> Tensor:
    """Logits of the target fed in pieces of 2, 1, 1, ... tokens, each piece with the cache of those before."""
    target, mask = inputs["decoder_input_ids"], inputs.get("decoder_attention_mask")
    pieces = [(0, 2), *((step, step + 1) for step in range(2, target.shape[1]))]
    logits, encoder_outputs = [], None
    for begin, end in pieces:
        outputs = model(
            input_ids=inputs["input_ids"] if encoder_outputs is None else None,
            encoder_outputs=encoder_outputs,
            attention_mask=inputs.get("attention_mask"),
            decoder_input_ids=target[:, begin:end],
            decoder_attention_mask=None if mask is None else mask[:, :end],
            cache=cache,
            use_cache=True,
        )
        logits.append(outputs.logits)
        cache, encoder_outputs = outputs.cache, (outputs.encoder_last_hidden_state,)
    return at_tokens(torch.cat(logits, dim=1), mask)


@both_sides
@every_config
@torch.no_grad()
def test_decoding_with_a_cache_gives_the_logits_of_decoding_without(overrides: dict[str, Any], side: str) -> None:
    check_decoding_with_a_cache(tiny_model(**overrides), batch(side))


@both_sides
@both_positions
@torch.no_grad()
def test_eager_decoding_with_a_cache_gives_the_logits_of_decoding_without(
    position_embedding_type: str, side: str
) -> None:
    model = tiny_model(attention="eager", position_embedding_type=position_embedding_type)
    check_decoding_with_a_cache(model, batch(side))


@both_kernels
@both_positions
@torch.no_grad()
def test_decoding_with_a_cache_needs_no_mask(position_embedding_type: str, attention: str) -> None:
    model = tiny_model(attention=attention, position_embedding_type=position_embedding_type)
    sentences = {"input_ids": random_sentences((6, 6)), "decoder_input_ids": random_sentences((5, 5), seed=1)}
    check_decoding_with_a_cache(model, {name: torch.tensor(ids) for name, ids in sentences.items()})


def check_decoding_with_a_cache(model: Seq2SeqTransformerForConditionalGeneration, inputs: dict[str, Tensor]) -> None:
    whole = real_logits(model, inputs)
    config = model.config.get_text_config(decoder=True)
    dynamic = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    static = EncoderDecoderCache(
        StaticCache(config=config, max_cache_len=12),
        StaticCache(config=config, max_cache_len=inputs["input_ids"].shape[1]),
    )
    for cache in (None, dynamic, static):
        assert_same(cached_logits(model, inputs, cache), whole)


@torch.no_grad()
def test_without_use_cache_nothing_is_cached() -> None:
    assert tiny_model()(**batch(), use_cache=False).cache is None


# Padding


@both_kernels
@both_sides
@both_positions
def test_a_batch_gives_each_row_what_it_gets_alone(position_embedding_type: str, side: str, attention: str) -> None:
    """https://github.com/huggingface/transformers/issues/22707 and https://github.com/pytorch/text/pull/2096."""
    model = tiny_model(attention=attention, position_embedding_type=position_embedding_type)
    inputs = batch(side)
    alone = torch.cat([real_logits(model, row) for row in rows_without_padding(inputs)])
    assert_same(real_logits(model, inputs), alone)


@both_kernels
@both_positions
@both_sides
def test_more_padding_changes_nothing(side: str, position_embedding_type: str, attention: str) -> None:
    """https://github.com/huggingface/transformers/issues/22707."""
    model = tiny_model(attention=attention, position_embedding_type=position_embedding_type)
    assert_same(real_logits(model, batch(side, extra=5)), real_logits(model, batch(side)))


@both_kernels
@both_positions
def test_the_side_of_the_padding_changes_nothing(position_embedding_type: str, attention: str) -> None:
    model = tiny_model(attention=attention, position_embedding_type=position_embedding_type)
    assert_same(real_logits(model, batch("left")), real_logits(model, batch("right")))


def test_what_stands_at_padded_positions_changes_nothing() -> None:
    """A mask is taken as it is given, never guessed from the ids."""
    model = tiny_model()
    inputs = batch()
    noisy = inputs | {
        "input_ids": torch.where(inputs["attention_mask"] == 1, inputs["input_ids"], 9),
        "decoder_input_ids": torch.where(inputs["decoder_attention_mask"] == 1, inputs["decoder_input_ids"], 9),
    }
    assert_same(real_logits(model, noisy), real_logits(model, inputs), atol=0)


def test_without_a_mask_every_position_counts_even_a_pad_id() -> None:
    model = tiny_model()
    inputs = batch()
    ids = {name: inputs[name] for name in ("input_ids", "decoder_input_ids")}
    ones = {"attention_mask": torch.ones_like(ids["input_ids"])}
    ones["decoder_attention_mask"] = torch.ones_like(ids["decoder_input_ids"])
    assert_same(real_logits(model, ids), real_logits(model, ids | ones))


# Influence, by gradient: exactly zero, not just small


def influence(
    model: Seq2SeqTransformerForConditionalGeneration, inputs: dict[str, Tensor], row: int, position: int
) -> tuple[Tensor, Tensor]:
    """Largest gradient of one position's logits at each source and each target embedding: (B, S) and (B, T)."""
    source = model.get_encoder().embed_tokens(inputs["input_ids"]).detach().requires_grad_()
    target = model.get_decoder().embed_tokens(inputs["decoder_input_ids"]).detach().requires_grad_()
    logits = model(
        inputs_embeds=source,
        attention_mask=inputs["attention_mask"],
        decoder_inputs_embeds=target,
        decoder_attention_mask=inputs["decoder_attention_mask"],
    ).logits
    # Random weights, since in a mere sum the logits could cancel.
    weights = torch.randn(logits.shape[-1], generator=torch.Generator().manual_seed(3))
    gradients = torch.autograd.grad(logits[row, position] @ weights, (source, target))
    return gradients[0].abs().amax(-1), gradients[1].abs().amax(-1)


@both_sides
@both_norms
@both_kernels
def test_a_logit_depends_on_its_own_sources_tokens_and_no_later_target_token(
    attention: str, norm_position: str, side: str
) -> None:
    model = tiny_model(attention=attention, norm_position=norm_position)
    inputs = batch(side, extra=1)
    source_mask, target_mask = inputs["attention_mask"].bool(), inputs["decoder_attention_mask"].bool()
    for row, position in target_mask.nonzero().tolist():
        on_source, on_target = influence(model, inputs, row, position)
        seen_source, seen_target = torch.zeros_like(source_mask), torch.zeros_like(target_mask)
        seen_source[row] = source_mask[row]
        seen_target[row, : position + 1] = target_mask[row, : position + 1]
        assert torch.equal(on_source > 0, seen_source)
        assert torch.equal(on_target > 0, seen_target)


@both_kernels
@pytest.mark.parametrize("masked", [True, False])
def test_a_decoder_without_padding_is_causal_with_and_without_its_mask(attention: str, masked: bool) -> None:
    """Without a mask the kernels take another path: sdpa its `is_causal`."""
    model = tiny_model(attention=attention)
    source = torch.tensor(random_sentences((6, 6)))
    target = torch.tensor(random_sentences((5, 5), seed=1))
    mask = torch.ones_like(target) if masked else None
    with torch.no_grad():
        before = model(input_ids=source, decoder_input_ids=target, decoder_attention_mask=mask).logits
        target[:, 3] = 7
        after = model(input_ids=source, decoder_input_ids=target, decoder_attention_mask=mask).logits
    assert_same(after[:, :3], before[:, :3], atol=0)
    assert (after[:, 3:] - before[:, 3:]).abs().amin(dim=(0, 1)).max() > 1e-3


@both_kernels
def test_an_encoder_without_a_mask_looks_both_ways(attention: str) -> None:
    encoder = tiny_model(attention=attention).get_encoder()
    embeds = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    states = encoder(inputs_embeds=embeds).last_hidden_state
    for position in range(5):
        (gradient,) = torch.autograd.grad(states[0, position, 0], embeds, retain_graph=True)
        assert (gradient.abs().amax(-1) > 0).all()


# A row that is all padding


def outputs_and_gradients(
    model: Seq2SeqTransformerForConditionalGeneration, inputs: dict[str, Tensor], labels: Tensor
) -> tuple[Any, dict[str, Tensor]]:
    model.zero_grad()
    outputs = model(**inputs, labels=labels, return_logits=True)
    outputs.loss.backward()
    return outputs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@all_dtypes
@both_kernels
@pytest.mark.parametrize("training", [True, False])
def test_a_row_of_padding_alone_stays_finite_and_leaves_the_others_alone(
    training: bool, attention: str, dtype: torch.dtype
) -> None:
    """https://github.com/pytorch/pytorch/issues/24816 and https://github.com/huggingface/transformers/pull/17306."""
    model = tiny_model(attention=attention, dtype=dtype).train(training)
    inputs = batch()
    labels = inputs["decoder_input_ids"].masked_fill(inputs["decoder_attention_mask"] == 0, -100)
    blank = {name: torch.cat([value, torch.zeros_like(value[:1])]) for name, value in inputs.items()}
    blank_labels = torch.cat([labels, torch.full_like(labels[:1], -100)])

    expected, expected_gradients = outputs_and_gradients(model, inputs, labels)
    outputs, gradients = outputs_and_gradients(model, blank, blank_labels)

    assert outputs.logits.isfinite().all()
    assert outputs.encoder_last_hidden_state.isfinite().all()
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 2e-1}[dtype]
    assert_same(outputs.logits[:-1], expected.logits, atol=tolerance)
    assert_same(outputs.loss, expected.loss, atol=tolerance)
    for name, gradient in gradients.items():
        assert gradient.isfinite().all(), name
        assert_same(gradient, expected_gradients[name], atol=tolerance)


@all_dtypes
@both_kernels
def test_a_blank_source_with_a_target_stays_finite(attention: str, dtype: torch.dtype) -> None:
    """https://github.com/pytorch/pytorch/issues/24816."""
    model = tiny_model(attention=attention, dtype=dtype)
    inputs = batch()
    inputs["attention_mask"][1] = 0
    outputs, gradients = outputs_and_gradients(model, inputs, inputs["decoder_input_ids"])
    assert outputs.logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@both_kernels
def test_a_blank_source_stays_finite_where_float16_scores_are_far_below_zero(attention: str) -> None:
    """https://github.com/huggingface/transformers/pull/17306: score plus mask must not pass float16's lowest."""
    model = tiny_model(attention=attention, attention_bias=True, dtype=torch.float16)
    for name, parameter in model.named_parameters():
        if "q_proj.bias" in name or "k_proj.bias" in name:
            parameter.data.fill_(8 if "q_proj" in name else -8)
    inputs = batch()
    inputs["attention_mask"][1] = 0
    outputs, gradients = outputs_and_gradients(model, inputs, inputs["decoder_input_ids"])
    assert outputs.logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


# The loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("num_items", [None, 5, 40])
@pytest.mark.parametrize("return_logits", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_the_label_smoothed_cross_entropy_of_the_logits(
    training: bool, return_logits: bool, num_items: int | None, smoothing: float
) -> None:
    """Neither shifted a second time nor counting padding: https://github.com/huggingface/transformers/pull/46903."""
    model = tiny_model(lm_head_bias=True)
    inputs = batch()
    labels = torch.cat([inputs["decoder_input_ids"][:, 1:], torch.zeros(3, 1, dtype=torch.long)], dim=1)
    labels = labels.masked_fill(labels == 0, -100)
    with torch.no_grad():
        logits = model(**inputs).logits
        outputs = model.train(training)(
            **inputs,
            labels=labels,
            smoothing=smoothing,
            num_items_in_batch=num_items,
            return_logits=return_logits,
        )
    expected = label_smoothed_cross_entropy(logits.double().numpy(), labels.numpy(), smoothing, num_items)
    assert outputs.loss.item() == pytest.approx(expected, abs=1e-5)


@both_kernels
@all_dtypes
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("training", [True, False])
def test_without_labels_to_learn_the_loss_is_zero_with_finite_gradients(
    training: bool, smoothing: float, dtype: torch.dtype, attention: str
) -> None:
    """https://github.com/pytorch/pytorch/issues/24816: a mean over no labels would be NaN."""
    model = tiny_model(attention=attention, dtype=dtype).train(training)
    inputs = batch()
    loss = model(**inputs, labels=torch.full_like(inputs["decoder_input_ids"], -100), smoothing=smoothing).loss
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())
