# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""The encoder-decoder Transformer of Vaswani et al. (2017), "Attention Is All You Need", read bottom-up.

Positions, attention, layers, encoder, decoder, the model, the model with an output projection. Beside it lie checks of
inputs, the loss, the search for outputs, the vocabulary's tables, dropout and publishing. All these files travel with
published checkpoints, so that of this package they import only each other.

Shapes: B batch, S source length, T target length, L either length, D d_model, H heads, K width of a head's keys,
V vocabulary. A 2-D mask of shape (B, L) holds 1 for a token and 0 for padding; `None` means that all are tokens.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import TransformersKwargs, can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .dropout_seq2seq_transformer import dropout
from .generation_seq2seq_transformer import (
    Seq2SeqTransformerGenerationConfig,
    Seq2SeqTransformerGenerationMixin,
    generation_defaults,
)
from .inputs_seq2seq_transformer import check_ids_or_embeddings, check_keywords, with_prefix_of_adapter
from .loss_seq2seq_transformer import check_labels, summed_loss
from .outputs_seq2seq_transformer import Seq2SeqTransformerOutput
from .publishing_seq2seq_transformer import Seq2SeqTransformerPublishing
from .vocabulary_seq2seq_transformer import Seq2SeqTransformerVocabulary


def positions_from_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Counts tokens from 0 in each row of a (B, L) mask; padding gets the position of the token before it, or 0."""
    return (attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)


class Seq2SeqTransformerSinusoidalPositions(nn.Module):
    """Sinusoidal positions: Vaswani et al. (2017), section 3.5.

    PE(pos, 2i) = sin(pos / 10000^(2i / D)) and PE(pos, 2i + 1) = cos(pos / 10000^(2i / D)), computed from position
    ids: no table to lose or to outgrow. Angles are float64 where the device has it, since float32 angles are off by
    3e-5 at position 512.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, position_ids: torch.Tensor, num_positions: int | None = None) -> torch.Tensor:
        """Returns the positions' vectors.

        Args:
            position_ids: Positions from 0, shape (B, L) or (1, L).
            num_positions: A bound on the ids, where one is known: if they are more, each sine is computed once, not in
                each row.

        Returns:
            Vectors in float64 (float32 where the device lacks it), shape of `position_ids` plus (D,).
        """
        if num_positions is not None and num_positions < position_ids.numel():
            table = self(torch.arange(num_positions, device=position_ids.device))
            return nn.functional.embedding(position_ids, table)
        dtype = torch.float32 if position_ids.device.type == "mps" else torch.float64
        exponents = torch.arange(0, self.d_model, 2, device=position_ids.device, dtype=dtype) / self.d_model
        angles = position_ids.to(dtype)[..., None] / 10000**exponents  # (B, L) -> (B, L, D / 2)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # -> (B, L, D)


