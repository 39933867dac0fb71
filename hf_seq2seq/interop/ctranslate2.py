"""Writes a model for CTranslate2, a C++ engine that translates on CPUs and GPUs without torch.

Shapes: D d_model, H heads, K width of a head's keys, P padded width of a head, V vocabulary.
"""

import math
import os
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import new_folder
from hf_seq2seq.model.generation_seq2seq_transformer import without_unused_settings
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.output_limits import end_ids
from hf_seq2seq.token_lookup import vocabulary

from .checks import check_model


try:
    from ctranslate2.converters import Converter
    from ctranslate2.converters.utils import fuse_linear
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation, LinearSpec
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
except ImportError as error:
    raise ImportError(
        "`to_ctranslate2` needs the package ctranslate2, which is not installed. Run "
        "`pip install 'hf-seq2seq[export]'`."
    ) from error


# CTranslate2's name for each activation function of transformers' ACT2FN that it has.
ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_accurate": Activation.GELUTanh,
    "gelu_fast": Activation.GELUTanh,
    "gelu_new": Activation.GELUTanh,
    "gelu_python": Activation.GELU,
    "gelu_python_tanh": Activation.GELUTanh,
    "gelu_pytorch_tanh": Activation.GELUTanh,
    "quick_gelu": Activation.GELUSigmoid,
    "relu": Activation.RELU,
    "sigmoid": Activation.Sigmoid,
    "silu": Activation.SWISH,
    "swish": Activation.SWISH,
    "tanh": Activation.Tanh,
}

# Settings of `generate()` that change its output, and that CTranslate2 does not have.
_UNKNOWN_SETTINGS = (
    "begin_suppress_tokens",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "gnmt_penalty",
    "min_new_tokens",
    "sequence_bias",
)

# The smallest number of rows in the table of sinusoids that is stored. CTranslate2 cannot go beyond the table.
_NUM_POSITIONS = 1024

# Added to the logits of banned tokens by the bias of the output projection, since CTranslate2 cannot store a list of
# them with a model. It is near the lowest number of float16, so it is finite in every type.
_BANNED = -6e4


def to_ctranslate2(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    quantization: str | None = None,
) -> None:
    """Writes a model and its tokenizer as a CTranslate2 model.

    `ctranslate2.Translator.translate_batch` then finds the same tokens as `generate()` under these conditions:

    - It gets the tokens of a source with the end token, `max_input_length=0`, `min_decoding_length=0` and
      `max_decoding_length=max_length - 1`.
    - `generate()` has the same beam size and length penalty, `early_stopping=True` and `renormalize_logits=True`,
      which gives the probability of banned tokens to the others.

    With `patience=2` the outputs are nearly those of `early_stopping=False`. An output that reaches the limit has no
    end token, whatever `forced_eos_token_id` is.

    The folder holds model.bin, config.json and vocabularies for CTranslate2, generation_config.json, and the
    tokenizer's files. In config.json are also `pad_token` and `max_position_embeddings`, the largest number of tokens
    of a source or an output.

    Args:
        model: The model. It is not changed.
        tokenizer: Its tokenizer.
        folder: A new or empty folder.
        quantization: The type of the stored weights, such as "int8"; by default float32.

    Raises:
        ValueError: If the folder is not empty, `quantization` is not a type of CTranslate2, or the model has parts
            that CTranslate2 does not have.
        TypeError: If the model is not one of this package.
    """
    check_model(model)
    if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
        raise ValueError(
            f"`quantization` must be one of {', '.join(ACCEPTED_MODEL_TYPES)}, or None, but is {quantization!r} "
            "instead."
        )
    problems = _unknown_parts(model, tokenizer)
    if problems:
        raise ValueError(
            "The model must have no parts that CTranslate2 lacks, but "
            f"{'; '.join(problems)}. Change them, or export it to ONNX."
        )
    with new_folder(folder) as unfinished:
        tokenizer.save_pretrained(unfinished)
        without_unused_settings(model.generation_config).save_pretrained(unfinished)
        _Converter(model, tokenizer).convert_into(unfinished, quantization)


def export_model(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    quantization: str | None = None,
) -> str:
    """Writes a CTranslate2 model for the verb `export`, and returns how to use it."""
    to_ctranslate2(model, tokenizer, folder, quantization)
    return f"Try it with `hf-seq2seq translate {folder} --backend ctranslate2`."


