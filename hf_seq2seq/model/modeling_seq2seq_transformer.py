# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""The encoder-decoder Transformer of Vaswani et al. (2017), "Attention Is All You Need", read bottom-up.

Positions, attention, layers, encoder, decoder, the model, the loss, the model with an output projection.
This file travels with published checkpoints, so of this package it imports the configuration alone.

Shapes: B batch, S source length, T target length, L either length, D d_model, H heads, K width of a head's keys,
V vocabulary. A 2-D mask of shape (B, L) holds 1 for a token and 0 for padding; `None` means that all are tokens.
"""

import copy
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

import torch
from huggingface_hub import ModelCard, file_exists
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.generation.configuration_utils import GenerationConfig
from transformers.generation.logits_process import LogitsProcessor, LogitsProcessorList, SuppressTokensLogitsProcessor
from transformers.generation.utils import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import TransformersKwargs, can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_seq2seq_transformer import Seq2SeqTransformerConfig


def positions_from_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Counts tokens from 0 in each row of a (B, L) mask; padding gets the position of the token before it, or 0."""
    return (attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Dropout (section 5.4), of which a CPU draws four elements' random bits at a time.

    torch's own draws a number for each element, which takes as long as a tenth of a small model's matrix products. 16
    bits hold any rate to 2^-17; the scale is that of the rate they hold, so that means stay what they are.
    """
    is_plain = type(states) is torch.Tensor and states.device.type == "cpu" and not torch.compiler.is_compiling()
    num_dropped = round(p * 2**16)  # of 2^16 equally likely numbers
    if not training or not is_plain or not 0 < num_dropped < 2**16:
        return nn.functional.dropout(states, p=p, training=training)
    bits = torch.empty((states.numel() + 3) // 4, dtype=torch.int64, device=states.device).random_(-(2**63), None)
    numbers = bits.view(torch.int16)[: states.numel()].view(states.shape)  # from -2^15
    return states * (numbers >= num_dropped - 2**15) * (2**16 / (2**16 - num_dropped))


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
        """Projects `states` and joins them with the cache; the encoder's are projected at the first step alone."""
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

        Where the latter are fewer, by a factor of k, each belongs to k rows of the former in turn, as to the beams of
        a search, which then read its keys and values once: as one row of k T queries.

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
        self.final_layer_norm = nn.LayerNorm(config.d_model)

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
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)

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
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.encoder_attn = Seq2SeqTransformerAttention(config, num_heads, layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)

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


# Where the Auto classes find this code in a folder that carries it. `register_for_auto_class` would name one of them.
_AUTO_MAP = {
    "AutoConfig": "configuration_seq2seq_transformer.Seq2SeqTransformerConfig",
    "AutoModel": "modeling_seq2seq_transformer.Seq2SeqTransformerModel",
    "AutoModelForSeq2SeqLM": "modeling_seq2seq_transformer.Seq2SeqTransformerForConditionalGeneration",
}


