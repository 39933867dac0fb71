"""MarianMT models become ours, and ours MarianMT, with the same logits and the same generation settings.

The networks are the same but for the order of the sinusoids: Marian's vectors have all sines before all cosines, ours
alternate. Every layer treats the places of a vector alike, so a permutation of the d_model axis of every weight that
has one makes up for it, exactly.
"""

import math
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer, PreTrainedTokenizerBase

from hf_seq2seq.loading import PathLike
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import (
    Seq2SeqTransformerAttention,
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerSinusoidalPositions,
)

from .checks import check_model
from .stock_models import COMMON_FIELDS, Weights, copied_settings, import_stock_model, load_stock_tokenizer


# The modules whose weight has d_model as its columns; every other one has it as its rows, and its bias as well.
_READERS = {"embed_tokens", "q_proj", "k_proj", "v_proj", "fc1", "lm_head"}

_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


def from_marian(path_or_repo: PathLike) -> Seq2SeqTransformerForConditionalGeneration:
    """Load a MarianMT model as ours; its logits are the same, and what it generates too.

    Where a checkpoint has position tables other than Marian's sinusoids, they are taken over as learned positions.
    Dropping whole layers (`encoder_layerdrop`, `decoder_layerdrop`), which acts in training alone, is left out with a
    warning. Positions are counted from the first token, and by MarianMT from the first column: padding on the left,
    which Marian's tokenizer never makes, gives other logits.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub, with safetensors files or pytorch_model.bin.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository, **or**
        ValueError: If it holds another kind of model, or one that cannot be represented; all reasons are named.
    """
    return import_stock_model(path_or_repo, MarianMTModel, _convert)


def load_marian_tokenizer(path_or_repo: PathLike) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer of a MarianMT model.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.

    Returns:
        The tokenizer, which works with the imported model as it is, or None where there are no files of one.

    Raises:
        OSError: If there is no such folder or repository, **or**
        ValueError: If a file is missing or damaged, or sentencepiece is not installed.
    """
    return load_stock_tokenizer(path_or_repo, MarianTokenizer, ("source.spm", "target.spm", "vocab.json"))


def import_model(
    path_or_repo: PathLike,
) -> tuple[Seq2SeqTransformerForConditionalGeneration, PreTrainedTokenizerBase | None]:
    """Loads a MarianMT model as ours, and its tokenizer or None, for the verb `import`."""
    return from_marian(path_or_repo), load_marian_tokenizer(path_or_repo)


def to_marian(model: Seq2SeqTransformerForConditionalGeneration) -> MarianMTModel:
    """Return a MarianMT model with the same logits and generation settings, and with weights of its own.

    Missing biases become zeros, and queries and keys narrower than the values are filled up with zeros. Where our
    sinusoids have no end, MarianMT's tables have as many rows as `max_position_embeddings` and the longest output that
    the generation settings allow.

    Args:
        model: The model; it is not changed.

    Returns:
        The MarianMT model, in evaluation mode, with weights of the same type on the same device.

    Raises:
        ValueError: If MarianMT cannot represent the model; all reasons are named, **or**
        TypeError: If the model is of another kind.
    """
    check_model(model)
    faults = _faults_for_marian(model.config)
    if faults:
        raise ValueError(f"The model must be one that MarianMT can represent, but: {'; '.join(faults)}.")
    config = model.config
    settings = copied_settings(model)
    fields = {name: getattr(config, name) for name in COMMON_FIELDS}
    fields["max_position_embeddings"] = max(config.max_position_embeddings, settings.max_length or 0)
    marian: Any = MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size,
            decoder_vocab_size=config.decoder_vocab_size,
            share_encoder_decoder_embeddings=config.share_encoder_decoder_embeddings,
            tie_word_embeddings=config.tie_word_embeddings,
            forced_eos_token_id=settings.forced_eos_token_id,
            **fields,
        )
    )
    marian.to(device=model.device, dtype=model.dtype)
    weights = _marian_weights(model)
    with torch.no_grad():
        for name, tensor in marian.state_dict(keep_vars=True).items():
            if "embed_positions" not in name:
                tensor.copy_(weights[name])
    marian.generation_config = settings
    return marian.eval()  # type: ignore[no-any-return]


def _convert(marian: Any, weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Return what Marian's config and weights are in ours."""
    config = marian.config
    bias = weights.pop("final_logits_bias", torch.zeros(1, 1))[0]
    if bias.any():
        weights["lm_head.bias"] = bias
    shared = weights.pop("model.shared.weight", None)
    if shared is not None:  # where nothing is tied, files of earlier versions hold the shared table alone
        weights = dict.fromkeys(_EMBEDDINGS, shared) | weights
    weights = {name: tensor for name, tensor in weights.items() if "embed_positions" not in name}
    tables = {stack: getattr(marian.model, stack).embed_positions.weight for stack in ("encoder", "decoder")}
    is_sinusoidal = all(map(_is_sinusoidal, tables.values()))
    if is_sinusoidal:
        weights = _permuted(weights, _order(config.d_model))
    else:
        weights |= {f"model.{stack}.embed_positions.weight": table for stack, table in tables.items()}
    source_table, target_table = map(weights.get, _EMBEDDINGS)
    fields = {
        "vocab_size": marian.model.encoder.embed_tokens.weight.shape[0],
        "decoder_vocab_size": marian.model.decoder.embed_tokens.weight.shape[0],
        # Where they are not tied, training has set them apart.
        "share_encoder_decoder_embeddings": config.share_encoder_decoder_embeddings
        and source_table is not None
        and target_table is not None
        and torch.equal(source_table, target_table),
        "tie_word_embeddings": marian.lm_head.weight is marian.model.decoder.embed_tokens.weight,
        "attention_bias": True,
        "lm_head_bias": bool(bias.any()),
        "position_embedding_type": "sinusoidal" if is_sinusoidal else "learned",
    }
    return fields, weights


