# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""The network once more, as a search on a CPU computes it: few tokens at a time, from weights laid out for that.

A step of a search computes one token of each hypothesis. Its time is that of reading all the weights once, and of what
Python does around it. Here the weights are copies in the layout that oneDNN multiplies fastest with ("packed"),
queries, keys and values are one product, and nothing is done that a step does not need. Results are those of the
modeling file up to rounding. This file travels with published checkpoints.

Shapes: B sentences, Q target tokens of each that are computed at once (a prompt's, or one of each beam), P prompt
length, S source length, D d_model, H heads, K width of a head's keys or values, V vocabulary.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn


Linear = Callable[[Tensor], Tensor]
KeysAndValues = tuple[Tensor, Tensor]

CHUNK = 64  # the padded vocabulary's size is a multiple of it
_LOWEST = torch.finfo(torch.float32).min
_FIRST_SLOTS = 32  # of a cache, which doubles when it is full

_NETWORKS: "WeakKeyDictionary[nn.Module, PackedNetwork]" = WeakKeyDictionary()
_LOCK = threading.Lock()


def packed_network(model: Any) -> "PackedNetwork | None":
    """Returns a model's packed network, made anew where the weights have changed, or None if it can have none.

    It can have one on a CPU in float32, in evaluation mode, and where its parts are those of the modeling file: not
    adapters, quantized or sharded weights, or parts with hooks.
    """
    modules = list(model.modules())
    if not _can_be_packed(model, modules):
        return None
    state = _weights_state(modules)
    with _LOCK:
        network = _NETWORKS.get(model)
        if network is None or network.state != state:
            network = _NETWORKS[model] = PackedNetwork(model, state)
    return network


def _can_be_packed(model: Any, modules: Sequence[nn.Module]) -> bool:
    if model.training or torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.is_available():
        return False
    kind = type(model)
    return (
        kind.__name__ == "Seq2SeqTransformerForConditionalGeneration"
        and model.config._attn_implementation in ("sdpa", "eager")
        and all(_is_plain_part(module, kind.__module__) for module in modules)
    )


def _is_plain_part(module: nn.Module, own_file: str) -> bool:
    """Returns whether a part is one of torch or of the modeling file, without hooks, on a CPU in float32."""
    home = type(module).__module__
    is_known = home == own_file or home.startswith(("torch.nn.modules.", "transformers.activations"))
    if isinstance(module, nn.Linear | nn.LayerNorm):
        is_known = type(module) in (nn.Linear, nn.LayerNorm)
    has_hooks = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    weights = [weight for weight in module._parameters.values() if weight is not None]
    return (
        is_known
        and not has_hooks
        and all(
            type(weight) is nn.Parameter and weight.dtype == torch.float32 and weight.device.type == "cpu"
            for weight in weights
        )
    )


def _weights_state(modules: Sequence[nn.Module]) -> list[Any]:
    """Returns what differs once a weight has changed: where weights lie, their versions, and some of their numbers.

    Versions do not count changes through `.data`. These show in the numbers: one of each row, and all of a bias.
    """
    weights = [weight.detach() for module in modules for weight in module._parameters.values() if weight is not None]
    steps = [max(1, weight.shape[-1] - 1) if weight.ndim > 1 else 1 for weight in weights]
    numbers = torch.cat([weight.reshape(-1)[::step] for weight, step in zip(weights, steps, strict=True)])
    return [
        [(weight.data_ptr(), weight.shape, 0 if weight.is_inference() else weight._version) for weight in weights],
        numbers.numpy().tobytes(),
    ]


def pack(*modules: nn.Linear, multiple: int = 1) -> Linear:
    """Returns one product that does what several do, whose outputs it has side by side.

    Args:
        *modules: The products.
        multiple: What the number of outputs is a multiple of; those that are added are minus infinity.
    """
    weight = torch.cat([module.weight.detach() for module in modules])
    biases = [module.bias.detach() for module in modules if module.bias is not None]
    bias = torch.cat(biases) if biases else None
    num_more = -len(weight) % multiple
    if num_more:
        bias = nn.functional.pad(
            weight.new_zeros(len(weight)) if bias is None else bias, (0, num_more), value=-math.inf
        )
        weight = nn.functional.pad(weight, (0, 0, 0, num_more))
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda inputs: multiply(inputs, packed, bias, "none", [], "")


class _Attention:
    """Multi-head attention: Vaswani et al. (2017), section 3.2.2."""

    def __init__(self, module: Any) -> None:
        self.key_dim, self.value_dim = module.key_dim, module.value_dim
        self.widths = [part.out_features for part in (module.q_proj, module.k_proj, module.v_proj)]
        self.scaling = module.scaling
        self.output = pack(module.out_proj)

    def heads(self, vectors: Tensor, width: int) -> Tensor:
        """Parts vectors, (B, L, H K) -> (B, H, L, K)."""
        parted: Tensor = vectors.unflatten(-1, (-1, width))
        return parted.transpose(1, 2)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Returns softmax(Q K^T / sqrt(K)) V W^O: (B, H, Q, K), (B, H, L, K) -> (B, Q, D)."""
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values, mask, scale=self.scaling)
        return self.output(attended.transpose(1, 2).flatten(2))


class _SelfAttention(_Attention):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.projection = pack(module.q_proj, module.k_proj, module.v_proj)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values, (B, H, L, K) each."""
        queries, keys, values = self.projection(states).split(self.widths, dim=-1)
        return self.heads(queries, self.key_dim), self.heads(keys, self.key_dim), self.heads(values, self.value_dim)


class _CrossAttention(_Attention):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.queries = pack(module.q_proj)
        self.keys_and_values = pack(module.k_proj, module.v_proj)

    def remember(self, states: Tensor) -> KeysAndValues:
        """Returns the keys and values of the encoder's output, (B, S, D) -> (B, H, S, K)."""
        keys, values = self.keys_and_values(states).split(self.widths[1:], dim=-1)
        return self.heads(keys, self.key_dim).contiguous(), self.heads(values, self.value_dim).contiguous()


class _Layer:
    """What encoder and decoder layers share."""

    def __init__(self, module: Any) -> None:
        self.pre_norm = module.pre_norm
        self.self_attention = _SelfAttention(module.self_attn)
        self.self_norm = module.self_attn_layer_norm
        self.inner, self.activation, self.outer = pack(module.fc1), module.activation_fn, pack(module.fc2)
        self.feed_forward_norm = module.final_layer_norm

    def residual(self, sublayer: Linear, norm: nn.LayerNorm, states: Tensor) -> Tensor:
        """LayerNorm(x + Sublayer(x)), section 3.1, or with pre-norm x + Sublayer(LayerNorm(x))."""
        if self.pre_norm:
            return states + sublayer(_normalise(norm, states))
        return _normalise(norm, states + sublayer(states))

    def feed_forward(self, states: Tensor) -> Tensor:
        """Returns the feed-forward network's output: section 3.3."""
        inner: Tensor = self.activation(self.inner(states))
        return self.outer(inner)


def _normalise(norm: nn.LayerNorm, states: Tensor) -> Tensor:
    return torch.layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class _EncoderLayer(_Layer):
    def __call__(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Maps (B, S, D) to (B, S, D)."""
        attention = self.self_attention
        states = self.residual(lambda x: attention.attend(*attention.project(x), mask), self.self_norm, states)
        return self.residual(self.feed_forward, self.feed_forward_norm, states)


class _DecoderLayer(_Layer):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.cross_attention = _CrossAttention(module.encoder_attn)
        self.cross_norm = module.encoder_attn_layer_norm

    def __call__(
        self,
        states: Tensor,
        cache: "_LayerCache",
        mask: Tensor | None,
        memory: KeysAndValues,
        source_mask: Tensor | None,
    ) -> Tensor:
        """Maps (B, Q, D) to (B, Q, D), and adds keys and values to the cache."""
        attention, cross = self.self_attention, self.cross_attention

        def attend_to_target(x: Tensor) -> Tensor:
            queries, keys, values = attention.project(x)
            return attention.attend(queries, *cache.add(keys, values), mask)

        def attend_to_source(x: Tensor) -> Tensor:
            return cross.attend(cross.heads(cross.queries(x), cross.key_dim), *memory, source_mask)

        states = self.residual(attend_to_target, self.self_norm, states)
        states = self.residual(attend_to_source, self.cross_norm, states)
        return self.residual(self.feed_forward, self.feed_forward_norm, states)


class _LayerCache:
    """Keys and values of a layer, (B, H, slots, K) each, with room for more."""

    def __init__(self) -> None:
        self.length = 0
        self.keys = self.values = torch.empty(0)

    def add(self, keys: Tensor, values: Tensor) -> KeysAndValues:
        """Adds some, and returns all."""
        start, self.length = self.length, self.length + keys.shape[2]
        if not start:
            room = max(_FIRST_SLOTS, self.length)
            self.keys, self.values = (kept.new_empty(*kept.shape[:2], room, kept.shape[3]) for kept in (keys, values))
        elif self.length > self.keys.shape[2]:
            room = max(self.length, 2 * self.keys.shape[2]) - start
            self.keys, self.values = (
                nn.functional.pad(kept[:, :, :start], (0, 0, 0, room)) for kept in (self.keys, self.values)
            )
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def keep(self, sentences: Tensor) -> None:
        """Drops the others."""
        self.keys = self.keys[:, :, : self.length].index_select(0, sentences)
        self.values = self.values[:, :, : self.length].index_select(0, sentences)


class PackedNetwork:
    """A model's weights, packed, and what a search does with them.

    Args:
        model: A model with an output projection.
        state: What differs once a weight of it has changed.
    """

    @torch.inference_mode()
    def __init__(self, model: Any, state: Any) -> None:
        self.state = state
        encoder, decoder, config = model.model.encoder, model.model.decoder, model.config
        self.encoder, self.decoder = encoder, decoder
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.encoder_layers: list[_EncoderLayer] = []  # packed when they are first needed
        self.decoder_layers = [_DecoderLayer(layer) for layer in decoder.layers]
        self.head = pack(model.lm_head, multiple=CHUNK)
        self.vocab_size = model.lm_head.out_features
        self._sinusoids = torch.empty(0)  # of as many positions as were needed so far

    def encode(self, input_ids: Tensor, mask: Tensor | None) -> list[KeysAndValues]:
        """Returns the source's keys and values for each layer of the decoder, (B, H, S, K) each.

        Args:
            input_ids: Shape (B, S).
            mask: Shape (B, S), 1 for tokens; None if all are tokens.
        """
        added = None if mask is None else added_mask(mask)[:, None, None]
        states = self._embed(self.encoder, input_ids, positions_of(input_ids, mask))
        self.encoder_layers = self.encoder_layers or [_EncoderLayer(layer) for layer in self.encoder.layers]
        for layer in self.encoder_layers:
            states = layer(states, added)
        if self.encoder.layer_norm is not None:
            states = _normalise(self.encoder.layer_norm, states)
        return [layer.cross_attention.remember(states) for layer in self.decoder_layers]

    def decode(self, input_ids: Tensor, position_ids: Tensor, cache: "SearchCache", mask: Tensor | None) -> Tensor:
        """Computes target tokens, and adds their keys and values to the cache.

        Args:
            input_ids: Shape (B, Q).
            position_ids: Their positions, shape (B, Q) or (1, Q).
            cache: That of the tokens before.
            mask: Added to attention scores, broadcasts to (B, H, Q, slots); None if each token sees all slots.

        Returns:
            The decoder's states, shape (B, Q, D).
        """
        states = self._embed(self.decoder, input_ids, position_ids)
        for layer, layer_cache, memory in zip(self.decoder_layers, cache.layers, cache.memories, strict=True):
            states = layer(states, layer_cache, mask, memory, cache.source_mask)
        if self.decoder.layer_norm is not None:
            states = _normalise(self.decoder.layer_norm, states)
        return states

    def _embed(self, stack: Any, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Returns the sums of embeddings and positions: sections 3.4 and 3.5."""
        tokens = nn.functional.embedding(input_ids, stack.embed_tokens.weight)
        return torch.add(self._positions(stack, position_ids), tokens, alpha=self.scale)

    def _positions(self, stack: Any, position_ids: Tensor) -> Tensor:
        """Returns the positions' vectors, (B, L) -> (B, L, D), where they are not learned from a table."""
        if isinstance(stack.embed_positions, nn.Embedding):
            learned: Tensor = stack.embed_positions(position_ids)
            return learned
        needed = int(position_ids.max()) + 1
        if len(self._sinusoids) < needed:
            self._sinusoids = stack.embed_positions(torch.arange(max(256, 2 * needed))).to(torch.float32)
        return nn.functional.embedding(position_ids, self._sinusoids)


class SearchCache:
    """What a search keeps of a batch, and one step of it.

    The beams of a sentence share the slots of its cache: each step fills a slot for each beam, and a mask shows each
    beam the slots of its own past. So beams change places without a copy of keys and values.

    Args:
        network: The packed network.
        memories: What `network.encode` returned.
        source_mask: Shape (B, S), 1 for tokens; None if all are tokens.
    """

    def __init__(self, network: PackedNetwork, memories: Sequence[KeysAndValues], source_mask: Tensor | None) -> None:
        self.network = network
        self.memories = list(memories)
        self.source_mask = None if source_mask is None else added_mask(source_mask)[:, None, None]
        self.layers = [_LayerCache() for _ in memories]
        self.prompt_mask: Tensor | None = None  # (B, P), added to attention scores
        self.next_positions: Tensor = torch.empty(0)  # (B, 1) or (1, 1)
        self.slots: Tensor = torch.empty(0)  # of the past of each beam after the prompt, (B, Q, steps)

    def start(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Computes a prompt and returns the logits after it.

        Args:
            input_ids: Shape (B, P).
            mask: Shape (B, P), 1 for tokens and 0 for padding on the left; None if all are tokens.

        Returns:
            Logits, shape (B, 1, V rounded up to a multiple of CHUNK).
        """
        num_rows, length = input_ids.shape
        causal = None
        if length > 1:
            causal = added_mask(torch.ones(length, length).tril())[None, None]
        if mask is not None:
            self.prompt_mask = added_mask(mask)
            causal = causal + self.prompt_mask[:, None, None] if causal is not None else None
            causal = None if causal is None else causal.clamp(min=_LOWEST)
        position_ids = positions_of(input_ids, mask)
        states = self.network.decode(input_ids, position_ids, self, causal)
        self.next_positions = position_ids[:, -1:] + 1
        self.slots = input_ids.new_empty(num_rows, 1, 0)
        return self.network.head(states[:, -1:])

    def step(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        """Computes one token of each hypothesis and returns the logits after it.

        Args:
            tokens: Shape (B, Q).
            parents: Which hypothesis of the last step each goes on from, shape (B, Q); None where there is one only.

        Returns:
            Logits, shape (B, Q, V rounded up to a multiple of CHUNK).
        """
        mask = None
        if parents is not None:
            mask = self._branch(parents)[:, None]
        elif self.prompt_mask is not None:
            mask = nn.functional.pad(self.prompt_mask, (0, self.layers[0].length + 1 - self.prompt_mask.shape[1]))
            mask = mask[:, None, None]
        states = self.network.decode(tokens, self.next_positions, self, mask)
        self.next_positions = self.next_positions + 1
        return self.network.head(states)

    @classmethod
    def after_prompt(
        cls, network: PackedNetwork, cache: Any, source_mask: Tensor | None, prompt_mask: Tensor | None
    ) -> "SearchCache":
        """Returns what a search keeps after a prompt that the model itself has computed.

        Args:
            network: The packed network.
            cache: What the model returned. The beams of a sentence, neighbours in it, have the same prompt.
            source_mask: Shape (B, S), 1 for tokens; None if all are tokens.
            prompt_mask: Shape (B times beams, P), 1 for tokens; None if all are tokens.
        """
        memories = [(layer.keys, layer.values) for layer in cache.cross_attention_cache.layers]
        own = cls(network, memories, None if source_mask is None or source_mask.all() else source_mask)
        firsts = slice(None, None, cache.self_attention_cache.layers[0].keys.shape[0] // memories[0][0].shape[0])
        for layer_cache, layer in zip(own.layers, cache.self_attention_cache.layers, strict=True):
            layer_cache.add(layer.keys[firsts], layer.values[firsts])
        own.next_positions = torch.tensor([[own.layers[0].length]])
        if prompt_mask is not None and not prompt_mask.all():
            own.prompt_mask = added_mask(prompt_mask[firsts])
            own.next_positions = prompt_mask[firsts].long().sum(dim=-1, keepdim=True)
        own.slots = own.next_positions.new_empty(memories[0][0].shape[0], 1, 0)
        return own

    def _branch(self, parents: Tensor) -> Tensor:
        """Gives each hypothesis a slot beside those of its parent, and returns its mask, (B, Q, slots)."""
        (num_rows, num_beams), length = parents.shape, self.layers[0].length
        past = self.slots.gather(1, parents[..., None].expand(-1, -1, self.slots.shape[2]))
        own = torch.arange(length, length + num_beams).expand(num_rows, -1)[..., None]
        self.slots = torch.cat((past, own), dim=-1)
        mask = torch.full((num_rows, num_beams, length + num_beams), _LOWEST)
        num_prompt = length - num_beams * (self.slots.shape[2] - 1)
        mask[..., :num_prompt] = 0.0 if self.prompt_mask is None else self.prompt_mask[:, None]
        return mask.scatter_(2, self.slots, 0.0)

    def keep(self, sentences: Tensor) -> None:
        """Drops the other sentences; `sentences` are numbers of those that stay."""
        self.memories = [
            (keys.index_select(0, sentences), values.index_select(0, sentences)) for keys, values in self.memories
        ]
        for layer in self.layers:
            layer.keep(sentences)
        if self.source_mask is not None:
            self.source_mask = self.source_mask.index_select(0, sentences)
        if self.prompt_mask is not None:
            self.prompt_mask = self.prompt_mask.index_select(0, sentences)
            self.next_positions = self.next_positions.index_select(0, sentences)
        self.slots = self.slots.index_select(0, sentences)


def added_mask(mask: Tensor) -> Tensor:
    """Returns what is added to attention scores: 0 where the mask is 1, and the lowest number elsewhere."""
    return torch.zeros(mask.shape).masked_fill_(mask == 0, _LOWEST)


def positions_of(input_ids: Tensor, mask: Tensor | None) -> Tensor:
    """Counts tokens from 0: (B, L), or (1, L) where all are tokens."""
    if mask is None:
        return torch.arange(input_ids.shape[1])[None]
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)
