"""Whether a new model fits into the memory of this machine."""

import math
import os

from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig


def check_weights_fit(config: Seq2SeqTransformerConfig) -> None:
    """Checks that the weights of a model's layers fit into the memory of this machine.

    Torch would fail with an error that names no setting, or the system would end the process.

    Raises:
        ValueError: If they do not.
    """

    def attention(heads: int) -> int:
        return 2 * config.d_model**2 + 2 * config.d_model * heads * (config.key_dim or config.d_model // heads)

    encoder = attention(config.encoder_attention_heads) + 2 * config.d_model * config.encoder_ffn_dim
    decoder = 2 * attention(config.decoder_attention_heads) + 2 * config.d_model * config.decoder_ffn_dim
    parameters = config.encoder_layers * encoder + config.decoder_layers * decoder
    if config.position_embedding_type == "learned":
        parameters += 2 * config.d_model * config.max_position_embeddings
    memory = _memory_of_machine()
    if 4 * parameters > memory:
        raise ValueError(
            f"The weights of the model must fit into this machine's memory ({memory / 2**30:,.0f} GiB), but take "
            f"{4 * parameters / 2**30:,.0f} GiB with `d_model` {config.d_model:,} instead. Lower it, or the numbers "
            "of layers, `encoder_ffn_dim`, `decoder_ffn_dim`, `key_dim` or `max_position_embeddings`."
        )


def _memory_of_machine() -> float:
    """Returns the bytes of this machine's memory, or infinity where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
