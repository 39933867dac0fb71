"""Makes the two models that the benchmarks compare, ours and MarianMT, with the same sizes and new weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration


PEER, OURS = "MarianMT", "ours"
MAX_LENGTH = 1024  # positions in MarianMT's table


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a model. Encoder and decoder have the same number of layers and heads."""

    vocab_size: int
    d_model: int
    layers: int
    ffn_dim: int
    heads: int
    dropout: float = 0.1
    norm_position: Literal["post", "pre"] = "post"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that both models' configs have."""
        return {
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "encoder_layers": self.layers,
            "decoder_layers": self.layers,
            "encoder_ffn_dim": self.ffn_dim,
            "decoder_ffn_dim": self.ffn_dim,
            "encoder_attention_heads": self.heads,
            "decoder_attention_heads": self.heads,
            "dropout": self.dropout,
        }


def make_ours(sizes: ModelSizes, **options: Any) -> PreTrainedModel:
    """Returns our model. `options` are further fields of its config; the other fields have the paper's defaults."""
    config = Seq2SeqTransformerConfig(**(sizes.fields | {"norm_position": sizes.norm_position} | options))
    return Seq2SeqTransformerForConditionalGeneration(config)


def make_marian(sizes: ModelSizes) -> PreTrainedModel:
    """Returns MarianMT with our token ids, ReLU, and scaled and tied embeddings. Its projections keep their biases."""
    assert sizes.norm_position == "post", "MarianMT has no pre-norm"
    special = Seq2SeqTransformerConfig()
    assert special.decoder_start_token_id is not None
    config = MarianConfig(
        **sizes.fields,
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
