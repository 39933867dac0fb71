"""Marian C++'s Transformer in NumPy, written after its source (src/models/transformer.h), with its names of weights.

Shapes: S source length, T target length, D width, H heads.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np


Array = np.ndarray[Any, Any]


def random_marian(seed: int = 0, **options: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """The weights, all random, and the options of a small model."""
    settings: dict[str, Any] = {
        "type": "transformer",
        "dim-vocabs": [11, 11],
        "dim-emb": 8,
        "enc-depth": 2,
        "dec-depth": 1,
        "tied-embeddings": False,
        "tied-embeddings-src": False,
        "tied-embeddings-all": True,
        "transformer-heads": 2,
        "transformer-dim-ffn": 12,
        "transformer-decoder-dim-ffn": 0,
        "transformer-ffn-activation": "relu",
        "transformer-preprocess": "",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess": "dan",
        "transformer-postprocess-top": "",
    } | options
    width, random = settings["dim-emb"], np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"decoder_ff_logit_out_b": (1, settings["dim-vocabs"][1])}
    if settings["tied-embeddings-all"] or settings["tied-embeddings-src"]:
        shapes["Wemb"] = (settings["dim-vocabs"][0], width)
    else:
        for stack, size in zip(("encoder", "decoder"), settings["dim-vocabs"], strict=True):
            shapes[f"{stack}_Wemb"] = (size, width)
    if not (settings["tied-embeddings-all"] or settings["tied-embeddings"]):
        shapes["decoder_ff_logit_out_Wt"] = (settings["dim-vocabs"][1], width)
    suffix = "_pre" if "n" in settings["transformer-preprocess"] else ""
    for stack, depth in (("encoder", settings["enc-depth"]), ("decoder", settings["dec-depth"])):
        inner = settings["transformer-dim-ffn"]
        if stack == "decoder":
            inner = settings["transformer-decoder-dim-ffn"] or inner
        for layer in range(1, depth + 1):
            for block in ("self", "context")[: 1 if stack == "encoder" else 2]:
                prefix = f"{stack}_l{layer}_{block}"
                shapes |= {f"{prefix}_W{letter}": (width, width) for letter in "qkvo"}
                shapes |= {f"{prefix}_b{letter}": (1, width) for letter in "qkvo"}
                shapes |= {f"{prefix}_Wo_ln_{field}{suffix}": (1, width) for field in ("scale", "bias")}
            prefix = f"{stack}_l{layer}_ffn"
            shapes |= {f"{prefix}_W1": (width, inner), f"{prefix}_W2": (inner, width)}
            shapes |= {f"{prefix}_b1": (1, inner), f"{prefix}_b2": (1, width)}
            shapes |= {f"{prefix}_ffn_ln_{field}{suffix}": (1, width) for field in ("scale", "bias")}
        if settings["transformer-postprocess-top"]:
            shapes |= {f"{stack}_top_ln_{field}": (1, width) for field in ("scale", "bias")}
    arrays = {name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
    for name in arrays:
        if "ln_scale" in name:
            arrays[name] += 1
    return arrays, settings


def save_marian(folder: Path, arrays: dict[str, Array], options: dict[str, Any], name: str = "model.npz") -> Path:
    """Write a model as Marian does; JSON is YAML too."""
    folder.mkdir(exist_ok=True)
    text = np.frombuffer(json.dumps(options).encode() + b"\0\0\0", np.int8)
    weights: Any = dict(arrays)
    weights["special:model.yml"] = text
    np.savez(folder / name, **weights)
    return folder


def log_probabilities(
    arrays: dict[str, Array], options: dict[str, Any], source: list[int], target: list[int]
) -> Array:
    """The log-probabilities of every token at each place of a target, shape (T, V)."""
    model = _Marian(arrays, options)
    return model.run(source, target)


class _Marian:
    def __init__(self, arrays: dict[str, Array], options: dict[str, Any]) -> None:
        self.arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        self.options = options

    def run(self, source: list[int], target: list[int]) -> Array:
        arrays, options = self.arrays, self.options
        tables = [arrays.get("Wemb", arrays.get(f"{stack}_Wemb")) for stack in ("encoder", "decoder")]
        assert tables[0] is not None
        assert tables[1] is not None
        states = self.embed(tables[0][source])
        for layer in range(1, options["enc-depth"] + 1):
            states = self.attend(f"encoder_l{layer}_self", states, None, np.zeros((1, 1)))
            states = self.feed_forward(f"encoder_l{layer}_ffn", states)
        states = self.top("encoder", states)
        shifted = np.concatenate([np.zeros((1, options["dim-emb"])), tables[1][target[:-1]]])  # starts from zeros
        outputs, length = self.embed(shifted), len(target)
        causal = np.where(np.tri(length) > 0, 0, -1e9)
        for layer in range(1, options["dec-depth"] + 1):
            outputs = self.attend(f"decoder_l{layer}_self", outputs, None, causal)
            outputs = self.attend(f"decoder_l{layer}_context", outputs, states, np.zeros((1, 1)))
            outputs = self.feed_forward(f"decoder_l{layer}_ffn", outputs)
        outputs = self.top("decoder", outputs)
        is_tied = options["tied-embeddings-all"] or options["tied-embeddings"]
        projection = tables[1] if is_tied else arrays["decoder_ff_logit_out_Wt"]
        logits: Array = outputs @ projection.T + arrays["decoder_ff_logit_out_b"]
        logits -= logits.max(-1, keepdims=True)
        result: Array = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return result

    def embed(self, vectors: Array) -> Array:
        """sqrt(D) E + P, where the angle of P's i-th pair at a place p is p 10000^(-i / (D / 2 - 1))."""
        length, width = vectors.shape
        positions = np.zeros_like(vectors)
        for place in range(length):
            for i in range(width // 2):
                angle = place * math.exp(-i * math.log(10000) / (width / 2 - 1))
                positions[place, i], positions[place, width // 2 + i] = math.sin(angle), math.cos(angle)
        result: Array = math.sqrt(width) * vectors + positions
        return result

    def attend(self, prefix: str, states: Array, context: Array | None, mask: Array) -> Array:
        weights, heads = self.arrays, self.options["transformer-heads"]
        inputs = self.before(f"{prefix}_Wo", states)
        context = inputs if context is None else context
        queries, keys, values = (
            (side @ weights[f"{prefix}_W{letter}"] + weights[f"{prefix}_b{letter}"])
            .reshape(len(side), heads, -1)
            .transpose(1, 0, 2)
            for letter, side in (("q", inputs), ("k", context), ("v", context))
        )
        scores = queries @ keys.transpose(0, 2, 1) / math.sqrt(queries.shape[-1]) + mask
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        output = (shares @ values).transpose(1, 0, 2).reshape(states.shape)
        output = output @ weights[f"{prefix}_Wo"] + weights[f"{prefix}_bo"]
        return self.after(f"{prefix}_Wo", output, states)

    def feed_forward(self, prefix: str, states: Array) -> Array:
        weights = self.arrays
        inner = self.before(f"{prefix}_ffn", states) @ weights[f"{prefix}_W1"] + weights[f"{prefix}_b1"]
        activation = {
            "relu": lambda x: np.maximum(x, 0),
            "swish": lambda x: x / (1 + np.exp(-x)),
            "gelu": lambda x: x * np.vectorize(lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2))))(x),
        }[self.options["transformer-ffn-activation"]]
        output = activation(inner) @ weights[f"{prefix}_W2"] + weights[f"{prefix}_b2"]
        return self.after(f"{prefix}_ffn", output, states)

    def before(self, name: str, states: Array) -> Array:
        return self.norm(name, states, "_pre") if "n" in self.options["transformer-preprocess"] else states

    def after(self, name: str, output: Array, states: Array) -> Array:
        total = output + states
        return self.norm(name, total) if "n" in self.options["transformer-postprocess"] else total

    def top(self, stack: str, states: Array) -> Array:
        return self.norm(f"{stack}_top", states) if self.options["transformer-postprocess-top"] else states

    def norm(self, name: str, states: Array, suffix: str = "") -> Array:
        centred = states - states.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        result: Array = normed * self.arrays[f"{name}_ln_scale{suffix}"] + self.arrays[f"{name}_ln_bias{suffix}"]
        return result
