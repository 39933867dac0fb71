"""Turns MarianMT models into ours, and ours into MarianMT's, with the same logits and generation settings.

The networks differ only in the order of the sinusoids: Marian's position vectors have all sines before all cosines,
in ours they alternate. No layer depends on the order of the d_model axis, so the same permutation of that axis in
every weight makes the two equal, exactly.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer, PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import (
    Seq2SeqTransformerAttention,
    Seq2SeqTransformerForConditionalGeneration,
    Seq2SeqTransformerSinusoidalPositions,
)

from .checks import check_model
from .marian_cpp_folder import is_marian_cpp
from .stock_models import (
    COMMON_FIELDS,
    Weights,
    copied_settings,
    import_stock_model,
    load_stock_tokenizer,
    local_folder,
)


# The modules in whose weight the columns are the d_model axis. In all others the rows and the bias are.
_READERS = {"embed_tokens", "q_proj", "k_proj", "v_proj", "fc1", "lm_head"}

_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


def from_marian(path_or_repo: PathLike) -> Seq2SeqTransformerForConditionalGeneration:
    """Loads a MarianMT model as ours, with the same logits and the same outputs of `generate()`.

    Position tables that are not Marian's sinusoids become learned positions. There are two differences. Layers are not
    dropped in training (`encoder_layerdrop`, `decoder_layerdrop`), which a warning says. And positions are counted
    from the first token, where MarianMT counts from the first column: padding on the left, which Marian's tokenizer
    never makes, gives other logits.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub, with safetensors files or pytorch_model.bin.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If it holds another kind of model, or one that cannot be represented; all reasons are named.
    """
    return import_stock_model(path_or_repo, MarianMTModel, _convert)


def load_marian_tokenizer(path_or_repo: PathLike) -> PreTrainedTokenizerBase | None:
    """Loads the tokenizer of a MarianMT model, which fits the imported model without a change.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.

    Returns:
        The tokenizer, or None if there are no tokenizer files.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If a file is missing or damaged, or sentencepiece is not installed.
    """
    folder = local_folder(path_or_repo)
    files = ["source.spm", "target.spm", "vocab.json"]
    has_two_vocabularies = _has_two_vocabularies(folder) and any((folder / name).exists() for name in files)
    if has_two_vocabularies:
        files += ["target_vocab.json", "tokenizer_config.json"]
    tokenizer: Any = load_stock_tokenizer(folder, MarianTokenizer, files)
    if has_two_vocabularies and not tokenizer.separate_vocabs:
        raise ValueError(
            f'`{folder / "tokenizer_config.json"}` must hold `"separate_vocabs": true`, since the target has a '
            "vocabulary of its own in target_vocab.json, but does not. Add it, or copy the file again."
        )
    return tokenizer  # type: ignore[no-any-return]


def _has_two_vocabularies(folder: Path) -> bool:
    """Returns True if any of a MarianMT model's files tells that source and target have a vocabulary each."""
    return (
        (folder / "target_vocab.json").exists()
        or _fields(folder / "tokenizer_config.json").get("separate_vocabs", False)
        or not _fields(folder / "config.json").get("share_encoder_decoder_embeddings", True)
    )


def _fields(path: Path) -> dict[str, Any]:
    """Returns the fields of a JSON file, or none if it is missing or damaged, which is told elsewhere."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def import_model(
    path_or_repo: PathLike,
) -> tuple[Seq2SeqTransformerForConditionalGeneration, PreTrainedTokenizerBase | None]:
    """Loads a MarianMT model, or one of Marian C++, as ours, and its tokenizer or None, for the verb `import`."""
    if is_marian_cpp(path_or_repo):
        from .marian_cpp import import_folder

        return import_folder(path_or_repo)
    return from_marian(path_or_repo), load_marian_tokenizer(path_or_repo)


def export_model(
    model: Seq2SeqTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: PathLike
) -> str:
    """Writes a model for Marian C++, for the verb `export`, and returns how to use it."""
    from .marian_cpp import to_marian_cpp, way_to_use

    to_marian_cpp(model, tokenizer, folder)
    return way_to_use(folder)


def to_marian(model: Seq2SeqTransformerForConditionalGeneration) -> MarianMTModel:
    """Returns a MarianMT model with the same logits and generation settings, and a copy of the weights.

    Missing biases become zeros. Queries and keys that are narrower than the values are padded with zeros. Our
    sinusoids have no limit; MarianMT's tables get as many rows as `max_position_embeddings`, or as the longest output
    that the generation settings allow.

    CTranslate2's own converter cannot read what a model of this package becomes, only what an imported one does: it
    takes the last token for the padding, which is the first one of our tokenizers, and starts an output from zeros in
    place of the start token's embedding. `to_ctranslate2` writes every model for CTranslate2.

    Args:
        model: The model. It is not changed.

    Returns:
        The MarianMT model, in evaluation mode, with weights of the same type on the same device.

    Raises:
        ValueError: If MarianMT cannot represent the model; all reasons are named.
        TypeError: If the model is not one of this package.
    """
    check_model(model)
    faults = _faults_for_marian(model.config)
    if getattr(model.generation_config, "gnmt_penalty", False):
        faults.append("`gnmt_penalty` is True (it divides by the length to the power of `length_penalty`)")
    if faults:
        raise ValueError(f"The model must be one that MarianMT can represent, but: {'; '.join(faults)}.")
    settings = copied_settings(model)
    marian: Any = MarianMTModel(_marian_config(model.config, settings))
    marian.to(device=model.device, dtype=model.dtype)
    weights = _marian_weights(model)
    with torch.no_grad():
        for name, tensor in marian.state_dict(keep_vars=True).items():
            if "embed_positions" not in name:
                tensor.copy_(weights[name])
    marian.generation_config = settings
    return marian.eval()  # type: ignore[no-any-return]


def _convert(marian: Any, weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Returns fields of our config, and our weights by name, for a MarianMT model and its weights."""
    config = marian.config
    bias = weights.pop("final_logits_bias", torch.zeros(1, 1))[0]
    if bias.any():
        weights["lm_head.bias"] = bias
    shared = weights.pop("model.shared.weight", None)
    if shared is not None:  # files of earlier versions may have one table for the two stacks
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
        # If they are not tied, training may have made the two tables different.
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
    """Returns True if a table, shape (L, D), holds Marian's sinusoids, rounded to its type. An odd D has none."""
    length, d_model = table.shape
    if d_model % 2:
        return False
    positions = Seq2SeqTransformerSinusoidalPositions(d_model)(torch.arange(length, device=table.device))
    expected = positions[:, _order(d_model).argsort()].to(table.dtype)
    return torch.allclose(table, expected, rtol=0, atol=torch.finfo(table.dtype).eps)


