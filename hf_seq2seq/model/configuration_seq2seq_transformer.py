# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""Every hyperparameter of the Transformer of Vaswani et al. (2017), where the paper sets it, and what is allowed.

This file travels with published checkpoints, so it imports nothing of this package.
"""

import difflib
import math
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig


# Vaswani et al. (2017), Table 3: what each row changes of the base model, which is this config's defaults. The
# two rows that change the label smoothing are training settings (`label_smoothing_factor`), not models.
PAPER_ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {
        "d_model": 1024,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "dropout": 0.3,
    },
    "A-h1": {"encoder_attention_heads": 1, "decoder_attention_heads": 1},
    "A-h4": {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    "A-h16": {"encoder_attention_heads": 16, "decoder_attention_heads": 16},
    "A-h32": {"encoder_attention_heads": 32, "decoder_attention_heads": 32},
    "B-dk16": {"key_dim": 16},
    "B-dk32": {"key_dim": 32},
    "C-N2": {"encoder_layers": 2, "decoder_layers": 2},
    "C-N4": {"encoder_layers": 4, "decoder_layers": 4},
    "C-N8": {"encoder_layers": 8, "decoder_layers": 8},
    "C-d256": {"d_model": 256},
    "C-d1024": {"d_model": 1024},
    "C-ff1024": {"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024},
    "C-ff4096": {"encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096},
    "D-p0": {"dropout": 0.0},
    "D-p0.2": {"dropout": 0.2},
    "E-learned": {"position_embedding_type": "learned"},
}


@strict
class Seq2SeqTransformerConfig(PreTrainedConfig):
    r"""Hyperparameters of the encoder-decoder Transformer; the defaults are the paper's base model.

    Field names follow BART and Marian where those have the field, so that PEFT, CTranslate2 and optimum know them.

    Args:
        vocab_size: Number of source tokens (of both sides where embeddings are shared). The paper's joint byte-pair
            vocabulary for English-German has "about 37,000" (section 5.1).
        decoder_vocab_size: Number of target tokens. `None` means `vocab_size`; it may differ only where
            `share_encoder_decoder_embeddings` is false.
        d_model: Width of embeddings and of every sub-layer's output (section 3.1).
        encoder_layers: Number of encoder layers, N in the paper (section 3.1).
        decoder_layers: Number of decoder layers (section 3.1).
        encoder_attention_heads: Number of heads h in the encoder (section 3.2.2); divides `d_model`.
        decoder_attention_heads: Number of heads h in the decoder (section 3.2.2); divides `d_model`.
        encoder_ffn_dim: Inner width d_ff of the encoder's feed-forward networks (section 3.3).
        decoder_ffn_dim: Inner width d_ff of the decoder's feed-forward networks (section 3.3).
        key_dim: Width d_k of queries and keys in each head; `None` means `d_model` divided by the heads of that stack.
            Values always have `d_model` divided by the heads (Table 3, row B changes only d_k).
        norm_position: "post" normalises after each residual sum (the paper, section 3.1); "pre" normalises each
            sub-layer's input and the output of either stack, which trains deep stacks more easily.
        activation_function: Name of the feed-forward activation in `transformers.activations.ACT2FN`; the paper has
            "relu" (section 3.3, equation 2).
        attention_bias: Whether the four attention projections have biases; the paper's formulas have none (3.2.2).
        lm_head_bias: Whether the output projection has a bias (the final logits bias of Marian checkpoints).
        layer_norm_eps: What is added to the variance in layer normalisation; the paper names none. 1e-5 is PyTorch's,
            and Marian C++ has 1e-6.
        position_embedding_type: "sinusoidal" (section 3.5) or "learned" (Table 3, row E, and imported tables).
        max_position_embeddings: Number of rows of a learned position table, hence the longest sequence. Sinusoids
            have no limit and do not read it.
        dropout: P_drop, on each sub-layer's output and on the sums of embeddings and positions (section 5.4).
        attention_dropout: Dropout on attention weights; the paper names none.
        activation_dropout: Dropout after the feed-forward activation; the paper names none.
        scale_embedding: Whether embeddings are multiplied by sqrt(d_model) (section 3.4).
        share_encoder_decoder_embeddings: Whether source and target tokens share one table (section 3.4).
        tie_word_embeddings: Whether the output projection is the target tokens' table (section 3.4).
        init_std: Standard deviation of the normal distribution that projections are first drawn from (0.02 in BART and
            Marian). `None` means sqrt(2 / (5 d_model)), SmallInit (Nguyen and Salazar 2019, arXiv 1910.05895). The
            paper names none. Embeddings have d_model^-0.5. Loaded weights are not touched.
        use_cache: Whether decoding keeps the keys and values of earlier steps.
        pad_token_id: Id that fills short rows up.
        bos_token_id: Id of the start token.
        eos_token_id: Id of the end token.
        decoder_start_token_id: Id the decoder starts from: a start token of its own, not the padding.

    Raises:
        huggingface_hub.errors.StrictDataclassError: If a value has the wrong type, or the values contradict each
            other.
    """

    model_type = "seq2seq_transformer"
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }
    base_model_tp_plan: ClassVar[dict[str, str]] = {
        f"{stack}.{module}": style
        for stack, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn")))
        for module, style in (
            ("embed_tokens", "embedding_rowwise"),  # like a tied output projection, by the vocabulary
            *((f"layers.*.{a}.{p}_proj", "colwise") for a in attentions for p in "qkv"),
            *((f"layers.*.{a}.out_proj", "rowwise") for a in attentions),
            ("layers.*.fc1", "colwise"),
            ("layers.*.fc2", "rowwise"),
        )
    }
    base_model_fsdp_plan: ClassVar[dict[Any, str]] = {
        "encoder.layers.*": "free_full_weight",
        "decoder.layers.*": "free_full_weight",
    }

    vocab_size: int = 37000
    decoder_vocab_size: int | None = None
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    key_dim: int | None = None
    norm_position: Literal["post", "pre"] = "post"
    activation_function: str = "relu"
    attention_bias: bool = False
    lm_head_bias: bool = False
    layer_norm_eps: float | int = 1e-5
    position_embedding_type: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_position_embeddings: int = 1024
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    init_std: float | int | None = None
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        # Filled before the base class runs: `get_text_config(decoder=True)` copies `decoder_vocab_size` onto
        # `vocab_size`, and a None there would break generation.
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        super().__post_init__(**kwargs)

    @classmethod
    def from_paper(cls, name: str, **overrides: Any) -> "Seq2SeqTransformerConfig":
        """Returns the config of a model in the paper.

        Args:
            name: "base", "big", or a row of Table 3 ("A-h1", "B-dk16", "C-N2", "E-learned", ...).
            **overrides: Fields to change, such as `vocab_size`.

        Raises:
            ValueError: If the paper has no such model, or a field is unknown.
        """
        if name not in PAPER_ROWS:
            raise ValueError(f"`name` must be one of {', '.join(PAPER_ROWS)}, but is {name!r} instead.")
        fields = cls.__dataclass_fields__
        for field in overrides:
            if field not in fields:
                near = difflib.get_close_matches(field, fields, n=3) or ["see the fields of " + cls.__name__]
                raise ValueError(f"`{field}` is not a field of {cls.__name__}. Nearest: {', '.join(near)}.")
        return cls(**{**PAPER_ROWS[name], **overrides})

    def validate_sizes(self) -> None:
        """Checks that sizes are positive, that heads divide the width, and that sinusoids come in pairs."""
        sizes = ["vocab_size", "decoder_vocab_size", "d_model", "max_position_embeddings"]
        sizes += ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"]
        sizes += ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"]
        sizes += ["key_dim"] if self.key_dim is not None else []
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)} instead.")
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            if self.d_model % getattr(self, name) != 0:
                raise ValueError(
                    f"`d_model` must be a multiple of `{name}` ({getattr(self, name)}), but is {self.d_model} instead."
                )
        if self.position_embedding_type == "sinusoidal" and self.d_model % 2 != 0:
            raise ValueError(
                f"`d_model` must be even for sinusoidal positions, but is {self.d_model} instead. "
                'Take `position_embedding_type="learned"` for an odd width.'
            )

    def validate_kind(self) -> None:
        """Checks that nobody takes the model for one without an encoder: `generate()` would."""
        if not self.is_encoder_decoder:
            raise ValueError("`is_encoder_decoder` must be True, but is False instead. Leave it out.")

    def validate_dropouts(self) -> None:
        """Checks that dropout rates are probabilities below 1."""
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1, but is {getattr(self, name)} instead.")

    def validate_init_std(self) -> None:
        """Checks that first weights are drawn from a distribution that there is, and are not all alike."""
        if self.init_std is not None and not 0 < self.init_std < math.inf:
            raise ValueError(f"`init_std` must be above 0 and finite, or None, but is {self.init_std} instead.")

    def validate_layer_norm_eps(self) -> None:
        """Checks that layer normalisation never divides by 0."""
        if not 0 < self.layer_norm_eps < math.inf:
            raise ValueError(f"`layer_norm_eps` must be above 0 and finite, but is {self.layer_norm_eps} instead.")

    def validate_vocabularies(self) -> None:
        """Checks that shared embeddings have one vocabulary, and that each special token is where it is used."""
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size != self.vocab_size:
            raise ValueError(
                f"`decoder_vocab_size` must equal `vocab_size` ({self.vocab_size}) where embeddings are shared, but "
                f"is {self.decoder_vocab_size} instead. Set `share_encoder_decoder_embeddings=False` to have two."
            )
        vocab_size = self.decoder_vocab_size or self.vocab_size
        eos_ids = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        named_ids = [("pad_token_id", self.pad_token_id), ("bos_token_id", self.bos_token_id)]
        named_ids += [("decoder_start_token_id", self.decoder_start_token_id)]
        named_ids += [("eos_token_id", token_id) for token_id in eos_ids]
        rules = [("target", vocab_size, *named_id) for named_id in named_ids]
        rules += [("source", self.vocab_size, "pad_token_id", self.pad_token_id)]  # sources are padded too
        for side, size, name, token_id in rules:
            if token_id is not None and not 0 <= token_id < size:
                raise ValueError(
                    f"`{name}` must be at least 0 and below the {side} vocabulary's size ({size}), but is {token_id} "
                    "instead."
                )

    def validate_activation(self) -> None:
        """Checks that transformers knows the activation function."""
        from transformers.activations import ACT2FN

        if self.activation_function not in ACT2FN:
            raise ValueError(
                f"`activation_function` must be a name in transformers' ACT2FN ({', '.join(sorted(ACT2FN))}), but is "
                f"{self.activation_function!r} instead."
            )


__all__ = ["Seq2SeqTransformerConfig"]
