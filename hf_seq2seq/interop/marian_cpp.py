"""Turns models that Marian C++ trained (.npz) into ours, and writes ours for it, with the same log-probabilities.

The networks differ in two things. Marian's decoder starts from zeros, not from a start token: an imported model has
the token `<pad>` for both, with an embedding of zeros. And the frequencies of Marian's sinusoids are not quite the
paper's, so that an imported model has them in its table of learned positions. (Marian has
a fixed `layer_norm_eps` too, 1e-6 or, in its new layout, our 1e-5.)

Shapes: D d_model, V vocabulary, N number of positions.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike, new_folder
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.generation_seq2seq_transformer import PAPER_SEARCH
from hf_seq2seq.model.modeling_seq2seq_transformer import (
    Seq2SeqTransformerAttention,
    Seq2SeqTransformerForConditionalGeneration,
)
from hf_seq2seq.output_limits import end_ids

from .checks import check_model
from .marian import widened
from .marian_cpp_folder import ACTIVATIONS, OPTIONS_NAME, Arrays, MarianFolder, faults, is_pre_norm, read_folder
from .marian_cpp_names import CLASSIC, NEW, position_name, weight_names
from .marian_cpp_vocabularies import END, UNKNOWN, make_tokenizer, read_vocabulary, write_vocabularies
from .stock_models import Weights, refusal, weight_faults


# Rows of the table in which an imported model has Marian's sinusoids, and of the one in which Marian gets ours.
_NUM_POSITIONS = 1024
_NUM_EXPORTED_POSITIONS = 2048

# The logit of a token that Marian does not have. Its probability is 0 in float32, and it is a number in float16.
_NEVER = -100.0

# What Marian adds to a variance: layerNorm of src/layers/generic.h, and Norm of src/layers_new/neuralnet.h.
_EPSILON = {CLASSIC: 1e-6, NEW: 1e-5}

_STACKS = ("encoder", "decoder")
_OUTPUT = "decoder_ff_logit_out"


def from_marian_cpp(folder: PathLike) -> Seq2SeqTransformerForConditionalGeneration:
    """Loads a Transformer that Marian C++ trained as ours, with the same log-probabilities.

    Beam size and length penalty are those of its decoder.yml. Positions are a table, of 1,024 rows where Marian has
    sinusoids, so that texts cannot be longer.

    Args:
        folder: The folder with the .npz and its vocabularies, and decoder.yml, if that names them.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder, or a file is missing.
        ValueError: If a file is damaged, or the model cannot be represented; all reasons are named.
    """
    return import_folder(folder)[0]


def import_folder(
    folder: PathLike,
) -> tuple[Seq2SeqTransformerForConditionalGeneration, PreTrainedTokenizerBase | None]:
    """Loads a model as `from_marian_cpp` does, and its tokenizer or None."""
    files = read_folder(folder)
    problems = faults(files)
    if problems:
        raise refusal(folder, problems)
    ids = read_vocabulary(files.vocabularies[1]) if files.vocabularies else {END: 0, UNKNOWN: 1}
    try:
        model = _model(files, ids[END])
    except (StrictDataclassError, KeyError, ValueError) as error:
        raise refusal(folder, [_cause(error)]) from error
    _copy_settings(model, files.decoder, ids[UNKNOWN])
    return model.eval(), make_tokenizer(files.vocabularies, model.config.pad_token_id)


def to_marian_cpp(
    model: Seq2SeqTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: PathLike
) -> None:
    """Writes model.npz, its vocabularies and decoder.yml for Marian C++, with the same log-probabilities.

    A post-norm model that was imported from Marian, and not trained since, is written as Marian wrote it. Any other
    becomes one of Marian's type `transformer-new`, which Marian has since version 1.12, with tables of positions in
    which our start token's embedding is added to the decoder's first: an input or an output of more than 2,048 tokens,
    or than `max_position_embeddings` where our positions are learned, stops Marian.

    With a SentencePiece tokenizer Marian takes text. With any other it takes the tokens of a text, with spaces between
    them.

    Args:
        model: The model. It is not changed.
        tokenizer: Its tokenizer.
        folder: A new or empty folder.

    Raises:
        ValueError: If the folder is not empty, or Marian cannot represent the model; all reasons are named.
        TypeError: If the model is not one of this package.
    """
    check_model(model)
    problems = _problems_for_marian(model, tokenizer)
    if problems:
        raise ValueError(f"The model must be one that Marian C++ can represent, but: {'; '.join(problems)}.")
    layout = CLASSIC if _is_as_marian_wrote_it(model) else NEW
    sizes = _sizes(model, tokenizer) if layout == CLASSIC else _full_sizes(model.config)
    arrays: Any = _classic_arrays(model, sizes) if layout == CLASSIC else _new_arrays(model)
    options = _options(model.config, layout, sizes)
    arrays[OPTIONS_NAME] = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", np.int8)
    with new_folder(folder) as unfinished:
        np.savez(unfinished / "model.npz", **arrays)
        vocabularies = write_vocabularies(tokenizer, sizes, unfinished)
        settings = _decoder_settings(model, vocabularies)
        if layout == NEW:
            settings["max-length"] = len(arrays[position_name("decoder")])
            settings["mini-batch"] = settings["maxi-batch"] = 1  # Marian 1.12.42 reads padding wrongly in this layout
        (unfinished / "decoder.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def marian_sinusoids(num_positions: int, d_model: int) -> torch.Tensor:
    """Returns Marian's table of positions, all sines before all cosines, shape (N, D), computed in float32 as there.

    Source: SinusoidalPositionEmbeddings in src/tensors/cpu/tensor_operators.cpp of marian-dev. The D / 2 frequencies
    go from 1 to 1 / 10000, where the paper's last is a step higher.
    """
    half = d_model // 2
    step = np.float32(math.log(10000)) / np.float32(half - 1)
    frequencies = np.exp(np.arange(half, dtype=np.float32) * -step)
    angles = np.arange(num_positions, dtype=np.float32)[:, None] * frequencies
    return torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))


def _model(files: MarianFolder, end_id: int) -> Any:
    """Returns our model of Marian's weights.

    Raises:
        ValueError: If weights are left over or have another shape, which are all named, or are missing.
    """
    arrays, options = dict(files.arrays), files.options
    tables = _take_tables(arrays, options)
    source, target, output = (table.shape[0] for table in tables)
    pad_id = max(source, target)
    positions = _take_positions(arrays, options, files.layout)
    config = Seq2SeqTransformerConfig(
        vocab_size=pad_id + 1,
        d_model=options["dim-emb"],
        encoder_layers=options["enc-depth"],
        decoder_layers=options["dec-depth"],
        encoder_attention_heads=options["transformer-heads"],
        decoder_attention_heads=options["transformer-heads"],
        encoder_ffn_dim=options["transformer-dim-ffn"],
        decoder_ffn_dim=options.get("transformer-decoder-dim-ffn") or options["transformer-dim-ffn"],
        norm_position="pre" if is_pre_norm(options) else "post",
        activation_function=ACTIVATIONS[options["transformer-ffn-activation"]],
        attention_bias=True,
        lm_head_bias=True,
        layer_norm_eps=_EPSILON[files.layout],
        position_embedding_type="learned",
        max_position_embeddings=len(positions["encoder"]) if positions else _NUM_POSITIONS,
        scale_embedding=not positions,
        share_encoder_decoder_embeddings=tables[0] is tables[1],
        tie_word_embeddings=tables[1] is tables[2],
        pad_token_id=pad_id,
        bos_token_id=None,
        eos_token_id=end_id,
        decoder_start_token_id=pad_id,
    )
    model: Any = Seq2SeqTransformerForConditionalGeneration(config)
    weights = _take_layers(arrays, weight_names(config, files.layout))
    for stack in _STACKS:
        weights[f"model.{stack}.embed_positions.weight"] = (
            positions[stack] if positions else marian_sinusoids(_NUM_POSITIONS, config.d_model)
        )
    for name, table in zip(
        ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"), tables, strict=True
    ):
        weights[f"{name}.weight"] = _with_rows(table, pad_id + 1, 0.0)
    weights["lm_head.bias"] = _with_rows(arrays.pop(f"{_OUTPUT}_b", np.zeros((1, output)))[0], pad_id + 1, _NEVER)
    problems = weight_faults(sorted(arrays), "left over", "the options in the file")
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    problems += [
        f"`{name}` has the shape {tuple(tensor.shape)}, not {tuple(expected[name])}"
        for name, tensor in weights.items()
        if tensor.shape != expected[name]
    ]
    if problems:
        raise ValueError("; ".join(problems))
    model.load_state_dict(weights)
    return model


def _take_tables(arrays: Arrays, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Takes the tables of source, target and output, (V, D), out of the arrays; tables that are one are one object."""
    shared = arrays.pop("Wemb", None)
    source = arrays.pop("encoder_Wemb") if shared is None else shared
    target = arrays.pop("decoder_Wemb") if shared is None else shared
    if options.get("tied-embeddings") or options.get("tied-embeddings-all"):
        return source, target, target
    if f"{_OUTPUT}_W" in arrays:  # of Marian's first versions
        return source, target, arrays.pop(f"{_OUTPUT}_W").T
    return source, target, arrays.pop(f"{_OUTPUT}_Wt")


