"""The two models that the benchmarks compare: ours and MarianMT, of the same sizes, with new weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration


PEER, OURS = "MarianMT", "ours"
MAX_LENGTH = 1024  # rows of MarianMT's table of positions


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of either model; both stacks have the same number of layers and heads."""

    vocab_size: int
    d_model: int
    layers: int
    ffn_dim: int
    heads: int
    dropout: float = 0.1
    norm_position: Literal["post", "pre"] = "post"


def make_ours(sizes: ModelSizes, **options: Any) -> PreTrainedModel:
    """Returns our model, with the paper's defaults for all that `sizes` and `options`, fields of the config, leave."""
    config = Seq2SeqTransformerConfig(
        vocab_size=sizes.vocab_size,
        d_model=sizes.d_model,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        encoder_ffn_dim=sizes.ffn_dim,
        decoder_ffn_dim=sizes.ffn_dim,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        dropout=sizes.dropout,
        **({"norm_position": sizes.norm_position} | options),
    )
    return Seq2SeqTransformerForConditionalGeneration(config)


def make_marian(sizes: ModelSizes) -> PreTrainedModel:
    """Returns MarianMT with our token ids, ReLU, scaled and tied embeddings; its projections keep their biases."""
    assert sizes.norm_position == "post", "MarianMT has no other"
    special = Seq2SeqTransformerConfig()
    assert special.decoder_start_token_id is not None
    config = MarianConfig(
        vocab_size=sizes.vocab_size,
        d_model=sizes.d_model,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        encoder_ffn_dim=sizes.ffn_dim,
        decoder_ffn_dim=sizes.ffn_dim,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        dropout=sizes.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=special.pad_token_id,
        bos_token_id=special.bos_token_id,
        eos_token_id=special.eos_token_id,
        forced_eos_token_id=special.eos_token_id,
        decoder_start_token_id=special.decoder_start_token_id,
    )
    return MarianMTModel(config)


MODEL_MAKERS: dict[str, Callable[[ModelSizes], PreTrainedModel]] = {PEER: make_marian, OURS: make_ours}
