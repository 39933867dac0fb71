"""Models small enough for a test of a few milliseconds, with weights that leave nothing untested."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration


def tiny_config(**overrides: Any) -> Seq2SeqTransformerConfig:
    """A config of every kind of part, without dropout; keywords replace its fields."""
    fields: dict[str, Any] = {
        "vocab_size": 50,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 64,
        "dropout": 0.0,
    }
    return Seq2SeqTransformerConfig(**(fields | overrides))


def tiny_model(
    seed: int = 0, *, attention: str = "sdpa", dtype: torch.dtype = torch.float32, **overrides: Any
) -> Seq2SeqTransformerForConditionalGeneration:
    """A model in evaluation mode whose every parameter is random.

    Fresh norms (1 and 0) and biases (0) would hide that one of them is left out or applied in the wrong place.
    """
    config = tiny_config(**overrides)
    config._attn_implementation = attention
    model = Seq2SeqTransformerForConditionalGeneration(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.3
            is_gain = "norm" in name and name.endswith("weight")
            parameter.copy_(1 + noise if is_gain else noise)
    nn.Module.to(model.eval(), dtype)
    return model


def random_sentences(lengths: Sequence[int], *, vocab_size: int = 50, seed: int = 0) -> list[list[int]]:
    """Sentences of ordinary tokens (the special ones are 0 to 3), one for each length."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def pad(
    sentences: Sequence[Sequence[int]], *, side: str = "right", extra: int = 0, value: int = 0
) -> tuple[Tensor, Tensor]:
    """A batch of ids, padded on one side with `extra` more columns than needed, and its mask: 1 at tokens."""
    width = max(len(sentence) for sentence in sentences) + extra
    ids = torch.full((len(sentences), width), value)
    mask = torch.zeros_like(ids)
    for row, sentence in enumerate(sentences):
        columns = slice(0, len(sentence)) if side == "right" else slice(width - len(sentence), width)
        ids[row, columns] = torch.tensor(sentence, dtype=ids.dtype)
        mask[row, columns] = 1
    return ids, mask
