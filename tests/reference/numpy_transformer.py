"""The Transformer of Vaswani et al. (2017), "Attention Is All You Need", in NumPy and float64.

Written from the paper's equations, to be read beside them, and used as the answer key of the exactness tests. It
shares no code with the package, only names: those of the weights in the model's `state_dict()` and those of the
config's fields.

Notation used for array shapes:
    B batch, S source length, T target length, D d_model, V vocabulary,
    H heads, K key dim of a head, E value dim of a head (D / H)

Masks are boolean and True where a query may look at a key.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Weights = Mapping[str, Array]

IGNORED_LABEL = -100
LAYER_NORM_EPSILON = 1e-5


def transformer_logits(
    weights: Weights,
    config: Any,
    input_ids: ArrayLike,
    decoder_input_ids: ArrayLike,
    attention_mask: ArrayLike | None = None,
    decoder_attention_mask: ArrayLike | None = None,
) -> Array:
    """Scores of the next target token at each target position: the whole of figure 1 up to its softmax.

    Args:
        weights: the model's `state_dict()` as float64 arrays.
        config: any object with the fields of `Seq2SeqTransformerConfig`.
        input_ids: source ids, (B, S).
        decoder_input_ids: target ids, shifted right, (B, T).
        attention_mask: 1 at source tokens and 0 at padding, (B, S); None means all ones.
        decoder_attention_mask: the same for the target, (B, T).

    Returns:
        The logits, (B, T, V). Those at padded target positions mean nothing.
    """
    source, target = np.asarray(input_ids), np.asarray(decoder_input_ids)
    source_is_token = _as_mask(attention_mask, source)
    target_is_token = _as_mask(decoder_attention_mask, target)
    memory = encode(weights, config, source, source_is_token)
    states = decode(weights, config, target, target_is_token, memory, source_is_token)
    return _linear(weights, "lm_head", states)  # (B, T, D) -> (B, T, V)


def encode(weights: Weights, config: Any, input_ids: Ids, is_token: Mask) -> Array:
    """The encoder of section 3.1: (B, S) ids -> (B, S, D) states."""
    may_see = is_token[:, None, None, :]  # (B, S) -> (B, H, query, key)
    states = embed(weights, config, "model.encoder", input_ids, is_token)
    for index in range(config.encoder_layers):
        states = encoder_layer(weights, config, f"model.encoder.layers.{index}", states, may_see)
    return _final_norm(weights, config, "model.encoder", states)


def decode(
    weights: Weights, config: Any, input_ids: Ids, is_token: Mask, memory: Array, source_is_token: Mask
) -> Array:
    """The decoder of section 3.1: (B, T) ids and the encoder's (B, S, D) states -> (B, T, D) states."""
    length = input_ids.shape[1]
    not_later = np.tril(np.ones((length, length), dtype=bool))
    may_see_target = is_token[:, None, None, :] & not_later  # (B, T) -> (B, H, query, key)
    may_see_source = source_is_token[:, None, None, :]
    states = embed(weights, config, "model.decoder", input_ids, is_token)
    for index in range(config.decoder_layers):
        layer = f"model.decoder.layers.{index}"
        states = decoder_layer(weights, config, layer, states, memory, may_see_target, may_see_source)
    return _final_norm(weights, config, "model.decoder", states)


def encoder_layer(weights: Weights, config: Any, layer: str, states: Array, may_see: Mask) -> Array:
    """Section 3.1: self-attention, then a feed-forward network, each with a residual connection."""
    heads = config.encoder_attention_heads

    def self_attention(x: Array) -> Array:
        return multi_head_attention(weights, f"{layer}.self_attn", x, x, heads, may_see)

    def network(x: Array) -> Array:
        return feed_forward(weights, config, layer, x)

    states = _residual(weights, config, f"{layer}.self_attn_layer_norm", states, self_attention)
    return _residual(weights, config, f"{layer}.final_layer_norm", states, network)


def decoder_layer(
    weights: Weights,
    config: Any,
    layer: str,
    states: Array,
    memory: Array,
    may_see_target: Mask,
    may_see_source: Mask,
) -> Array:
    """Section 3.1: as in the encoder, with attention over the encoder's states between the two."""
    heads = config.decoder_attention_heads

    def self_attention(x: Array) -> Array:
        return multi_head_attention(weights, f"{layer}.self_attn", x, x, heads, may_see_target)

    def source_attention(x: Array) -> Array:
        return multi_head_attention(weights, f"{layer}.encoder_attn", x, memory, heads, may_see_source)

    def network(x: Array) -> Array:
        return feed_forward(weights, config, layer, x)

    states = _residual(weights, config, f"{layer}.self_attn_layer_norm", states, self_attention)
    states = _residual(weights, config, f"{layer}.encoder_attn_layer_norm", states, source_attention)
    return _residual(weights, config, f"{layer}.final_layer_norm", states, network)


def embed(weights: Weights, config: Any, prefix: str, input_ids: Ids, is_token: Mask) -> Array:
    """Sections 3.4 and 3.5: embeddings times sqrt(d_model), plus the encodings of the positions."""
    scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    tokens = weights[f"{prefix}.embed_tokens.weight"][input_ids] * scale
    # A token's position is the number of tokens before it: padding on the left takes no position.
    positions: Ids = np.cumsum(is_token, axis=1, dtype=np.int64) - is_token
    if config.position_embedding_type == "learned":
        return np.asarray(tokens + weights[f"{prefix}.embed_positions.weight"][positions])
    return np.asarray(tokens + sinusoids(positions, config.d_model))