class _Converter(Converter):  # type: ignore[misc]  # ctranslate2 has no types
    """A converter of CTranslate2, which writes the model that `_load` describes."""

    def __init__(self, model: Seq2SeqTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._tokenizer = tokenizer

    def convert_into(self, folder: os.PathLike[str], quantization: str | None) -> None:
        """Writes into a folder with other files in it, which CTranslate2's own `convert` would refuse or delete."""
        spec = self._load()
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(folder)

    def _load(self) -> TransformerSpec:
        model, config = self._model.model, self._model.config
        shared = {"pre_norm": config.norm_position == "pre", "activation": ACTIVATIONS[config.activation_function]}
        encoder = TransformerEncoderSpec(config.encoder_layers, config.encoder_attention_heads, **shared)
        decoder = TransformerDecoderSpec(config.decoder_layers, config.decoder_attention_heads, **shared)
        _set_stack(encoder, model.encoder)
        _set_stack(decoder, model.decoder)
        decoder.projection.weight = _copy(self._model.lm_head.weight)
        decoder.projection.bias = _projection_bias(self._model)
        spec = TransformerSpec(encoder, decoder)
        self._set_vocabularies(spec)
        return spec

    def _set_vocabularies(self, spec: TransformerSpec) -> None:
        model, config, settings = self._model, spec.config, self._model.generation_config
        source = _tokens(vocabulary(self._tokenizer, "source"), model.config.vocab_size)
        target = _tokens(vocabulary(self._tokenizer, "target"), model.config.decoder_vocab_size or 0)
        spec.register_source_vocabulary(source)
        spec.register_target_vocabulary(target)
        config.decoder_start_token = target[settings.decoder_start_token_id]
        config.eos_token = target[end_ids(settings)[0]]
        config.bos_token = config.decoder_start_token
        # If the vocabulary lacks this token, CTranslate2 appends it, and then the sizes differ.
        config.unk_token = self._tokenizer.unk_token if self._tokenizer.unk_token in target else config.eos_token
        config.layer_norm_epsilon = model.model.encoder.layers[0].final_layer_norm.eps
        config.add_source_eos = False  # our tokenizers end a source themselves
        config.add_attribute("pad_token", target[model.config.pad_token_id])
        config.add_attribute("max_position_embeddings", len(spec.encoder.position_encodings.encodings))


def _unknown_parts(model: Seq2SeqTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Returns a sentence for each part of model, settings and tokenizer that CTranslate2 cannot represent."""
    config, settings = model.config, model.generation_config
    problems = []
    if config.activation_function not in ACTIVATIONS:
        problems.append(f"`activation_function` is {config.activation_function!r} (it has {', '.join(ACTIVATIONS)})")
    if settings.decoder_start_token_id is None:
        problems.append("`decoder_start_token_id` is None")
    if len(end_ids(settings)) != 1:
        problems.append(f"`eos_token_id` is {settings.eos_token_id} (it has exactly one end token)")
    phrases = [ids for ids in settings.bad_words_ids or [] if len(ids) > 1]
    if phrases:
        problems.append(f"`bad_words_ids` holds {phrases[0]} (single tokens can be banned, not sequences)")
    problems += [
        f"`{name}` is {getattr(settings, name)}" for name in _UNKNOWN_SETTINGS if getattr(settings, name, None)
    ]
    largest = max(tokenizer.get_vocab().values())
    if largest >= config.vocab_size:
        problems.append(f"the tokenizer has the id {largest} (the model's vocabulary has {config.vocab_size} tokens)")
    with torch.device("meta"):
        plain = type(model)(config).state_dict()
    foreign = sorted(model.state_dict().keys() - plain.keys())
    if foreign:
        problems.append(f"{len(foreign)} weights are no Transformer's, `{foreign[0]}` among them (merge adapters)")
    return problems


def _tokens(vocab: dict[str, int], size: int) -> list[str]:
    """Returns the tokens in the order of their ids. An id without a token gets a name that no token has."""
    tokens = {index: token for token, index in vocab.items()}
    names = []
    for index in range(size):
        name = tokens.get(index, f"<unused-{index}>")
        while index not in tokens and name in vocab:
            name += "_"
        names.append(name)
    return names


def banned_tokens(model: Seq2SeqTransformerForConditionalGeneration) -> list[int]:
    """Returns the ids that an export never outputs: padding, and those that the generation settings ban."""
    settings = model.generation_config
    banned = {model.config.pad_token_id, *(settings.suppress_tokens or [])}
    banned |= {token for ids in settings.bad_words_ids or [] for token in ids}
    return sorted(banned - set(end_ids(settings)))


def _projection_bias(model: Seq2SeqTransformerForConditionalGeneration) -> Tensor:
    """Returns the bias of the output projection, shape (V,), with which banned tokens are never chosen."""
    weight, bias = model.lm_head.weight, model.lm_head.bias
    total = torch.zeros(len(weight)) if bias is None else _copy(bias)
    total[banned_tokens(model)] = _BANNED
    return total


def _set_stack(spec: Any, stack: Any) -> None:
    """Copies the weights of the encoder or the decoder into CTranslate2's description."""
    config = stack.config
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _copy(stack.embed_tokens.weight)
    spec.scale_embeddings = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    spec.position_encodings.encodings = _positions(stack)
    if stack.layer_norm is not None:
        _set_norm(spec.layer_norm, stack.layer_norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _set_attention(layer_spec.self_attention, layer.self_attn, is_cross_attention=False)
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_attn_layer_norm)
        if hasattr(layer, "encoder_attn"):
            _set_attention(layer_spec.attention, layer.encoder_attn, is_cross_attention=True)
            _set_norm(layer_spec.attention.layer_norm, layer.encoder_attn_layer_norm)
        _set_linear(layer_spec.ffn.linear_0, layer.fc1.weight, layer.fc1.bias)
        _set_linear(layer_spec.ffn.linear_1, layer.fc2.weight, layer.fc2.bias)
        _set_norm(layer_spec.ffn.layer_norm, layer.final_layer_norm)


def _positions(stack: Any) -> Tensor:
    """Returns the learned table, or a table of the stack's sinusoids, from which CTranslate2's own differ."""
    if stack.config.position_embedding_type == "learned":
        return _copy(stack.embed_positions.weight)
    position_ids = torch.arange(max(_NUM_POSITIONS, stack.config.max_position_embeddings))
    return _copy(stack.embed_positions(position_ids[None])[0])


def _set_attention(spec: Any, attention: Any, *, is_cross_attention: bool) -> None:
    """Copies the weights of an attention module into CTranslate2's description.

    In CTranslate2, all vectors of a head have one width P. If keys and values differ in width, the narrower ones are
    padded with zeros. CTranslate2 divides Q K^T by sqrt(D / H) and we by sqrt(K), so the queries are multiplied by the
    ratio of the two.
    """
    width = max(attention.key_dim, attention.value_dim)
    num_heads = attention.q_proj.out_features // attention.key_dim
    scale = math.sqrt(attention.value_dim / attention.key_dim)
    queries, keys, values = LinearSpec(), LinearSpec(), LinearSpec()
    for part, projection, factor in (
        (queries, attention.q_proj, scale),
        (keys, attention.k_proj, 1.0),
        (values, attention.v_proj, 1.0),
    ):
        _set_linear(part, projection.weight * factor, None if projection.bias is None else projection.bias * factor)
        part.weight = _pad_heads(part.weight, num_heads, width)
        part.bias = _pad_heads(part.bias, num_heads, width) if part.has_bias() else part.bias
    if is_cross_attention:
        fuse_linear(spec.linear[0], [queries])
        fuse_linear(spec.linear[1], [keys, values])
    else:
        fuse_linear(spec.linear[0], [queries, keys, values])
    output = attention.out_proj
    _set_linear(spec.linear[-1], _pad_heads(output.weight.T, num_heads, width).T, output.bias)


def _pad_heads(weight: Tensor, num_heads: int, width: int) -> Tensor:
    """Pads the rows of each head with zeros: (H * K, ...) -> (H * P, ...)."""
    heads = weight.unflatten(0, (num_heads, -1))  # -> (H, K, ...)
    missing = heads.new_zeros(num_heads, width - heads.shape[1], *heads.shape[2:])
    return torch.cat((heads, missing), dim=1).flatten(0, 1)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _copy(weight)
    if bias is not None:
        spec.bias = _copy(bias)


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma = _copy(norm.weight)
    spec.beta = _copy(norm.bias)


def _copy(weight: Tensor) -> Tensor:
    """Returns a copy in float32, since CTranslate2 quantizes in place."""
    return weight.detach().to("cpu", torch.float32, copy=True).contiguous()