def _order(d_model: int) -> torch.Tensor:
    """Returns for each place in our vectors its place in Marian's: 0, D / 2, 1, D / 2 + 1, ..."""
    order: torch.Tensor = torch.arange(d_model).reshape(2, -1).T.flatten()
    return order


def _permuted(weights: Weights, order: torch.Tensor) -> Weights:
    """Returns the weights of either model, under our names, with the d_model axis in another order."""
    permuted = {}
    for name, tensor in weights.items():
        module, kind = name.split(".")[-2:]
        if module not in _READERS:
            permuted[name] = tensor[order]
        else:
            permuted[name] = tensor[:, order] if kind == "weight" else tensor
    return permuted


def _marian_config(config: Seq2SeqTransformerConfig, settings: GenerationConfig) -> MarianConfig:
    fields = {name: getattr(config, name) for name in COMMON_FIELDS}
    fields["max_position_embeddings"] = max(config.max_position_embeddings, settings.max_length or 0)
    return MarianConfig(
        vocab_size=config.vocab_size,
        decoder_vocab_size=config.decoder_vocab_size,
        share_encoder_decoder_embeddings=config.share_encoder_decoder_embeddings,
        tie_word_embeddings=config.tie_word_embeddings,
        forced_eos_token_id=settings.forced_eos_token_id,
        **fields,
    )


def _faults_for_marian(config: Seq2SeqTransformerConfig) -> list[str]:
    """Returns a sentence for each field of the config that MarianMT cannot represent."""
    faults = []
    if config.norm_position != "post":
        faults.append(f"`norm_position` is {config.norm_position!r}, not 'post'")
    if config.position_embedding_type != "sinusoidal":
        faults.append(f"`position_embedding_type` is {config.position_embedding_type!r}, not 'sinusoidal'")
    if config.layer_norm_eps != 1e-5:
        faults.append(f"`layer_norm_eps` is {config.layer_norm_eps}, not 1e-05")
    value_dim = config.d_model // max(config.encoder_attention_heads, config.decoder_attention_heads)
    if config.key_dim is not None and config.key_dim > value_dim:
        faults.append(f"`key_dim` is {config.key_dim}, more than the {value_dim} of a head's values")
    if config.decoder_start_token_id is None:
        faults.append("`decoder_start_token_id` is None")
    return faults


def _marian_weights(model: Seq2SeqTransformerForConditionalGeneration) -> Weights:
    """Returns the model's weights under Marian's names. Position tables are not among them."""
    weights = _permuted(model.state_dict(), _order(model.config.d_model).argsort())
    for name, module in model.named_modules():
        if isinstance(module, Seq2SeqTransformerAttention):
            for projection, is_query in (("q_proj", True), ("k_proj", False)):
                for kind in ("weight", "bias"):
                    full_name = f"{name}.{projection}.{kind}"
                    if full_name in weights:
                        weights[full_name] = widened(weights[full_name], module, is_query)
            if module.q_proj.bias is None:
                zeros = torch.zeros(model.config.d_model)
                weights |= {f"{name}.{projection}_proj.bias": zeros for projection in ("q", "k", "v", "out")}
    weights["model.shared.weight"] = weights["model.encoder.embed_tokens.weight"]
    weights["final_logits_bias"] = weights.pop("lm_head.bias", torch.zeros(model.config.decoder_vocab_size or 0))[None]
    return weights


def widened(projection: torch.Tensor, attention: Seq2SeqTransformerAttention, is_query: bool) -> torch.Tensor:
    """Pads the queries or keys of each head with zeros to the width of the values: (H * K, ...) -> (D, ...).

    Marian divides Q K^T by the square root of the values' width, and we by that of the keys' width. So the queries are
    multiplied by the ratio of the two.
    """
    heads: torch.Tensor = projection.unflatten(0, (-1, attention.key_dim))
    wide = heads.new_zeros(heads.shape[0], attention.value_dim, *heads.shape[2:])
    wide[:, : attention.key_dim] = heads
    scale = math.sqrt(attention.value_dim / attention.key_dim) if is_query else 1.0
    return wide.flatten(0, 1) * scale