class Seq2SeqTransformerLearnedPositions(nn.Embedding):
    """One learned vector a position: Vaswani et al. (2017), Table 3, row E."""

    def forward(self, position_ids: torch.Tensor, num_positions: int | None = None) -> torch.Tensor:
        """Returns the positions' vectors, (B, L) -> (B, L, D); raises ValueError where the table ends before them."""
        # Ids are looked at where no bound on them is known to fit, since a GPU would have to be waited for.
        is_known_to_fit = num_positions is not None and num_positions <= self.num_embeddings
        if not (is_known_to_fit or torch.compiler.is_compiling()) and position_ids.max() >= self.num_embeddings:
            raise ValueError(
                f"The sequence length must be at most `max_position_embeddings` ({self.num_embeddings}) with learned "
                f"positions, but is {int(position_ids.max()) + 1} instead. Shorten the text, or use sinusoidal "
                "positions."
            )
        return super().forward(position_ids)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(d_k)) V: Vaswani et al. (2017), section 3.2.1, equation 1.

    Args:
        module: The attention module, read for its training mode.
        query: Shape (B, H, T, K).
        key: Shape (B, H, S, K).
        value: Shape (B, H, S, D / H).
        attention_mask: True where attention is allowed, or added to the scores: 0 there and the type's lowest number
            elsewhere.
        scaling: 1 / sqrt(d_k).
        dropout: Dropout rate on the weights.
        **kwargs: Unused; other implementations take more.

    Returns:
        The output, shape (B, T, H, D / H), and the attention weights, shape (B, H, T, S).
    """
    # At least float32, since a float16 score plus the mask's lowest float16 number would be minus infinity, and a row
    # of those NaN.
    scores = ((query * scaling) @ key.transpose(2, 3)).to(torch.promote_types(query.dtype, torch.float32))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1).to(query.dtype)
    dropped = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (dropped @ value).transpose(1, 2).contiguous(), weights


class Seq2SeqTransformerAttention(nn.Module):
    """Multi-head attention: Vaswani et al. (2017), section 3.2.2.

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).
    """

    def __init__(
        self, config: Seq2SeqTransformerConfig, num_heads: int, layer_idx: int = 0, is_causal: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal  # read by sdpa and flash attention
        self.value_dim = config.d_model // num_heads
        self.key_dim = config.key_dim or self.value_dim
        self.scaling = self.key_dim**-0.5
        self.dropout = config.attention_dropout
        self.q_proj = nn.Linear(config.d_model, num_heads * self.key_dim, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.d_model, num_heads * self.key_dim, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.d_model, config.d_model, bias=config.attention_bias)
        self.out_proj = nn.Linear(config.d_model, config.d_model, bias=config.attention_bias)

    def _keys_and_values(
        self, states: torch.Tensor, cache: EncoderDecoderCache | None, is_cross_attention: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Projects `states` and joins them with the cache; the encoder's are projected only at the first step."""
        layer_cache: Cache | None = None
        if cache is not None:
            layer_cache = cache.cross_attention_cache if is_cross_attention else cache.self_attention_cache
            if is_cross_attention and cache.is_updated.get(self.layer_idx):
                layer: Any = layer_cache.layers[self.layer_idx]
                return layer.keys, layer.values
        # (B, L, D) -> (B, H, L, K)
        keys = self.k_proj(states).unflatten(-1, (-1, self.key_dim)).transpose(1, 2)
        values = self.v_proj(states).unflatten(-1, (-1, self.value_dim)).transpose(1, 2)
        if cache is not None and layer_cache is not None:
            keys, values = layer_cache.update(keys, values, self.layer_idx)
            if is_cross_attention:
                cache.is_updated[self.layer_idx] = True
        return keys, values

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attends from `hidden_states` to themselves, or to `key_value_states` (cross-attention).

        In a beam search k rows, its beams, share one source: `key_value_states` then has B / k rows, and row i serves
        the rows i k to i k + k - 1 of `hidden_states`. Their queries are one row of k T, so that it is read once.

        Args:
            hidden_states: Shape (B, T, D).
            key_value_states: The encoder's output, shape (B / k, S, D), for cross-attention.
            attention_mask: What the attention implementation takes: a boolean or additive mask that broadcasts to
                (B / k, 1, k T, S), or `None`.
            cache: Keys and values of earlier steps; this step's are added.
            **kwargs: Handed to the attention implementation.

        Returns:
            The output, shape (B, T, D), and under eager attention the weights, shape (B, H, T, S), else `None`.
        """
        is_cross_attention = key_value_states is not None
        states = hidden_states if key_value_states is None else key_value_states
        # (B, T, D) -> (B, T, H K) -> (B / k, k T, H, K) -> (B / k, H, k T, K)
        queries = self.q_proj(hidden_states.reshape(states.shape[0], -1, hidden_states.shape[-1]))
        queries = queries.unflatten(-1, (-1, self.key_dim)).transpose(1, 2)
        keys, values = self._keys_and_values(states, cache, is_cross_attention)
        attention: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        output, weights = attention(
            self,
            queries,
            keys,
            values,
            attention_mask,
            dropout=self.dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        if weights is not None and states.shape[0] != hidden_states.shape[0]:  # (B / k, H, k T, S) -> (B, H, T, S)
            weights = weights.unflatten(2, (-1, hidden_states.shape[1])).transpose(1, 2).flatten(0, 1)
        return self.out_proj(output.flatten(-2)).reshape(
            hidden_states.shape
        ), weights  # -> (B / k, k T, D) -> (B, T, D)


class _Seq2SeqTransformerLayer(GradientCheckpointingLayer):
    """What encoder and decoder layers share: residual sums with normalisation, and the feed-forward network."""

    def __init__(self, config: Seq2SeqTransformerConfig, ffn_dim: int) -> None:
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.dropout = config.dropout
        self.activation_dropout = config.activation_dropout
        self.activation_fn = ACT2FN[config.activation_function]
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, config.layer_norm_eps)

    def _residual(
        self, sublayer: Callable[[torch.Tensor], torch.Tensor], norm: nn.LayerNorm, hidden_states: torch.Tensor
    ) -> torch.Tensor:
        """LayerNorm(x + Dropout(Sublayer(x))), section 3.1, or with pre-norm x + Dropout(Sublayer(LayerNorm(x)))."""
        output = sublayer(norm(hidden_states) if self.pre_norm else hidden_states)
        output = hidden_states + dropout(output, p=self.dropout, training=self.training)
        return output if self.pre_norm else norm(output)

    def _feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2: section 3.3, equation 2, with the config's activation."""
        inner = self.activation_fn(self.fc1(hidden_states))
        output: torch.Tensor = self.fc2(dropout(inner, p=self.activation_dropout, training=self.training))
        return output


