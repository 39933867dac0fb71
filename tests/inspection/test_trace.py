"""What a trace holds is what the model computed, and the model and its other users do not notice."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from reference import numpy_transformer
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.inspection import Trace, trace


Model = Seq2SeqTransformerForConditionalGeneration

SOURCES, TARGETS = ["a b c d e", "f g"], ["h i", "j k l m"]


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"norm_position": "pre"},
        {"key_dim": 3},
        {"attention_bias": True, "position_embedding_type": "learned"},
        {"encoder_layers": 1, "decoder_layers": 3, "decoder_attention_heads": 4, "norm_position": "pre"},
    ],
)
def test_weights_are_those_of_the_paper_s_equations(
    overrides: dict[str, Any], letter_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equation 1 in NumPy, from only the model's weights and the ids, with padding on both sides."""
    model = tiny_model(vocab_size=len(letter_tokenizer), **overrides)
    expected: list[tuple[Any, Any]] = []

    def recorded(q: Any, k: Any, v: Any, may_see: Any) -> Any:
        powers = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) * may_see
        weights = powers / powers.sum(axis=-1, keepdims=True)
        expected.append((weights, np.broadcast_to(may_see, weights.shape)))
        return weights @ v

    monkeypatch.setattr(numpy_transformer, "scaled_dot_product_attention", recorded)
    state = {name: weight.double().numpy() for name, weight in model.state_dict().items()}
    source = [[4, 5, 6, 7, 8, 2], [9, 10, 2, 0, 0, 0]]
    target = [[1, 11, 12, 2, 0], [1, 13, 14, 15, 16]]
    masks = [[1] * 6, [1] * 3 + [0] * 3], [[1] * 3 + [0] * 2, [1] * 5]
    causal_alone = [[1] * 5, [1] * 5]
    logits = numpy_transformer.transformer_logits(state, model.config, source, target, masks[0], causal_alone)
    num_encoder = model.config.encoder_layers
    in_order = {"encoder": expected[:num_encoder], "decoder": expected[num_encoder::2]}
    in_order["cross"] = expected[num_encoder + 1 :: 2]

    traces = trace(model, letter_tokenizer, SOURCES, TARGETS)
    for row, traced in enumerate(traces):
        np.testing.assert_allclose(traced.logits[: sum(masks[1][row])], logits[row][: sum(masks[1][row])], atol=1e-4)
        for stack, layers in in_order.items():
            real = sum(masks[0 if stack == "encoder" else 1][row])  # what padding sees means nothing
            assert len(getattr(traced, stack)) == len(layers)
            for attention, (weights, may_see) in zip(getattr(traced, stack), layers, strict=True):
                np.testing.assert_allclose(attention.weights[:, :real], weights[row][:, :real], atol=2e-5)
                np.testing.assert_array_equal(attention.allowed, may_see[row, 0])


def test_each_row_sums_to_1_and_masked_cells_are_exactly_0(
    model: Model, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    for traced in trace(model, letter_tokenizer, SOURCES, TARGETS):
        for attention in (*traced.encoder, *traced.decoder, *traced.cross):
            torch.testing.assert_close(attention.weights.sum(dim=-1), torch.ones(attention.weights.shape[:2]))
            assert (attention.weights[:, ~attention.allowed] == 0).all()
        assert not traced.decoder[0].allowed.all()


def test_queries_and_keys_are_those_of_each_head(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    states: dict[str, torch.Tensor] = {}
    cross: Any = model.model.decoder.layers[1].encoder_attn
    handle = cross.register_forward_hook(
        lambda module, args, kwargs, output: states.update(
            queries=args[0].clone(), keys=kwargs["key_value_states"].clone()
        ),
        with_kwargs=True,
    )
    attention = trace(model, letter_tokenizer, ["a b"], ["c d e"])[0].cross[1]
    handle.remove()
    for name, projection in (("queries", cross.q_proj), ("keys", cross.k_proj)):
        for head in range(2):
            rows = projection.weight[8 * head : 8 * (head + 1)]
            with torch.inference_mode():
                torch.testing.assert_close(getattr(attention, name)[head], states[name][0] @ rows.T)
    assert attention.scaling == pytest.approx(1 / np.sqrt(8))


def test_tokens_are_named_with_their_padding(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    first, second = trace(model, letter_tokenizer, SOURCES, TARGETS)
    assert first.source_tokens == ["a", "b", "c", "d", "e", "</s>"]
    assert second.source_tokens == ["f", "g", "</s>", "<pad>", "<pad>", "<pad>"]
    assert first.input_tokens == ["<s>", "h", "i", "</s>", "<pad>"]
    assert first.target_tokens == ["h", "i", "</s>", "<pad>", "<pad>"]
    assert first.cross[0].query_tokens == first.input_tokens
    assert first.cross[0].key_tokens == first.source_tokens


def test_without_a_target_it_is_what_the_translator_finds(
    model: Model, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    hypothesis = Translator(model, letter_tokenizer).hypotheses(["a b c"])[0][0]
    assert trace(model, letter_tokenizer, ["a b c"])[0].target_tokens == list(hypothesis.tokens)


def test_the_model_stays_as_it_is(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny_model(vocab_size=len(letter_tokenizer), dropout=0.5).train()
    first, second = (trace(model, letter_tokenizer, ["a b"], ["c"])[0] for _ in range(2))
    assert torch.equal(first.logits, second.logits)  # no dropout in either
    assert all(module.training for module in model.modules())
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks for module in model.modules())


def test_several_users_at_once_do_not_mix(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [" ".join(letters) for letters in ("abc", "defg", "h", "ijklmn", "op", "qrstu")]
    translator = Translator(model, letter_tokenizer)

    def watch(text: str) -> tuple[Trace, torch.Tensor | None]:
        attention = translator.hypotheses([text], attention=True, beam_size=2)[0][0].attention
        return trace(model, letter_tokenizer, [text], ["v w x"])[0], attention

    alone = list(map(watch, texts))
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(watch, texts * 3))
    for (expected, of_search), (found, of_search_found) in zip(alone * 3, together, strict=True):
        assert found.source_tokens == expected.source_tokens
        torch.testing.assert_close(found.cross[1].weights, expected.cross[1].weights)
        torch.testing.assert_close(of_search_found, of_search)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ([], None, "`text` must be given at least once"),
        (["a", " "], None, "`text` must be a text that is not blank, but is ' ' instead"),
        (["a"], [""], "`target` must be a text that is not blank, but is '' instead"),
        (["a\ud800"], None, "`text` must be valid Unicode"),
        (["a", "b"], ["c"], r"`target` must be given once for each text \(2\), or not at all, but is 1 times"),
    ],
)
def test_wrong_texts_are_named(
    sources: list[str],
    targets: list[str] | None,
    message: str,
    model: Model,
    letter_tokenizer: PreTrainedTokenizerFast,
) -> None:
    with pytest.raises(ValueError, match=message):
        trace(model, letter_tokenizer, sources, targets)