class Seq2SeqTransformerPreTrainedModel(PreTrainedModel):
    """What all classes here share: weight initialisation, ties, publishing, and what transformers may do with them.

    Attributes:
        carries_code: Whether `save_pretrained` saves this code too, so that the folder loads where the package is not
            installed, with `trust_remote_code=True`. What is pushed to the Hub carries it in any case.
        make_card: A method that returns the text of a card, from the name of the repository and tags. The package
            sets it, since this file travels alone.
    """

    config: Seq2SeqTransformerConfig
    carries_code: bool = False
    make_card: ClassVar[Any] = None
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
        """Draws from N(0, init_std^2), or Xavier-uniform projections and embeddings N(0, 1 / D).

        The latter times sqrt(D) have variance 1.
        """
        std = self.config.init_std
        if isinstance(module, nn.Linear):
            if std is None:
                init.xavier_uniform_(module.weight)
            else:
                init.normal_(module.weight, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5 if std is None else std)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Returns {target: source} of the tied weights.

        The base class drops every tie where `tie_word_embeddings` is false; here that frees the output projection
        alone, and source and target embeddings stay shared where `share_encoder_decoder_embeddings` says so.
        """
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        ties = dict(self._tied_weights_keys or {})
        if not self.config.tie_word_embeddings:
            ties.pop("lm_head.weight", None)
        return ties

    @property
    def _keys_to_ignore_on_save(self) -> set[str]:
        """Names of weights that are stored under another name: a trainer that goes on does not miss them."""
        weights = dict(self.named_parameters(remove_duplicate=False))
        tied = self.all_tied_weights_keys.items()
        return {target for target, source in tied if target in weights and weights[target] is weights.get(source)}

    @_keys_to_ignore_on_save.setter
    def _keys_to_ignore_on_save(self, names: set[str]) -> None:
        """Ignores what the base class sets, which are the names that classes list: ours list none."""

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        state_dict: dict[str, Any] | None = None,
        push_to_hub: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Saves as the base class does; the code goes along where it was loaded so or is asked for.

        Args:
            save_directory: The folder.
            is_main_process: Whether this process writes.
            state_dict: The weights, where they are not the model's own.
            push_to_hub: Whether what is saved goes to the Hub too.
            *args: See there.
            **kwargs: See there.

        Raises:
            ValueError: If the code is to go along, but is not here: that of a subclass which is not registered.
        """
        carries_code = self.carries_code or push_to_hub or self.is_remote_code()
        if carries_code and type(self).__module__ != __name__ and not self.is_remote_code():
            raise ValueError(
                "A model that carries its code must be of a class of this file, or registered, but "
                f"{type(self).__name__} is neither. Call its `register_for_auto_class`."
            )
        before = vars(self.config).pop("auto_map", None)
        if carries_code:
            self.config.auto_map = dict(_AUTO_MAP)
        try:
            super().save_pretrained(save_directory, is_main_process, state_dict, push_to_hub, *args, **kwargs)
        finally:
            vars(self.config).pop("auto_map", None)
            if before is not None:
                self.config.auto_map = before
        if carries_code and is_main_process:
            _copy_code(save_directory)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # as above
        """Uploads as the base class does, with this code, and with a card where the repository has none."""
        carried, self.carries_code = self.carries_code, True
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            self.carries_code = carried

    def _upload_modified_files(  # type: ignore[override]  # as above
        self, working_dir: str | os.PathLike[str], repo_id: str, files_timestamps: dict[str, float], **kwargs: Any
    ) -> Any:
        """Adds the code, and puts the package's card in the place of an empty one, before what was saved is sent."""
        _copy_code(working_dir)
        path = Path(working_dir, "README.md")
        can_be_ours = self.make_card is not None and path.name not in files_timestamps
        if can_be_ours and not file_exists(repo_id, path.name, token=kwargs.get("token")):
            tags = ModelCard.load(path).data.get("tags", [])
            path.write_text(self.make_card(repo_id, tags), encoding="utf-8")
        return super()._upload_modified_files(working_dir, repo_id, files_timestamps, **kwargs)


def _copy_code(folder: str | os.PathLike[str]) -> None:
    """Copies this file and the one it imports to a folder."""
    for path in (__file__, *get_relative_import_files(__file__)):
        shutil.copyfile(path, Path(folder, Path(path).name))


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
        self.layer_norm = nn.LayerNorm(config.d_model) if config.norm_position == "pre" else None
        self.gradient_checkpointing = False
        self.post_init()

    def init_parallel_plans(self) -> None:
        """Leaves a stack without plans: the config's name both stacks, and are the whole model's."""
        self._tp_plan, self._ep_plan, self._pp_plan, self._fsdp_plan = {}, {}, {}, {}

    def _embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Looks tokens up, (B, L) -> (B, L, D), and multiplies by sqrt(D): section 3.4."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                f"Exactly one of ids and embeddings must be given to the {type(self).__name__}, but "
                f"{'neither is' if input_ids is None else 'both are'}. Pass `input_ids` or `inputs_embeds` for the "
                "source, and `decoder_input_ids`, `decoder_inputs_embeds` or `labels` for the target."
            )
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
        self, embeddings: torch.Tensor, position_ids: torch.Tensor, num_positions: int | None
    ) -> torch.Tensor:
        """Adds positions to (B, L, D) and applies dropout to the sums: sections 3.5 and 5.4."""
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
        num_positions = None
        if position_ids is None:
            if attention_mask is not None and attention_mask.ndim == 2:
                position_ids, num_positions = positions_from_mask(attention_mask), attention_mask.shape[1]
            else:
                num_positions = embeddings.shape[1]
                position_ids = torch.arange(num_positions, device=embeddings.device)[None]
        hidden_states = self._add_positions(embeddings, position_ids, num_positions)
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
        length = embeddings.shape[1]
        num_positions = None
        if position_ids is None:
            if attention_mask is not None and attention_mask.ndim == 2:
                position_ids, num_positions = positions_from_mask(attention_mask)[:, -length:], attention_mask.shape[1]
            else:
                position_ids = (torch.arange(length, device=embeddings.device) + past_length)[None]
                num_positions = None if isinstance(past_length, torch.Tensor) else past_length + length
        hidden_states = self._add_positions(embeddings, position_ids, num_positions)
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