def _is_sinusoidal(table: torch.Tensor) -> bool:
    """Tell whether a table of shape (L, D) holds Marian's sinusoids, rounded to its type; an odd D has no pairs."""
    length, d_model = table.shape
    if d_model % 2:
        return False
    positions = Seq2SeqTransformerSinusoidalPositions(d_model)(torch.arange(length, device=table.device))
    expected = positions[:, _order(d_model).argsort()].to(table.dtype)
    return torch.allclose(table, expected, rtol=0, atol=torch.finfo(table.dtype).eps)


def _order(d_model: int) -> torch.Tensor:
    """Return for each place of our vectors its place in Marian's: 0, D / 2, 1, D / 2 + 1, ..."""
    order: torch.Tensor = torch.arange(d_model).reshape(2, -1).T.flatten()
    return order


def _permuted(weights: Weights, order: torch.Tensor) -> Weights:
    """Reorder the d_model axis of every weight of either model, under our names."""
    permuted = {}
    for name, tensor in weights.items():
        module, kind = name.split(".")[-2:]
        if module not in _READERS:
            permuted[name] = tensor[order]
        else:
            permuted[name] = tensor[:, order] if kind == "weight" else tensor
    return permuted


def _faults_for_marian(config: Seq2SeqTransformerConfig) -> list[str]:
    faults = []
    if config.norm_position != "post":
        faults.append(f"`norm_position` is {config.norm_position!r}, not 'post'")
    if config.position_embedding_type != "sinusoidal":
        faults.append(f"`position_embedding_type` is {config.position_embedding_type!r}, not 'sinusoidal'")
    value_dim = config.d_model // max(config.encoder_attention_heads, config.decoder_attention_heads)
    if config.key_dim is not None and config.key_dim > value_dim:
        faults.append(f"`key_dim` is {config.key_dim}, more than the {value_dim} of a head's values")
    if config.decoder_start_token_id is None:
        faults.append("`decoder_start_token_id` is None")
    return faults


def _marian_weights(model: Seq2SeqTransformerForConditionalGeneration) -> Weights:
    """Return the model's weights under Marian's names, all that Marian has but its position tables."""
    weights = _permuted(model.state_dict(), _order(model.config.d_model).argsort())
    for name, module in model.named_modules():
        if isinstance(module, Seq2SeqTransformerAttention):
            for projection, is_query in (("q_proj", True), ("k_proj", False)):
                for kind in ("weight", "bias"):
                    full_name = f"{name}.{projection}.{kind}"
                    if full_name in weights:
                        weights[full_name] = _widened(weights[full_name], module, is_query)
            if module.q_proj.bias is None:
                zeros = torch.zeros(model.config.d_model)
                weights |= {f"{name}.{projection}_proj.bias": zeros for projection in ("q", "k", "v", "out")}
    weights["model.shared.weight"] = weights["model.encoder.embed_tokens.weight"]
    weights["final_logits_bias"] = weights.pop("lm_head.bias", torch.zeros(model.config.decoder_vocab_size or 0))[None]
    return weights


def _widened(projection: torch.Tensor, attention: Seq2SeqTransformerAttention, is_query: bool) -> torch.Tensor:
    """Fill each head's keys up with zeros to the values' width: (H * K, ...) -> (D, ...).

    Marian divides scores by the root of the values' width, so queries are multiplied by its ratio to that of the keys.
    """
    heads: torch.Tensor = projection.unflatten(0, (-1, attention.key_dim))
    wide = heads.new_zeros(heads.shape[0], attention.value_dim, *heads.shape[2:])
    wide[:, : attention.key_dim] = heads
    scale = math.sqrt(attention.value_dim / attention.key_dim) if is_query else 1.0
    return wide.flatten(0, 1) * scale