class Seq2SeqTransformerEncoderLayer(_Seq2SeqTransformerLayer):
    """Self-attention and a feed-forward network: Vaswani et al. (2017), section 3.1, "Encoder"."""

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config, config.encoder_ffn_dim)
        self.self_attn = Seq2SeqTransformerAttention(config, config.encoder_attention_heads)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Maps (B, S, D) to (B, S, D)."""
        hidden_states = self._residual(
            lambda x: self.self_attn(x, attention_mask=attention_mask, **kwargs)[0],
            self.self_attn_layer_norm,
            hidden_states,
        )
        return self._residual(self._feed_forward, self.final_layer_norm, hidden_states)


class Seq2SeqTransformerDecoderLayer(_Seq2SeqTransformerLayer):
    """Masked self-attention, cross-attention, feed-forward: Vaswani et al. (2017), section 3.1, "Decoder"."""

    def __init__(self, config: Seq2SeqTransformerConfig, layer_idx: int) -> None:
        super().__init__(config, config.decoder_ffn_dim)
        num_heads = config.decoder_attention_heads
        self.self_attn = Seq2SeqTransformerAttention(config, num_heads, layer_idx, is_causal=True)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, config.layer_norm_eps)
        self.encoder_attn = Seq2SeqTransformerAttention(config, num_heads, layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Maps (B, T, D) to (B, T, D), reading the encoder's (B, S, D)."""
        hidden_states = self._residual(
            lambda x: self.self_attn(x, attention_mask=attention_mask, cache=cache, **kwargs)[0],
            self.self_attn_layer_norm,
            hidden_states,
        )
        hidden_states = self._residual(
            lambda x: self.encoder_attn(
                x, key_value_states=encoder_hidden_states, attention_mask=encoder_attention_mask, cache=cache, **kwargs
            )[0],
            self.encoder_attn_layer_norm,
            hidden_states,
        )
        return self._residual(self._feed_forward, self.final_layer_norm, hidden_states)