class Seq2SeqTransformerModel(Seq2SeqTransformerPreTrainedModel):
    """Encoder and decoder without an output projection: Vaswani et al. (2017), figure 1."""

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.encoder = Seq2SeqTransformerEncoder(config)
        self.decoder = Seq2SeqTransformerDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Returns the source's embedding table, which is the target's too where they are shared."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Sets the source's embedding table, and the target's where they are shared."""
        self.encoder.embed_tokens = value  # type: ignore[assignment]
        if self.config.share_encoder_decoder_embeddings:
            self.decoder.embed_tokens = value  # type: ignore[assignment]

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resizes the source's table and, where it is shared, the target's."""
        embeddings: nn.Embedding = self._get_resized_embeddings(
            self.get_input_embeddings(), new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        self.set_input_embeddings(embeddings)
        if self.config.share_encoder_decoder_embeddings:
            self.config.decoder_vocab_size = embeddings.num_embeddings
        return embeddings

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


# Positions projected onto the vocabulary at a time in training.
_LOSS_CHUNK = 256
# Factor on float16 gradients of the hidden states, divided out again in the backward pass: where a token is almost
# certain, what is left is spread over the vocabulary in parts too small for float16.
_HALF_SCALE = 64.0


def _chunk_size(r_drop_alpha: float) -> int:
    """Returns the number of positions in a chunk: with R-Drop a whole number of twins, at least one pair of them."""
    return max(_LOSS_CHUNK // 2, 1) * 2 if r_drop_alpha else _LOSS_CHUNK


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Projection and label-smoothed cross-entropy, summed over positions, without ever holding all logits.

    Loss and gradients are formed in one pass over chunks of positions, so that no logits are kept or computed again
    for the backward pass. R-Drop's divergence is added where it is asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        label_smoothing: float,
        r_drop_alpha: float,
    ) -> torch.Tensor:
        """Returns the summed loss of `hidden_states` (N, D) against `labels` (N,), none of them -100.

        Where `r_drop_alpha` is not 0, positions 2n and 2n + 1 are twins.
        """
        device = hidden_states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_states.dtype
        scale = _HALF_SCALE if dtype == torch.float16 else 1.0
        ctx.input_dtypes = (hidden_states.dtype, weight.dtype)
        ctx.scale = scale
        sum_dtype = torch.promote_types(dtype, torch.float32)
        loss = torch.zeros((), dtype=sum_dtype, device=hidden_states.device)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden_states, dtype=dtype) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=sum_dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=sum_dtype) if needs_bias and bias is not None else None
        with torch.autocast(device, enabled=False):
            projection = weight.to(dtype)
            chunk_size = _chunk_size(r_drop_alpha)
            for start in range(0, hidden_states.shape[0], chunk_size):
                rows = slice(start, start + chunk_size)
                states = hidden_states[rows].to(dtype)
                logits = (states @ projection.t()).to(sum_dtype)  # (N, D) -> (N, V)
                if bias is not None:
                    logits += bias
                chunk_loss, grad_logits = _loss_and_gradient(logits, labels[rows], label_smoothing, r_drop_alpha)
                loss += chunk_loss
                if grad_bias is not None:
                    grad_bias += grad_logits.sum(0)
                if grad_weight is not None and dtype == torch.bfloat16:
                    grad_weight += grad_logits.to(dtype).t() @ states
                elif grad_weight is not None:  # in float32 also for float16, in which a chunk's sum could overflow
                    grad_weight.addmm_(grad_logits.t(), states.to(sum_dtype))
                if grad_hidden is not None:
                    grad_hidden[rows] = grad_logits.mul_(scale).to(dtype) @ projection
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Scales the gradients formed in the forward pass."""
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        hidden_dtype, weight_dtype = ctx.input_dtypes
        return (
            None
            if grad_hidden is None
            else (grad_hidden.to(grad_loss.dtype) * (grad_loss / ctx.scale)).to(hidden_dtype),
            None if grad_weight is None else (grad_weight * grad_loss).to(weight_dtype),
            None if grad_bias is None else (grad_bias * grad_loss).to(weight_dtype),
            None,
            None,
            None,
        )