def _take_positions(arrays: Arrays, options: dict[str, Any], layout: str) -> Weights:
    """Takes the learned positions of both stacks, (N, D), out of the arrays, or returns none where they are sinusoids.

    The layout `transformer` reads no such option. Tables that it trained by another name are left over.
    """
    if layout == CLASSIC or not options.get("transformer-train-position-embeddings"):
        return {}
    return {stack: torch.from_numpy(arrays.pop(position_name(stack))).float() for stack in _STACKS}


def _take_layers(arrays: Arrays, names: dict[str, str]) -> Weights:
    """Takes the weights of all layers out of the arrays, under our names."""
    missing = [name for name in names.values() if name not in arrays]
    if missing:
        raise ValueError("; ".join(weight_faults(missing, "missing", "the options in the file")))
    weights = {}
    for ours, theirs in names.items():
        array = arrays.pop(theirs).astype(np.float32)
        # (in, out) -> (out, in); biases and norms may be rows: (1, D) -> (D,)
        weights[ours] = torch.from_numpy(array.T.copy() if _is_matrix(ours) else array.reshape(-1))
    return weights


def _is_matrix(name: str) -> bool:
    module, field = name.split(".")[-2:]
    return field == "weight" and "norm" not in module


def _with_rows(table: Any, num_rows: int, value: float) -> torch.Tensor:
    """Returns a table or a bias with further rows of one value."""
    known = torch.from_numpy(np.asarray(table, np.float32).copy())
    return torch.cat([known, known.new_full((num_rows - len(known), *known.shape[1:]), value)])


