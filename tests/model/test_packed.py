"""`generate()` finds the same from packed weights as from the model's own, whatever it is asked for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference.tiny_models import pad, random_sentences, tiny_model
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor
from transformers.generation.streamers import BaseStreamer

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.model import packed_seq2seq_transformer
from hf_seq2seq.model.packed_seq2seq_transformer import PackedNetwork


END = 2

Search = Callable[..., torch.Tensor]


class Shift(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Adds to each score what depends on the tokens so far."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + input_ids.sum(dim=-1, keepdim=True) % 7 * torch.linspace(-1, 1, scores.shape[-1])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each step that is computed from packed weights."""
    rows: list[int] = []
    decode = PackedNetwork.decode

    def counted(self: Any, input_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        rows.append(input_ids.numel())
        return decode(self, input_ids, *arguments)

    monkeypatch.setattr(PackedNetwork, "decode", counted)
    return rows


def generated(model: Seq2SeqTransformerForConditionalGeneration, **options: Any) -> torch.Tensor:
    ids, mask = pad([[*sentence, END] for sentence in random_sentences([5, 2, 8, 4], seed=1)])
    torch.manual_seed(0)
    tokens: torch.Tensor = model.generate(**({"input_ids": ids, "attention_mask": mask, "max_length": 14} | options))
    return tokens


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 4},
    "all beams": {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0},
    "stopped early": {"num_beams": 3, "early_stopping": True},
    "samples": {"do_sample": True, "num_return_sequences": 3},
    "samples of beams": {"do_sample": True, "num_beams": 3},
    "penalties": {"num_beams": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 6},
    "a processor": {"num_beams": 2, "logits_processor": [Shift()]},
    "GNMT's penalty": {"num_beams": 3, "gnmt_penalty": True, "length_penalty": 1.0},
    "a prompt": {"decoder_input_ids": torch.tensor([[1, 7, 8]] * 4), "num_beams": 3},
    "prompts of their own": {"decoder_input_ids": torch.tensor([[1, 7], [1, 8], [1, 9], [1, 7]])},
    "padded prompts": {
        "decoder_input_ids": torch.tensor([[0, 1, 7], [1, 8, 9], [0, 0, 1], [1, 7, 7]]),
        "decoder_attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]]),
    },
    "padded prompts and beams": {
        "decoder_input_ids": torch.tensor([[0, 1, 7], [1, 8, 9], [0, 0, 1], [1, 7, 7]]),
        "decoder_attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]]),
        "num_beams": 3,
    },
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_generate_finds_the_same_from_packed_weights(
    norm_position: str, options: Any, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(3, norm_position=norm_position)
    found = generated(model, **options)
    assert steps
    monkeypatch.setattr(packed_seq2seq_transformer, "_can_be_packed", lambda *_: False)
    steps.clear()
    assert generated(model, **options).tolist() == found.tolist()
    assert not steps


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=str)
def test_logits_from_packed_weights_are_those_of_the_model(options: Any) -> None:
    def logits() -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []

        class Recorder(LogitsProcessor):  # type: ignore[misc, unused-ignore]
            def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                seen.append(scores.clone())
                return scores

        generated(model, logits_processor=[Recorder()], min_length=14, **options)
        return seen

    model = tiny_model(5, attention_bias=True, lm_head_bias=True)
    found = logits()
    model.register_forward_hook(lambda *_: None)  # so that it computes all steps itself
    for packed, own in zip(found, logits(), strict=True):
        torch.testing.assert_close(packed, own, atol=1e-4, rtol=1e-4)


def test_tokens_are_streamed_as_they_are_found(steps: list[int]) -> None:
    class Streamer(BaseStreamer):  # type: ignore[misc, unused-ignore]
        tokens: list[int] = []  # noqa: RUF012

        def put(self, value: torch.Tensor) -> None:
            self.tokens += value.flatten().tolist()

        def end(self) -> None:
            self.tokens.append(-1)

    found = generated(tiny_model(3), input_ids=torch.tensor([[5, 6, END]]), attention_mask=None, streamer=Streamer())
    assert Streamer.tokens == [*found[0].tolist(), -1]
    assert steps


def test_a_cache_of_the_caller_is_filled_by_the_model(steps: list[int]) -> None:
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    found = generated(tiny_model(3), cache=cache)
    assert cache.get_seq_length() == found.shape[1] - 1
    assert not steps


@pytest.mark.parametrize("options", [{"return_dict_in_generate": True}, {"cache_implementation": "static"}], ids=str)
def test_what_else_is_asked_for_is_computed_by_the_model(options: Any, steps: list[int]) -> None:
    generated(tiny_model(3), **options)
    assert not steps


def test_packed_weights_are_let_go_with_their_model() -> None:
    model = tiny_model(3)
    generated(model)
    assert model in packed_seq2seq_transformer._NETWORKS
    number = len(packed_seq2seq_transformer._NETWORKS)
    del model
    assert len(packed_seq2seq_transformer._NETWORKS) < number
