"""Positions, masks and the scores of one head, each against a computation of its own."""

import math

import numpy as np
import pytest
import torch
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.inspection import (
    attention_masks,
    draw_head_scores,
    draw_masks,
    draw_positions,
    head_scores,
    position_vectors,
    trace,
)


Model = Seq2SeqTransformerForConditionalGeneration


def test_sinusoids_are_the_paper_s_formula(model: Model) -> None:
    positions = position_vectors(model, 40)
    expected = np.empty((40, 16))
    for position in range(40):
        for i in range(8):
            expected[position, 2 * i] = math.sin(position / 10000 ** (2 * i / 16))
            expected[position, 2 * i + 1] = math.cos(position / 10000 ** (2 * i / 16))
    np.testing.assert_allclose(positions.vectors, expected, atol=1e-9)
    lengths = np.sqrt((expected**2).sum(axis=1))
    np.testing.assert_allclose(positions.similarity, expected @ expected.T / np.outer(lengths, lengths), atol=1e-9)
    assert positions.kind == "sinusoidal"
    even, odd = (np.asarray(axes.images[0].get_array()) for axes in draw_positions(positions).axes[::2][:2])
    np.testing.assert_allclose(even, expected[:, 0::2], atol=1e-9)
    np.testing.assert_allclose(odd, expected[:, 1::2], atol=1e-9)


def test_learned_positions_are_each_side_s_table() -> None:
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=12)
    for side, stack in (("source", model.model.encoder), ("target", model.model.decoder)):
        positions = position_vectors(model, 12, side)  # type: ignore[arg-type]
        assert torch.equal(positions.vectors.float(), stack.embed_positions.weight)
    with pytest.raises(ValueError, match=r"must be at most `max_position_embeddings` \(12\)"):
        position_vectors(model, 13)
    with pytest.raises(ValueError, match="`num_positions` must be at least 1, but is 0 instead"):
        position_vectors(model, 0)
    with pytest.raises(ValueError, match="`side` must be one of source, target, but is 'left' instead"):
        position_vectors(model, 3, "left")  # type: ignore[arg-type]


def test_masks_of_a_batch_are_these(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    """Written by hand: "a </s> <pad>" to "<s> c d e", and "b c </s>" to "<s> f </s> <pad>"."""
    long, short = attention_masks(trace(model, letter_tokenizer, ["a", "b c"], ["c d e", "f"]))
    assert long.encoder.int().tolist() == [[1, 1, 0]] * 3
    assert long.cross.int().tolist() == [[1, 1, 0]] * 4
    assert long.decoder.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert short.encoder.int().tolist() == [[1, 1, 1]] * 3
    assert short.cross.int().tolist() == [[1, 1, 1]] * 4
    assert short.decoder.int().tolist() == long.decoder.int().tolist()
    assert short.input_tokens == ["<s>", "f", "</s>", "<pad>"]
    figure = draw_masks([long, short])
    assert len(figure.axes) == 6
    drawn = figure.axes[4].images[0].get_array()  # the second pair's, of the decoder
    assert (~drawn.mask).astype(int).tolist() == short.decoder.int().tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("overrides", [{}, {"key_dim": 5, "norm_position": "pre"}])
def test_scores_lead_to_the_weights(overrides: dict[str, int], letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny_model(vocab_size=len(letter_tokenizer), **overrides)  # type: ignore[arg-type]
    traced = trace(model, letter_tokenizer, ["a b c"], ["d e f"])[0]
    scores = head_scores(traced, "decoder", layer=1, head=2)
    key_dim = overrides.get("key_dim", 8)
    attention = traced.decoder[0]
    for row in range(4):
        for column in range(4):
            product = math.fsum(
                a * b
                for a, b in zip(attention.queries[1, row].tolist(), attention.keys[1, column].tolist(), strict=True)
            )
            assert float(scores.products[row, column]) == pytest.approx(product, abs=1e-5)
            assert float(scores.scaled[row, column]) == pytest.approx(product / math.sqrt(key_dim), abs=1e-5)
    powers = np.exp(scores.scaled.double().numpy()) * np.tril(np.ones((4, 4)))
    np.testing.assert_allclose(scores.weights, powers / powers.sum(axis=1, keepdims=True), atol=1e-6)
    assert scores.key_dim == key_dim
    figure = draw_head_scores(scores)
    assert figure.axes[1].get_title() == f"scaled: Q K^T / sqrt({key_dim})"
    with pytest.raises(ValueError, match="`head` must be at least 1 and at most 2"):
        head_scores(traced, head=3)