def _loss_and_gradient(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float, r_drop_alpha: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the summed loss of (N, V) logits and its gradient, which is written over the logits.

    The target distribution is 1 - eps on the label plus eps / V everywhere, so the gradient of the cross-entropy is
    softmax(logits) - (1 - eps) onehot(label) - eps / V. Where `r_drop_alpha` is not 0, `_add_divergence` adds to both.
    """
    num_tokens = logits.shape[-1]
    logits -= logits.amax(dim=-1, keepdim=True)
    at_label = logits.gather(-1, labels[:, None])[:, 0]
    mean = logits.mean(dim=-1) if label_smoothing else at_label
    twin_difference = logits[0::2] - logits[1::2] if r_drop_alpha else None
    total = logits.exp_().sum(dim=-1, keepdim=True)
    loss = (total[:, 0].log() - (1 - label_smoothing) * at_label - label_smoothing * mean).sum()
    gradient = logits.div_(total)
    if twin_difference is not None:
        loss += _add_divergence(gradient, twin_difference, r_drop_alpha)
    if label_smoothing:
        gradient -= label_smoothing / num_tokens
    gradient.scatter_add_(-1, labels[:, None], gradient.new_full((len(labels), 1), label_smoothing - 1))
    return loss, gradient


def _add_divergence(probabilities: torch.Tensor, twin_difference: torch.Tensor, r_drop_alpha: float) -> torch.Tensor:
    """Returns R-Drop's term for twins, and adds its gradient by the logits to their probabilities.

    The term is alpha (KL(p1 || p2) + KL(p2 || p1)) / 2: Liang et al. (2021), section 2.1, equation 2. Its gradient by
    the logits of p1 is alpha / 2 times p1 (log(p1 / p2) - KL(p1 || p2)) + p1 - p2. The difference of the logits stands
    for log(p1 / p2), from which it differs by a constant for each pair of twins: that cancels in both.

    Args:
        probabilities: Softmax of the logits, shape (2 N, V), rows 2n and 2n + 1 being twins; overwritten.
        twin_difference: Logits of p1 minus those of p2, shape (N, V); overwritten.
        r_drop_alpha: The weight alpha of the term.

    Returns:
        The term, summed over the N pairs of twins.
    """
    first, second = probabilities[0::2], probabilities[1::2]
    first_change, second_change = first * twin_difference, second * twin_difference
    first_kl = first_change.sum(dim=-1, keepdim=True)  # KL(p1 || p2) plus the constant
    second_kl = second_change.sum(dim=-1, keepdim=True).neg_()  # KL(p2 || p1) minus the constant
    difference = torch.sub(first, second, out=twin_difference)
    first_change.addcmul_(first, first_kl, value=-1).add_(difference)
    second_change.addcmul_(second, second_kl).add_(difference)
    first.add_(first_change, alpha=r_drop_alpha / 2)
    second.sub_(second_change, alpha=r_drop_alpha / 2)
    return (first_kl + second_kl).sum() * (r_drop_alpha / 2)


class _SuppressTokensInPlace(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    def __init__(self, token_ids: torch.Tensor) -> None:
        self.token_ids = token_ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill_(-1, self.token_ids, -torch.inf)


class Seq2SeqTransformerForConditionalGeneration(Seq2SeqTransformerPreTrainedModel, GenerationMixin):
    """The Transformer with its output projection, its loss and `generate()`: Vaswani et al. (2017), figure 1."""

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
        self._set_generation_defaults()
        self.post_init()

    def _set_generation_defaults(self) -> None:
        """Beam 4 and penalty 0.6 as in section 6.1; a learned position table ends the output where it ends itself.

        `early_stopping` is False: where it is True a sentence is done with its fourth finished hypothesis, and a sure
        model's three poor ones are often shorter than the good one, so that they finish first and one of them wins.
        """
        config = self.config
        max_length = 256
        if config.position_embedding_type == "learned":
            max_length = min(max_length, config.max_position_embeddings)
        eos_ids = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        suppressed = {config.pad_token_id, config.decoder_start_token_id} - {None, *eos_ids}
        self.generation_config.update(
            num_beams=4,
            length_penalty=0.6,
            early_stopping=False,
            max_length=max_length,
            suppress_tokens=sorted(suppressed),
        )

    def get_decoder_input_embeddings(self) -> nn.Embedding:
        """Returns the target's embedding table."""
        embeddings: nn.Embedding = self.model.decoder.embed_tokens
        return embeddings

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resizes the source's table and, where it is shared, the target's and the output projection."""
        embeddings: nn.Embedding = self.model._resize_token_embeddings(
            new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        if self.config.share_encoder_decoder_embeddings:
            self._resize_lm_head(embeddings.num_embeddings, mean_resizing)
        return embeddings

    def _resize_lm_head(self, num_tokens: int, mean_resizing: bool) -> None:
        requires_grad = self.lm_head.weight.requires_grad
        self.lm_head = self._get_resized_lm_head(self.lm_head, num_tokens, mean_resizing=mean_resizing)
        self.lm_head.requires_grad_(requires_grad)

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        """Resizes the target's table and the output projection where the source has a table of its own.

        Args:
            new_num_tokens: The new number of target tokens; new rows are added, or rows removed, at the end.
            pad_to_multiple_of: Rounds the number up to a multiple, for tensor cores.
            mean_resizing: Whether new rows are drawn around the mean of the old ones.

        Returns:
            The target's embedding table.

        Raises:
            ValueError: If source and target share one table.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError(
                "`resize_decoder_token_embeddings` needs `share_encoder_decoder_embeddings=False`, but it is True. "
                "Call `resize_token_embeddings`, which resizes the shared table."
            )
        embeddings = self._get_resized_embeddings(
            self.get_decoder_input_embeddings(), new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        self.model.decoder.embed_tokens = embeddings
        self.config.decoder_vocab_size = embeddings.num_embeddings
        self._resize_lm_head(embeddings.num_embeddings, mean_resizing)
        self.tie_weights()
        return embeddings

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

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **model_kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Repeats the target's rows for the beams of a search, which share the encoder's."""
        names = ("encoder_outputs", "attention_mask") if is_encoder_decoder else ()
        shared = {name: model_kwargs.pop(name) for name in names if name in model_kwargs}
        stock: Any = super()
        input_ids, model_kwargs = stock._expand_inputs_for_generation(expand_size, False, input_ids, **model_kwargs)
        return input_ids, model_kwargs | shared

    def _reorder_cache(self, cache: EncoderDecoderCache, beam_idx: Any) -> EncoderDecoderCache:
        """Lets the beams of a search change places; what they share of the encoder stays."""
        cache.self_attention_cache.reorder_cache(beam_idx)
        return cache

    def _beam_search(  # type: ignore[override]  # whose types are narrower
        self,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        """Searches as transformers does, without computing more for sentences whose result is settled."""
        search: Any = self
        cache = model_kwargs.get("cache")
        if (
            type(self) is Seq2SeqTransformerForConditionalGeneration
            and isinstance(cache, EncoderDecoderCache)
            and type(cache.self_attention_cache) is DynamicCache
            and not _BeamSearchOfUnsettled.OVERRIDDEN & vars(self).keys()  # as PEFT does for prompts
            and not generation_config.return_dict_in_generate  # which asks for something of all rows
            and len(set(getattr(self, "hf_device_map", {}).values())) < 2  # else each layer's cache is somewhere else
        ):
            # Shares the weights, and holds the state of this search alone: others may go on at the same time.
            search = copy.copy(self)
            search.__class__ = _BeamSearchOfUnsettled
            search.begin(generation_config.num_beams, model_kwargs)
        stock: Any = super(Seq2SeqTransformerForConditionalGeneration, search)
        return stock._beam_search(input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs)

    def _get_logits_processor(self, generation_config: GenerationConfig, *args: Any, **kwargs: Any) -> Any:
        """Bans tokens in place, where transformers' own processor copies all scores at each step."""
        stock: Any = super()
        processors = stock._get_logits_processor(generation_config, *args, **kwargs)
        if generation_config.output_logits:  # these are the very tensors
            return processors
        return LogitsProcessorList(
            _SuppressTokensInPlace(processor.suppress_tokens)
            if type(processor) is SuppressTokensLogitsProcessor
            else processor
            for processor in processors
        )

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> dict[str, Any]:
        """Adds target positions, since a static cache replaces the 2-D mask they are counted by with a 4-D one."""
        mask = kwargs.get("decoder_attention_mask")
        if mask is not None and mask.ndim == 2 and kwargs.get("decoder_position_ids") is None:
            kwargs["decoder_position_ids"] = positions_from_mask(mask)
        model_inputs: dict[str, Any] = super().prepare_inputs_for_generation(input_ids, **kwargs)
        return model_inputs

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
    ) -> Seq2SeqLMOutput:
        """Predicts each next target token and, given labels, returns the loss.

        Args:
            input_ids: As the other arguments that are not named here, see `Seq2SeqTransformerModel.forward`.
            attention_mask: See there.
            decoder_input_ids: See there; by default made from `labels`.
            decoder_attention_mask: See there.
            encoder_outputs: See there.
            cache: See there.
            inputs_embeds: See there.
            decoder_inputs_embeds: See there.
            labels: Target token ids, shape (B, T), not shifted; -100 where none is to be predicted.
            position_ids: See there.
            decoder_position_ids: See there.
            use_cache: See there.
            smoothing: The share eps_ls of the target distribution spread over the vocabulary (section 5.4). (Not named
                `label_...`: a trainer would take it for a column of labels.)
            r_drop_alpha: The weight alpha of R-Drop (Liang et al., 2021). Where it is not 0, rows 2i and 2i + 1 are
                the same pair of texts, as `tensor.repeat_interleave(2, dim=0)` makes them, which dropout sets apart:
                at each target position alpha (KL(p1 || p2) + KL(p2 || p1)) / 2 is added to the loss.
            num_items_in_batch: Number that the summed loss is divided by, for gradient accumulation and several
                devices; by default the number of labels that are not -100, in both copies of a pair with R-Drop.
            return_logits: Whether logits are returned beside a loss. By default they are in evaluation mode, and in
                training mode they are not, since then they need never be held all at once.
            **kwargs: See there.

        Returns:
            The loss (0 where there is nothing to predict), logits of shape (B, T, V) or `None`, the cache and states.

        Raises:
            ValueError: As the model without a head does, if the number of rows is odd with R-Drop, **or**, on a CPU
                alone, since a GPU would have to be waited for: if a label is no target token's id, or those of the
                two copies differ.
        """
        if labels is not None:
            self._check_labels(labels, r_drop_alpha)
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
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        wants_logits = labels is None or (return_logits if return_logits is not None else not self.training)
        logits = self.lm_head(hidden_states) if wants_logits else None
        loss = None
        if labels is not None:
            loss = self._loss(hidden_states, logits, labels.to(hidden_states.device), smoothing, r_drop_alpha)
            count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
            loss = loss / torch.as_tensor(count, device=loss.device).clamp(min=1)
        return Seq2SeqLMOutput(
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

    def _check_labels(self, labels: torch.Tensor, r_drop_alpha: float) -> None:
        """Raises ValueError if labels cannot be learned from; looks at their values on a CPU alone."""
        if r_drop_alpha and len(labels) % 2:
            raise ValueError(
                f"The number of rows must be even with `r_drop_alpha` ({r_drop_alpha}), but is {len(labels)} instead. "
                "Repeat every tensor of the batch with `tensor.repeat_interleave(2, dim=0)`."
            )
        if labels.device.type != "cpu" or torch.compiler.is_compiling():
            return
        vocab_size = self.config.decoder_vocab_size
        is_foreign = (labels >= vocab_size) | ((labels < 0) & (labels != -100))  # type: ignore[operator]
        if is_foreign.any():
            raise ValueError(
                f"`labels` must be at least 0 and below the target vocabulary's size ({vocab_size}), or -100, but one "
                f"is {int(labels[is_foreign][0])} instead. Use the tokenizer that the model was made for."
            )
        if r_drop_alpha and not torch.equal(labels[0::2], labels[1::2]):
            raise ValueError(
                "`labels` must be equal in rows 2i and 2i + 1 with `r_drop_alpha`, but differ. Repeat every tensor of "
                "the batch with `tensor.repeat_interleave(2, dim=0)`."
            )

    def _loss(
        self,
        hidden_states: torch.Tensor,
        logits: torch.Tensor | None,
        labels: torch.Tensor,
        label_smoothing: float,
        r_drop_alpha: float,
    ) -> torch.Tensor:
        """Sums the loss over labels that are not -100: from (B, T, V) logits, or in chunks without them."""
        if r_drop_alpha:  # the two copies of a position side by side: (B, T, ...) -> (B / 2, T, 2, ...)
            hidden_states, labels = (x.unflatten(0, (-1, 2)).transpose(1, 2) for x in (hidden_states, labels))
            logits = None if logits is None else logits.unflatten(0, (-1, 2)).transpose(1, 2)
        if logits is not None:
            return _sum_loss(logits.flatten(0, -2), labels.flatten(), label_smoothing, r_drop_alpha)
        is_target = labels != -100
        states, targets = hidden_states[is_target], labels[is_target]  # (B, T, D) -> (N, D)
        if self._lm_head_is_plain():
            loss: torch.Tensor = _ChunkedCrossEntropy.apply(
                states, self.lm_head.weight, self.lm_head.bias, targets, label_smoothing, r_drop_alpha
            )
            return loss
        chunk_size = _chunk_size(r_drop_alpha)
        # Where no label is left, there is one empty chunk, so that the loss has a gradient.
        chunk_losses = [
            checkpoint(
                lambda x, y: _sum_loss(self.lm_head(x), y, label_smoothing, r_drop_alpha),
                chunk,
                chunk_targets,
                use_reentrant=False,
            )
            for chunk, chunk_targets in zip(states.split(chunk_size), targets.split(chunk_size), strict=True)
        ]
        return torch.stack(chunk_losses).sum()

    def _lm_head_is_plain(self) -> bool:
        """Whether the head's weight can be used directly: no adapter, no sharding, no hook of accelerate's."""
        head = self.lm_head
        hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
        is_linear = type(head) is nn.Linear and type(head.weight) is nn.Parameter
        return is_linear and not any(hooks) and not hasattr(head, "_hf_hook")


def _sum_loss(logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float, r_drop_alpha: float) -> torch.Tensor:
    """Returns the loss of (N, V) logits, in float32 or wider, summed over labels but -100.

    It is the label-smoothed cross-entropy and, where `r_drop_alpha` is not 0 and rows 2n and 2n + 1 are twins,
    R-Drop's term: KL(p1 || p2) + KL(p2 || p1) is the sum of (p1 - p2) log(p1 / p2) over the vocabulary.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = nn.functional.cross_entropy(
        logits, labels, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    if r_drop_alpha:
        first, second = logits.log_softmax(dim=-1).unflatten(0, (-1, 2)).unbind(dim=1)
        divergence = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1)
        loss = loss + r_drop_alpha / 2 * divergence.masked_fill(labels[0::2] == -100, 0).sum()
    return loss


class _BeamSearchOfUnsettled(Seq2SeqTransformerForConditionalGeneration):
    """A model during one beam search: the decoder gets the beams of those sentences alone whose result can change.

    In transformers' search a sentence is settled once no open beam can become better than its finished ones, and never
    unsettled again; its rows go on until the whole batch is settled, without effect. Here they leave the cache, and
    their logits are zeros.
    """

    OVERRIDDEN = frozenset(
        (
            "_check_early_stop_heuristic",
            "_reorder_cache",
            "_update_model_kwargs_for_generation",
            "prepare_inputs_for_generation",
        )
    )

    def begin(self, num_beams: int, model_kwargs: dict[str, Any]) -> None:
        """Starts with all sentences."""
        self._num_beams = num_beams
        self._encoder_states = model_kwargs["encoder_outputs"][0]
        self._encoder_mask = model_kwargs.get("attention_mask")
        self._sentences = torch.arange(len(self._encoder_states), device=self._encoder_states.device)
        self._can_change = torch.ones_like(self._sentences, dtype=torch.bool)

    def _rows(self) -> torch.Tensor:
        """Returns the numbers of the rows in the cache, among those of all sentences."""
        beams = torch.arange(self._num_beams, device=self._sentences.device)
        return (self._sentences[:, None] * self._num_beams + beams).flatten()

    def _check_early_stop_heuristic(  # type: ignore[override]  # a static method there
        self, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Notes down which sentences can still change."""
        stock: Any = Seq2SeqTransformerForConditionalGeneration
        can_change: torch.Tensor = stock._check_early_stop_heuristic(*args, **kwargs)
        self._can_change = can_change[:, 0]
        return can_change

    def _reorder_cache(self, cache: EncoderDecoderCache, beam_idx: Any) -> EncoderDecoderCache:
        """Lets beams change places, and those of settled sentences go."""
        kept = self._can_change[self._sentences].nonzero()[:, 0]  # places among the sentences in the cache
        sentences = self._sentences[kept]
        beams = beam_idx.view(-1, self._num_beams)[sentences] - sentences[:, None] * self._num_beams
        super()._reorder_cache(cache, (kept[:, None] * self._num_beams + beams).flatten())
        if len(kept) < len(self._sentences):
            layers: Any = cache.cross_attention_cache.layers
            for layer in layers:
                layer.keys, layer.values = layer.keys[kept], layer.values[kept]
            self._encoder_states = self._encoder_states[kept]
            self._encoder_mask = None if self._encoder_mask is None else self._encoder_mask[kept]
        self._sentences = sentences
        return cache

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> dict[str, Any]:
        """Takes the rows that are in the cache."""
        rows = self._rows()
        shared = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=self._encoder_states),
            "attention_mask": self._encoder_mask,
        }
        of_rows = {
            name: value[rows]
            for name, value in kwargs.items()
            if name not in shared and isinstance(value, torch.Tensor) and len(value) == len(input_ids)
        }
        return super().prepare_inputs_for_generation(input_ids[rows], **(kwargs | shared | of_rows))

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Puts the logits back in the rows of all sentences."""
        if len(self._sentences) < len(self._can_change):
            num_rows = len(self._can_change) * self._num_beams
            logits = outputs.logits.new_zeros((num_rows, *outputs.logits.shape[1:]))
            logits[self._rows()] = outputs.logits
            outputs.logits = logits
        stock: Any = super()
        model_kwargs: dict[str, Any] = stock._update_model_kwargs_for_generation(outputs, *args, **kwargs)
        return model_kwargs


__all__ = [
    "Seq2SeqTransformerForConditionalGeneration",
    "Seq2SeqTransformerModel",
    "Seq2SeqTransformerPreTrainedModel",
]
