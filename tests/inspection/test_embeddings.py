"""Neighbours and projections of embeddings, against brute force in NumPy."""

import numpy as np
import pytest
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.inspection import draw_neighbours, draw_projection, nearest_neighbours, project_tokens


Model = Seq2SeqTransformerForConditionalGeneration


@pytest.mark.parametrize("side", ["source", "target"])
def test_neighbours_are_those_of_brute_force(side: str, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    # More embeddings than tokens, as where a vocabulary's size is rounded up.
    model = tiny_model(vocab_size=40, share_encoder_decoder_embeddings=False, decoder_vocab_size=40)
    weights = model.state_dict()[f"model.{'encoder' if side == 'source' else 'decoder'}.embed_tokens.weight"]
    table = weights.double().numpy()[:30]
    cosines = {}
    for number, vector in enumerate(table):
        if number != 7:
            cosines[number] = table[7] @ vector / np.sqrt((table[7] @ table[7]) * (vector @ vector))
    best = sorted(cosines, key=lambda number: -cosines[number])[:5]

    found = nearest_neighbours(model, letter_tokenizer, "d", 5, side)  # type: ignore[arg-type]
    assert found.token == "d"
    assert found.tokens == letter_tokenizer.convert_ids_to_tokens(best)
    np.testing.assert_allclose(found.cosines, [cosines[number] for number in best], atol=1e-7)
    axes = draw_neighbours([found, found]).axes
    assert [label.get_text() for label in axes[1].get_yticklabels()] == found.tokens
    assert [bar.get_width() for bar in axes[1].patches] == found.cosines  # type: ignore[attr-defined]


def test_the_projection_is_that_of_the_covariance_s_eigenvectors(
    model: Model, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    vectors = model.state_dict()["lm_head.weight"].double().numpy()[[4, 5, 6, 7, 8]]
    centred = vectors - vectors.mean(axis=0)
    values, columns = np.linalg.eigh(centred.T @ centred)
    for place in (-1, -2):
        column = columns[:, place]
        columns[:, place] *= np.sign(column[np.abs(column).argmax()])

    projection = project_tokens(model, letter_tokenizer, ["a", "b", "c", "d", "e", "a"])
    assert projection.tokens == ["a", "b", "c", "d", "e"]
    np.testing.assert_allclose(projection.points, centred @ columns[:, [-1, -2]], atol=1e-7)
    np.testing.assert_allclose(projection.explained, values[[-1, -2]] / values.sum(), atol=1e-9)
    axes = draw_projection(projection).axes[0]
    assert [text.get_text() for text in axes.texts] == projection.tokens
    np.testing.assert_allclose(np.asarray(axes.collections[0].get_offsets(), dtype=float), projection.points)


def test_what_cannot_be_looked_up_is_named(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="`token` must be one token of the vocabulary, but 'a b' is cut into 'a'"):
        nearest_neighbours(model, letter_tokenizer, "a b")
    with pytest.raises(ValueError, match="`number` must be at least 1 and at most 29, but is 0 instead"):
        nearest_neighbours(model, letter_tokenizer, "a", 0)
    with pytest.raises(ValueError, match="`tokens` must be at least 3 different tokens, but are 2 instead"):
        project_tokens(model, letter_tokenizer, ["a", "b", "a"])
    small = tiny_model(vocab_size=10)
    with pytest.raises(ValueError, match=r"must be one that the model has an embedding for \(10 tokens\), but 'z' is"):
        nearest_neighbours(small, letter_tokenizer, "z", 3)