def sinusoids(positions: NDArray[np.int64], d_model: int) -> Array:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / D)) and PE(pos, 2i + 1) = cos of the same angle."""
    encodings = np.empty((*positions.shape, d_model))
    for i in range(0, d_model, 2):
        angle = positions / 10000 ** (i / d_model)
        encodings[..., i] = np.sin(angle)
        encodings[..., i + 1] = np.cos(angle)
    return encodings


def multi_head_attention(
    weights: Weights, prefix: str, queries: Array, memory: Array, num_heads: int, may_see: Mask
) -> Array:
    """Section 3.2.2: Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i).

    Args:
        weights: all weights of the model.
        prefix: name of the attention block.
        queries: where the queries come from, (B, T, D).
        memory: where the keys and values come from, (B, S, D).
        num_heads: H.
        may_see: broadcastable to (B, H, T, S).

    Returns:
        (B, T, D)
    """

    def split(states: Array) -> Array:  # (B, L, H * K) -> (B, H, L, K)
        batch, length, width = states.shape
        return states.reshape(batch, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)

    q = split(_linear(weights, f"{prefix}.q_proj", queries))
    k = split(_linear(weights, f"{prefix}.k_proj", memory))
    v = split(_linear(weights, f"{prefix}.v_proj", memory))
    heads = scaled_dot_product_attention(q, k, v, may_see)  # (B, H, T, E)
    batch, _, length, _ = heads.shape
    return _linear(weights, f"{prefix}.out_proj", heads.transpose(0, 2, 1, 3).reshape(batch, length, -1))


def scaled_dot_product_attention(q: Array, k: Array, v: Array, may_see: Mask) -> Array:
    """Equation 1: softmax(Q K^T / sqrt(d_k)) V, over the keys a query may see; 0 where it may see none."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    unnormalised = np.exp(scores - scores.max(axis=-1, keepdims=True)) * may_see
    total = unnormalised.sum(axis=-1, keepdims=True)
    return np.asarray(unnormalised / np.where(total == 0, 1, total) @ v)


def feed_forward(weights: Weights, config: Any, layer: str, states: Array) -> Array:
    """Equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or with another activation than ReLU."""
    activation = ACTIVATIONS[config.activation_function]
    return _linear(weights, f"{layer}.fc2", activation(_linear(weights, f"{layer}.fc1", states)))


def layer_norm(weights: Weights, name: str, states: Array) -> Array:
    """Ba et al. (2016), "Layer Normalization", equation 4, with gain and bias."""
    mean = states.mean(axis=-1, keepdims=True)
    variance = states.var(axis=-1, keepdims=True)
    normalised = (states - mean) / np.sqrt(variance + LAYER_NORM_EPSILON)
    return np.asarray(normalised * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def label_smoothed_cross_entropy(
    logits: Array, labels: ArrayLike, smoothing: float = 0.0, num_items_in_batch: float | None = None
) -> float:
    """Section 5.4: cross-entropy with a target that gives `smoothing` of its mass to the uniform distribution.

    (1 - eps) * -log p(label) + eps * mean over the vocabulary of -log p, summed over the labels that are not -100 and
    divided by their number, or by `num_items_in_batch` where that is given. It is 0 where there are no labels.

    Args:
        logits: (B, T, V)
        labels: (B, T)
        smoothing: eps.
        num_items_in_batch: what the sum is divided by.
    """
    targets = np.asarray(labels)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    total, count = 0.0, 0
    for position in np.ndindex(targets.shape):
        if targets[position] == IGNORED_LABEL:
            continue
        nll = -log_probs[position][targets[position]]
        total += (1 - smoothing) * nll + smoothing * -log_probs[position].mean()
        count += 1
    divisor = num_items_in_batch if num_items_in_batch is not None else count
    return float(total / divisor) if count else 0.0


def _residual(weights: Weights, config: Any, norm: str, x: Array, sublayer: Callable[[Array], Array]) -> Array:
    """Section 3.1: LayerNorm(x + Sublayer(x)); with pre-norm (Xiong et al. 2020) x + Sublayer(LayerNorm(x))."""
    if config.norm_position == "pre":
        return x + sublayer(layer_norm(weights, norm, x))
    return layer_norm(weights, norm, x + sublayer(x))


def _final_norm(weights: Weights, config: Any, stack: str, states: Array) -> Array:
    """Pre-norm leaves the sum of all sub-layers unnormalised, so the stack ends in a norm of its own."""
    return layer_norm(weights, f"{stack}.layer_norm", states) if config.norm_position == "pre" else states


def _linear(weights: Weights, name: str, states: Array) -> Array:
    product = states @ weights[f"{name}.weight"].T
    return np.asarray(product + weights[f"{name}.bias"]) if f"{name}.bias" in weights else product


def _as_mask(mask: ArrayLike | None, ids: NDArray[np.int64]) -> Mask:
    return np.ones(ids.shape, dtype=bool) if mask is None else np.asarray(mask).astype(bool)


def _gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf)
    return np.asarray(x * 0.5 * (1 + erf(x / math.sqrt(2))))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(0, x),
    "gelu": _gelu,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