class Seq2SeqTransformerPreTrainedModel(Seq2SeqTransformerPublishing):
    """What all classes here share: weight initialisation, and what transformers may do with them."""

    config: Seq2SeqTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Seq2SeqTransformerEncoderLayer", "Seq2SeqTransformerDecoderLayer"]  # noqa: RUF012
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        if config.share_encoder_decoder_embeddings:
            config.decoder_vocab_size = config.vocab_size  # which may have been set since the config was made
        value_dims = {
            config.d_model // config.encoder_attention_heads,
            config.d_model // config.decoder_attention_heads,
        }
        if config.key_dim is not None and value_dims != {config.key_dim}:
            self._supports_flash_attn = False  # its kernels need keys and values of one width
        super().__init__(config)

    def _init_weights(self, module: nn.Module) -> None:
        """Draws projections from N(0, init_std^2), by default SmallInit (Nguyen and Salazar 2019).

        Embeddings are drawn from N(0, 1 / D), so that times sqrt(D) they have variance 1.
        """
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=self.config.init_std or math.sqrt(2 / (5 * self.config.d_model)))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)


class _Seq2SeqTransformerStack(Seq2SeqTransformerPreTrainedModel):
    """What encoder and decoder share: embedded tokens with positions, and layers."""

    embed_tokens: nn.Embedding

    def __init__(self, config: Seq2SeqTransformerConfig, vocab_size: int, layers: list[nn.Module]) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model)
        self.embed_positions: nn.Module
        if config.position_embedding_type == "learned":
            self.embed_positions = Seq2SeqTransformerLearnedPositions(config.max_position_embeddings, config.d_model)
        else:
            self.embed_positions = Seq2SeqTransformerSinusoidalPositions(config.d_model)
        self.layers = nn.ModuleList(layers)
        self.layer_norm = (
            nn.LayerNorm(config.d_model, config.layer_norm_eps) if config.norm_position == "pre" else None
        )
        self.gradient_checkpointing = False
        self.post_init()

    def init_parallel_plans(self) -> None:
        """Leaves a stack without plans: the config's name both stacks, and are the whole model's."""
        self._tp_plan, self._ep_plan, self._pp_plan, self._fsdp_plan = {}, {}, {}, {}

    def _embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Looks tokens up, (B, L) -> (B, L, D), and multiplies by sqrt(D): section 3.4."""
        check_ids_or_embeddings(type(self).__name__, input_ids, inputs_embeds)
        if input_ids is not None:
            try:
                inputs_embeds = self.embed_tokens(input_ids)
            except IndexError as error:
                raise ValueError(
                    f"Token ids of the {type(self).__name__} must be at least 0 and below the vocabulary's size "
                    f"({self.embed_tokens.num_embeddings}), but range from {input_ids.min()} to {input_ids.max()} "
                    "instead. Use the tokenizer that the model was trained with, or `resize_token_embeddings`."
                ) from error
        assert inputs_embeds is not None
        return inputs_embeds * (math.sqrt(self.config.d_model) if self.config.scale_embedding else 1.0)

    def _add_positions(
        self,
        embeddings: torch.Tensor,
        position_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        past_length: int | torch.Tensor = 0,
    ) -> torch.Tensor:
        """Adds positions to (B, L, D) and applies dropout to the sums: sections 3.5 and 5.4.

        Where no ids are given, tokens are counted by a 2-D mask, or from the number that a cache holds already.
        """
        length, num_positions = embeddings.shape[1], None
        if position_ids is None and attention_mask is not None and attention_mask.ndim == 2:
            position_ids, num_positions = positions_from_mask(attention_mask)[:, -length:], attention_mask.shape[1]
        elif position_ids is None:
            position_ids = (torch.arange(length, device=embeddings.device) + past_length)[None]
            num_positions = None if isinstance(past_length, torch.Tensor) else past_length + length
        positions = self.embed_positions(position_ids, num_positions)
        sums = embeddings + positions.to(embeddings.dtype)
        return dropout(sums, p=self.config.dropout, training=self.training)


class Seq2SeqTransformerEncoder(_Seq2SeqTransformerStack):
    """A stack of N encoder layers over embedded source tokens: Vaswani et al. (2017), section 3.1."""

    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": Seq2SeqTransformerEncoderLayer,
        "attentions": Seq2SeqTransformerAttention,
    }

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        layers: list[nn.Module] = [Seq2SeqTransformerEncoderLayer(config) for _ in range(config.encoder_layers)]
        super().__init__(config, config.vocab_size, layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encodes the source.

        Args:
            input_ids: Source token ids, shape (B, S).
            attention_mask: 1 for tokens and 0 for padding, shape (B, S), or a ready 4-D mask.
            inputs_embeds: Embeddings in place of ids, not yet multiplied by sqrt(D), shape (B, S, D).
            position_ids: Positions, shape (B, S); by default tokens are counted from 0 by the mask.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, ...

        Returns:
            The states of the last layer, shape (B, S, D).

        Raises:
            ValueError: If not exactly one of ids and embeddings is given, an id is outside the vocabulary, or the
                source is longer than a learned position table.
        """
        embeddings = self._embed(input_ids, inputs_embeds)
        hidden_states = self._add_positions(embeddings, position_ids, attention_mask)
        mask = create_bidirectional_mask(config=self.config, inputs_embeds=embeddings, attention_mask=attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=mask, **kwargs)
        if self.layer_norm is not None:
            hidden_states = self.layer_norm(hidden_states)
        return BaseModelOutput(last_hidden_state=hidden_states)