def _copy_settings(model: Any, decoder: dict[str, Any], unknown_id: int) -> None:
    """Gives a model the search that decoder.yml describes, and the tokens that Marian never writes."""
    settings = model.generation_config
    settings.suppress_tokens = sorted({*(settings.suppress_tokens or []), unknown_id})
    settings.max_length = min(512, model.config.max_position_embeddings + 1)
    if "beam-size" in decoder:
        settings.num_beams = int(decoder["beam-size"])
        settings.early_stopping = False
        settings.length_penalty = float(decoder.get("normalize") or 0.0)


def _cause(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the option or weight `{error.args[0]}` is missing"
    return str(error.__cause__ or error)


def _problems_for_marian(
    model: Seq2SeqTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase
) -> list[str]:
    """Returns a sentence for each part of model and tokenizer that Marian cannot represent."""
    config = model.config
    problems = []
    if _marian_activation(config.activation_function) is None:
        problems.append(f"`activation_function` is {config.activation_function!r}, none of relu, silu and gelu")
    heads = config.encoder_attention_heads
    if heads != config.decoder_attention_heads:
        problems.append(f"encoder and decoder have {heads} and {config.decoder_attention_heads} heads, not as many")
    if config.key_dim is not None and config.key_dim > config.d_model // heads:
        problems.append(f"`key_dim` is {config.key_dim}, more than the {config.d_model // heads} of a head's values")
    if config.decoder_start_token_id is None:
        problems.append("`decoder_start_token_id` is None")
    if end_ids(model.generation_config) != [tokenizer.eos_token_id]:
        problems.append(f"the end token is {model.generation_config.eos_token_id}, not the tokenizer's")
    problems += [
        f"the tokenizer's `{field}` is {getattr(tokenizer, field)!r}, not {token!r}"
        for field, token in (("eos_token", END), ("unk_token", UNKNOWN))
        if getattr(tokenizer, field) != token
    ]
    return problems


def _marian_activation(name: str) -> str | None:
    ours = {"swish": "silu"}.get(name, name)
    return next((theirs for theirs, function in ACTIVATIONS.items() if function == ours), None)


def _is_as_marian_wrote_it(model: Any) -> bool:
    """Returns True if the model is post-norm, starts from zeros, and has Marian's sinusoids as positions.

    With pre-norm Marian trains and scores the layout `CLASSIC` as it should be, but does not normalise the keys and
    values of earlier tokens when it translates: `LayerAttention` and `DecoderLayerSelfAttention` in its transformer.h.
    """
    config = model.config
    if config.norm_position == "pre":
        return False
    start = model.model.decoder.embed_tokens.weight[config.decoder_start_token_id]
    if config.position_embedding_type != "learned" or not config.scale_embedding or start.any():
        return False
    sinusoids = marian_sinusoids(config.max_position_embeddings, config.d_model)
    tables = [
        stack.embed_positions.weight.detach().float().cpu() for stack in (model.model.encoder, model.model.decoder)
    ]
    return all(torch.allclose(table, sinusoids, rtol=0, atol=1e-6) for table in tables)


def _full_sizes(config: Seq2SeqTransformerConfig) -> tuple[int, int]:
    return config.vocab_size, config.decoder_vocab_size or config.vocab_size


def _sizes(model: Any, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Returns the numbers of source and target tokens without the last ones that cannot occur, such as `<pad>`."""
    size = _full_sizes(model.config)[1]
    while size > 1 and model.lm_head.bias is not None and model.lm_head.bias[size - 1] <= _NEVER / 2:
        size -= 1
    if model.config.share_encoder_decoder_embeddings:
        return size, size
    pad_id = model.config.pad_token_id
    return 1 + max(number for number in tokenizer.get_vocab().values() if number != pad_id), size


def _layer_arrays(model: Any, layout: str) -> Arrays:
    """Returns the weights of all layers under Marian's names. Biases that we do not have are zeros."""
    weights = {name: tensor.detach().cpu().float() for name, tensor in model.state_dict().items()}
    for name, module in model.named_modules():
        if isinstance(module, Seq2SeqTransformerAttention):
            for projection in ("q", "k", "v", "out"):
                full_name = f"{name}.{projection}_proj"
                weights.setdefault(f"{full_name}.bias", torch.zeros(len(weights[f"{full_name}.weight"])))
            for projection in ("q", "k"):
                for field in ("weight", "bias"):
                    full_name = f"{name}.{projection}_proj.{field}"
                    weights[full_name] = widened(weights[full_name], module, projection == "q")
    arrays = {}
    for ours, theirs in weight_names(model.config, layout).items():
        array = weights[ours].numpy()
        vector = array[None] if layout == CLASSIC else array
        arrays[theirs] = np.ascontiguousarray(array.T) if _is_matrix(ours) else vector
    return arrays


def _table_arrays(model: Any, sizes: tuple[int, int], scale: float) -> Arrays:
    """Returns embeddings, times a scale, and the output projection under Marian's names."""
    config = model.config
    source, target = (
        scale * _numpy(stack.embed_tokens.weight)[:size]
        for stack, size in zip((model.model.encoder, model.model.decoder), sizes, strict=True)
    )
    is_shared = config.share_encoder_decoder_embeddings
    arrays = {"Wemb": source} if is_shared else {"encoder_Wemb": source, "decoder_Wemb": target}
    if not config.tie_word_embeddings:
        arrays[f"{_OUTPUT}_Wt"] = _numpy(model.lm_head.weight)[: sizes[1]]
    bias = model.lm_head.bias
    arrays[f"{_OUTPUT}_b"] = np.zeros((1, sizes[1]), np.float32) if bias is None else _numpy(bias)[None, : sizes[1]]
    return arrays


def _classic_arrays(model: Any, sizes: tuple[int, int]) -> Arrays:
    return _layer_arrays(model, CLASSIC) | _table_arrays(model, sizes, 1.0)


def _new_arrays(model: Any) -> Arrays:
    """Returns the weights for the layout `NEW`, which does not multiply embeddings where positions are learned.

    So the tables are multiplied here. Where one is the output projection too, the decoder's last norm is divided.
    """
    config = model.config
    scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    arrays = _layer_arrays(model, NEW) | _table_arrays(model, _full_sizes(config), scale)
    if config.tie_word_embeddings:
        last = (
            "layer_norm" if config.norm_position == "pre" else f"layers.{config.decoder_layers - 1}.final_layer_norm"
        )
        names = weight_names(config, NEW)
        for field in ("weight", "bias"):
            name = names[f"model.decoder.{last}.{field}"]
            arrays[name] = arrays[name] / np.float32(scale)
    for stack in _STACKS:
        arrays[position_name(stack)] = _position_table(getattr(model.model, stack))
    start = model.model.decoder.embed_tokens.weight[config.decoder_start_token_id]
    arrays[position_name("decoder")][0] += scale * _numpy(start)
    return arrays


def _position_table(stack: Any) -> Any:
    if stack.config.position_embedding_type == "learned":
        return _numpy(stack.embed_positions.weight).copy()
    return _numpy(stack.embed_positions(torch.arange(_NUM_EXPORTED_POSITIONS)[None])[0])


def _numpy(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().float().numpy()


def _options(config: Seq2SeqTransformerConfig, layout: str, sizes: tuple[int, int]) -> dict[str, Any]:
    """Returns Marian's options of a model."""
    is_pre = config.norm_position == "pre"
    is_shared, is_tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
    return {
        "type": layout,
        "dim-vocabs": list(sizes),
        "dim-emb": config.d_model,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "tied-embeddings": is_tied and not is_shared,
        "tied-embeddings-src": is_shared and not is_tied,
        "tied-embeddings-all": is_shared and is_tied,
        "transformer-heads": config.encoder_attention_heads,
        "transformer-dim-ffn": config.encoder_ffn_dim,
        "transformer-decoder-dim-ffn": config.decoder_ffn_dim,
        "transformer-ffn-depth": 2,
        "transformer-decoder-ffn-depth": 0,
        "transformer-ffn-activation": _marian_activation(config.activation_function),
        "transformer-preprocess": "n" if is_pre else "",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-top": "n" if is_pre else "",
        "transformer-train-position-embeddings": layout == NEW,
    }


def _decoder_settings(model: Any, vocabularies: list[str]) -> dict[str, Any]:
    """Returns what decoder.yml says: the files, and the search of the model's generation settings."""
    settings = {
        name: default
        if getattr(model.generation_config, name, None) is None
        else getattr(model.generation_config, name)
        for name, default in PAPER_SEARCH.items()
    }
    return {
        "relative-paths": True,
        "models": ["model.npz"],
        "vocabs": vocabularies,
        "beam-size": settings["num_beams"],
        "normalize": settings["length_penalty"],
        "word-penalty": 0,
        "mini-batch": 32,
        "maxi-batch": 100,
        "maxi-batch-sort": "src",
    }


def way_to_use(folder: PathLike) -> str:
    """Returns a sentence on how Marian takes what `to_marian_cpp` wrote."""
    takes_text = any(Path(folder).glob("*.spm")) and not any(Path(folder).glob("*vocab.yml"))
    command = f"`marian-decoder -c {Path(folder) / 'decoder.yml'}`"
    if takes_text:
        return f"Translate text with {command}."
    return f"Translate with {command}, whose input and output are tokens with spaces between them."
