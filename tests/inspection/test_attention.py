"""Maps hold the weights of the head that was asked for; the soft alignment is the hypothesis' own."""

from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.inference import Hypothesis
from hf_seq2seq.inspection import (
    Trace,
    attention_maps,
    draw_attention_maps,
    draw_soft_alignment,
    soft_alignment,
    trace,
)


Model = Seq2SeqTransformerForConditionalGeneration


@pytest.fixture
def traced(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> Trace:
    return trace(model, letter_tokenizer, ["a b c"], ["d e"])[0]


def test_layers_and_heads_are_counted_from_1(traced: Trace) -> None:
    maps = attention_maps(traced, "decoder", layer=1, head=2)
    assert torch.equal(maps.weights, traced.decoder[0].weights[1:2])
    assert torch.equal(maps.allowed, torch.ones(3, 3).tril().bool())
    assert maps.title == "Decoder self-attention, layer 1 of 2, head 2 of 2"


def test_the_last_layer_and_all_its_heads_come_by_default(traced: Trace) -> None:
    maps = attention_maps(traced)
    assert torch.equal(maps.weights, traced.cross[1].weights)
    assert maps.title == "Cross-attention, layer 2 of 2, all 2 heads"


def test_the_mean_is_that_of_the_heads(traced: Trace) -> None:
    maps = attention_maps(traced, "encoder", head="mean")
    first, second = traced.encoder[1].weights
    torch.testing.assert_close(maps.weights, ((first + second) / 2)[None])
    torch.testing.assert_close(maps.weights.sum(dim=-1), torch.ones(1, 4))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"stack": "middle"}, "`stack` must be one of encoder, decoder, cross, but is 'middle' instead"),
        ({"layer": 3}, "`layer` must be at least 1 and at most 2 for the cross-attention of this model, but is 3"),
        ({"layer": 0}, "`layer` must be at least 1 and at most 2"),
        ({"head": 0, "stack": "encoder"}, "`head` must be at least 1 and at most 2 for the encoder self-attention"),
        ({"head": "first"}, "`head` must be a number from 1, or all, or mean, but is 'first' instead"),
    ],
)
def test_what_there_is_not_is_named(choice: dict[str, Any], message: str, traced: Trace) -> None:
    with pytest.raises(ValueError, match=message):
        attention_maps(traced, **choice)


@pytest.mark.parametrize("head", [1, "mean", "all"])
def test_each_map_is_drawn_with_its_tokens(head: Any, traced: Trace) -> None:
    maps = attention_maps(traced, "decoder", head=head)
    panels = [axes for axes in draw_attention_maps(maps).axes if axes.images]
    assert len(panels) == (2 if head == "all" else 1)
    for axes, weights in zip(panels, maps.weights, strict=True):
        cells: Any = axes.images[0].get_array()
        assert torch.equal(torch.tensor(cells.filled(0.0)), weights)
        assert torch.equal(torch.tensor(~cells.mask), maps.allowed)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["<s> → d", "d → e", "e → </s>"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["<s>", "d", "e"]


def test_the_soft_alignment_is_the_mean_of_the_last_layer_s_but_one(
    model: Model, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    hypothesis = Translator(model, letter_tokenizer).hypotheses(["a b c d"], attention=True)[0][0]
    alignment = soft_alignment(letter_tokenizer, hypothesis)
    traced = trace(model, letter_tokenizer, ["a b c d"])[0]
    torch.testing.assert_close(alignment.weights, traced.cross[-2].weights.mean(dim=0))
    assert alignment.source_tokens == ["a", "b", "c", "d", "</s>"]
    assert alignment.target_tokens == traced.target_tokens
    assert alignment.best == [max(range(5), key=row.__getitem__) for row in alignment.weights.tolist()]
    axes = draw_soft_alignment(alignment).axes[0]
    rings = [tuple(line.get_xydata()[0].tolist()) for line in axes.lines]  # type: ignore[union-attr,index]
    assert rings == [(source, target) for target, source in enumerate(alignment.best)]


def test_a_hypothesis_without_attention_is_refused(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="`hypothesis` must have an attention, but has none"):
        soft_alignment(letter_tokenizer, Hypothesis("a"))
