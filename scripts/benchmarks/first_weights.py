"""Draws a Transformer's first weights as other systems and papers do.

A scheme is a function that returns the standard deviation of a projection of a layer. Biases are 0. The embeddings
have a deviation of their own (`embedding_std`). d is `d_model`; the other letters are those of the papers.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration


@dataclass(frozen=True)
class Projection:
    """The place of a weight matrix in the model.

    Args:
        stack: "encoder" or "decoder".
        layer: The number of its layer, beginning with 1.
        kind: "q_proj", "k_proj", "v_proj", "out_proj", "fc1" or "fc2".
        fan_in: The width of its input.
        fan_out: The width of its output.
    """

    stack: str
    layer: int
    kind: str
    fan_in: int
    fan_out: int

    @property
    def glorot(self) -> float:
        """The deviation of Glorot and Bengio (2010), as in `xavier_uniform_`."""
        return math.sqrt(2 / (self.fan_in + self.fan_out))


# Returns the standard deviation of a projection.
Scheme = Callable[[Projection, Seq2SeqTransformerConfig], float]


def glorot(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns the deviation of Glorot and Bengio (2010), as tensor2tensor and Marian do."""
    return place.glorot


def glorot_fused(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns 1 / sqrt(2) of Glorot's for queries, keys and values, as if they were one matrix, and else Glorot's."""
    return place.glorot * (math.sqrt(0.5) if place.kind in ("q_proj", "k_proj", "v_proj") else 1.0)


def fairseq(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns the deviation of U(+-1 / sqrt(fan_in)), as in `nn.Linear`, for the feed-forward, else `glorot_fused`."""
    return (3 * place.fan_in) ** -0.5 if place.kind in ("fc1", "fc2") else glorot_fused(place, config)


def small_init(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns SmallInit's sqrt(2 / (d + 4d)) for attentions (Nguyen and Salazar 2019, arXiv 1910.05895)."""
    return place.glorot if place.kind in ("fc1", "fc2") else math.sqrt(2 / (5 * config.d_model))


def normal(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns 0.02, as BART and MarianMT do."""
    return 0.02


def deepnorm(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns Glorot's, times DeepNorm's beta (Wang et al. 2022) but for queries and keys. Residuals stay."""
    n, m = config.encoder_layers, config.decoder_layers
    beta = 0.87 * (n**4 * m) ** (-1 / 16) if place.stack == "encoder" else (12 * m) ** -0.25
    return place.glorot * (1.0 if place.kind in ("q_proj", "k_proj") else beta)


def depth_scaled(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns Glorot's deviation over the square root of the layer's number: DS-Init (Zhang et al. 2019)."""
    return place.glorot / math.sqrt(place.layer)


def t_fixup(place: Projection, config: Seq2SeqTransformerConfig) -> float:
    """Returns Glorot's, times T-Fixup's factor (Huang et al. 2020) but for queries and keys. Layer norms stay."""
    n, m = config.encoder_layers, config.decoder_layers
    factor = 0.67 * n**-0.25 if place.stack == "encoder" else (9 * m) ** -0.25
    return place.glorot * (1.0 if place.kind in ("q_proj", "k_proj") else factor)


SCHEMES: dict[str, Scheme] = {
    scheme.__name__: scheme
    for scheme in (glorot, glorot_fused, fairseq, small_init, normal, deepnorm, depth_scaled, t_fixup)
}


@torch.no_grad()
def draw_weights(model: Seq2SeqTransformerForConditionalGeneration, scheme: str, embedding_std: float | None) -> None:
    """Draws all projections and embeddings of a model again. Biases and layer norms stay.

    Args:
        model: The model, with tied embeddings.
        scheme: A name in SCHEMES. "normal" draws from normal distributions, the others from uniform ones.
        embedding_std: The deviation of the embeddings, whose distribution is normal. `None` means d_model^-0.5.
    """
    config = model.config
    for name, module in model.model.named_modules():
        if isinstance(module, nn.Linear):
            std = SCHEMES[scheme](_place(name, module), config)
            if scheme == "normal":
                module.weight.normal_(std=std)
            else:
                module.weight.uniform_(-std * math.sqrt(3), std * math.sqrt(3))
    for weight in {model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight}:
        weight.normal_(std=config.d_model**-0.5 if embedding_std is None else embedding_std)


def _place(name: str, module: nn.Linear) -> Projection:
    found = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)\.(?:\w+\.)?(\w+)", name)
    assert found is not None, name
    stack, layer, kind = found.groups()
    return Projection(stack, int(layer) + 1, kind, module.in_features, module.out_features)