class Seq2SeqTransformerDecoder(_Seq2SeqTransformerStack):
    """A stack of N decoder layers over embedded target tokens: Vaswani et al. (2017), section 3.1."""

    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": Seq2SeqTransformerDecoderLayer,
        "attentions": OutputRecorder(Seq2SeqTransformerAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(Seq2SeqTransformerAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        layers: list[nn.Module] = [Seq2SeqTransformerDecoderLayer(config, i) for i in range(config.decoder_layers)]
        super().__init__(config, config.decoder_vocab_size or config.vocab_size, layers)

    @merge_with_config_defaults
    @capture_outputs
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decodes target tokens, each seeing itself, those before it and the source.

        Args:
            input_ids: Target token ids, shape (B, T): with a cache, those that it does not hold yet.
            attention_mask: 1 for tokens and 0 for padding, of all target tokens so far, or a ready 4-D mask.
            encoder_hidden_states: The encoder's output, shape (B, S, D), or (B / k, S, D) where each of its rows
                belongs to k rows of the target in turn, as to the beams of a search.
            encoder_attention_mask: The source's mask, shape (B, S) or (B / k, S), or a ready 4-D mask.
            cache: Keys and values of earlier steps.
            inputs_embeds: Embeddings in place of ids, not yet multiplied by sqrt(D), shape (B, T, D).
            position_ids: Positions, shape (B, T); by default tokens are counted from 0 by the mask.
            use_cache: Whether to return a cache.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, ...

        Returns:
            The states of the last layer, shape (B, T, D), and the cache.

        Raises:
            ValueError: If not exactly one of ids and embeddings is given, the encoder's output is missing, an id is
                outside the vocabulary, or the target is longer than a learned position table.
        """
        if encoder_hidden_states is None:
            raise ValueError("`encoder_hidden_states` must be given to the decoder, but is None instead.")
        embeddings = self._embed(input_ids, inputs_embeds)
        if embeddings.shape[0] % encoder_hidden_states.shape[0]:
            raise ValueError(
                f"The number of target rows must be that of source rows ({encoder_hidden_states.shape[0]}), or a "
                f"multiple of it, but is {embeddings.shape[0]} instead."
            )
        if use_cache and cache is None:
            cache = DynamicCache()
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            cache = EncoderDecoderCache(cache, DynamicCache())  # else the encoder's keys would be added to it
        past_length = cache.get_seq_length() if cache is not None else 0
        hidden_states = self._add_positions(embeddings, position_ids, attention_mask, past_length)
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=embeddings,
            attention_mask=attention_mask,
            cache=None if cache is None else cache.self_attention_cache,
        )
        encoder_mask = create_bidirectional_mask(
            config=self.config,
            # As many rows as the encoder's, of all that reads one of them.
            inputs_embeds=embeddings.reshape(encoder_hidden_states.shape[0], -1, embeddings.shape[-1]),
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,  # positional, so that gradient checkpointing sees it
                attention_mask=mask,
                encoder_attention_mask=encoder_mask,
                cache=cache,
                **kwargs,
            )
        if self.layer_norm is not None:
            hidden_states = self.layer_norm(hidden_states)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, cache=cache)


_ENCODER_OUTPUTS = ("last_hidden_state", "hidden_states", "attentions")


class Seq2SeqTransformerModel(Seq2SeqTransformerVocabulary, Seq2SeqTransformerPreTrainedModel):
    """Encoder and decoder without an output projection: Vaswani et al. (2017), figure 1."""

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.encoder = Seq2SeqTransformerEncoder(config)
        self.decoder = Seq2SeqTransformerDecoder(config)
        self.post_init()

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(  # type: ignore[misc]  # TransformersKwargs has `position_ids` too
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Mapping[str, Any] | tuple[torch.Tensor, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Encodes the source, unless `encoder_outputs` holds it, and decodes the target.

        Args:
            input_ids: Source token ids, shape (B, S).
            attention_mask: The source's mask, 1 for tokens and 0 for padding, shape (B, S).
            decoder_input_ids: Target token ids, shape (B, T), starting with `decoder_start_token_id`.
            decoder_attention_mask: The target's mask, shape (B, T), or with a cache (B, past + T).
            encoder_outputs: What the encoder returned for this source earlier.
            cache: Keys and values of earlier steps.
            inputs_embeds: Source embeddings in place of ids, not yet multiplied by sqrt(D), shape (B, S, D).
            decoder_inputs_embeds: Target embeddings in place of ids, likewise, shape (B, T, D).
            position_ids: The source's positions, shape (B, S); by default counted by the mask.
            decoder_position_ids: The target's positions, shape (B, T); by default counted by the mask.
            use_cache: Whether to return a cache.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, ...

        Returns:
            The decoder's states, shape (B, T, D), the cache, and the encoder's states, shape (B, S, D).

        Raises:
            ValueError: As encoder and decoder do.
        """
        if encoder_outputs is None:
            encoded = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                position_ids=position_ids,
                return_dict=True,
                **kwargs,
            )
        elif isinstance(encoder_outputs, Mapping):
            encoded = BaseModelOutput(*(encoder_outputs.get(name) for name in _ENCODER_OUTPUTS))
        else:
            encoded = BaseModelOutput(*encoder_outputs)  # type: ignore[arg-type]
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            position_ids=decoder_position_ids,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            cache=decoder_outputs.cache,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


class Seq2SeqTransformerForConditionalGeneration(
    Seq2SeqTransformerVocabulary, Seq2SeqTransformerPreTrainedModel, Seq2SeqTransformerGenerationMixin
):
    """The Transformer with its output projection, its loss and `generate()`: Vaswani et al. (2017), figure 1."""

    generation_config_class = Seq2SeqTransformerGenerationConfig
    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        self.model = Seq2SeqTransformerModel(config)
        ties: dict[str, str] = {}
        target = "model.decoder.embed_tokens.weight"
        if config.share_encoder_decoder_embeddings:
            ties[target] = "model.encoder.embed_tokens.weight"
            target = ties[target]
        if config.tie_word_embeddings:
            ties["lm_head.weight"] = target
        self._tied_weights_keys = ties
        self.lm_head = nn.Linear(
            config.d_model, self.model.decoder.embed_tokens.num_embeddings, bias=config.lm_head_bias
        )
        self.generation_config.update(**generation_defaults(config))
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shifts labels (B, T) right by one, start token first, with padding in place of -100."""
        if self.config.decoder_start_token_id is None:
            raise ValueError(
                "`decoder_start_token_id` must be the id that target sequences start from, but is None instead. "
                "Set it in the model's config."
            )
        start = labels.new_full((labels.shape[0], 1), self.config.decoder_start_token_id)
        shifted = torch.cat((start, labels[:, :-1]), dim=-1)
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> dict[str, Any]:
        """Adds target positions, since a static cache replaces the 2-D mask they are counted by with a 4-D one."""
        mask = kwargs.get("decoder_attention_mask")
        if mask is not None and mask.ndim == 2 and kwargs.get("decoder_position_ids") is None:
            kwargs["decoder_position_ids"] = positions_from_mask(mask)
        model_inputs: dict[str, Any] = super().prepare_inputs_for_generation(input_ids, **kwargs)
        return model_inputs

    @with_prefix_of_adapter
    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(  # type: ignore[misc]  # TransformersKwargs has `position_ids` too
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Mapping[str, Any] | tuple[torch.Tensor, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        smoothing: float = 0.0,
        r_drop_alpha: float = 0.0,
        num_items_in_batch: torch.Tensor | int | None = None,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqTransformerOutput:
        """Predicts each next target token and, given labels, returns the loss.

        All arguments of `Seq2SeqTransformerModel.forward` mean what they mean there, `decoder_input_ids` is by default
        made from `labels`, and these are added:

        labels: Target token ids, shape (B, T), not shifted; -100 where none is to be predicted.
        smoothing: The share eps_ls of the target distribution that is spread over the vocabulary (section 5.4). It is
            not named `label_...`, since a trainer would take it for a column of labels.
        r_drop_alpha: The weight alpha of R-Drop (Liang et al., 2021). Where it is not 0, rows 2i and 2i + 1 must be
            the same pair of texts, as `tensor.repeat_interleave(2, dim=0)` makes them, which dropout sets apart. At
            each target position alpha (KL(p1 || p2) + KL(p2 || p1)) / 2 is added to the loss.
        num_items_in_batch: The number that the summed loss is divided by, for gradient accumulation and several
            devices; by default the number of labels that are not -100, in both copies of a pair with R-Drop.
        return_logits: Whether logits are returned beside a loss. By default they are in evaluation mode, and not in
            training mode, which then never holds all of them at once. Second derivatives of the loss need them.

        Returns:
            The loss (0 where there is nothing to predict), logits of shape (B, T, V) or `None`, the cache and states.

        Raises:
            TypeError: If a keyword is unknown.
            ValueError: As the model without a head does, **or** if `smoothing` or `r_drop_alpha` is out of range or
                the number of rows is odd with R-Drop, **or**, only on a CPU, since a GPU would have to be waited for,
                if a label is no target token's id or the labels of two copies differ.
        """
        check_keywords(type(self).forward, kwargs)
        if labels is not None:
            check_labels(labels, self.config.decoder_vocab_size or self.config.vocab_size, smoothing, r_drop_alpha)
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            position_ids=position_ids,
            decoder_position_ids=decoder_position_ids,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        wants_logits = labels is None or (return_logits if return_logits is not None else not self.training)
        logits = self.lm_head(hidden_states) if wants_logits else None
        loss = None
        if labels is not None:
            labels = labels.to(hidden_states.device)
            loss = summed_loss(self.lm_head, hidden_states, logits, labels, smoothing, r_drop_alpha)
            count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
            loss = loss / torch.as_tensor(count, device=loss.device).clamp(min=1)
        return Seq2SeqTransformerOutput(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


__all__ = [
    "Seq2SeqTransformerForConditionalGeneration",
    "Seq2SeqTransformerModel",
    "Seq2SeqTransformerPreTrainedModel",
]
