"""Writes a model as ONNX graphs, with the file names and tensor names of Optimum.

Shapes: B batch, S source length, P number of past target tokens, T number of new target tokens, D d_model, H heads,
K width of a head's keys or values, V vocabulary.
"""

import copy
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import new_folder
from hf_seq2seq.model.generation_seq2seq_transformer import without_unused_settings
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration

from .checks import check_model


# The first with GELU. Fixed, so that a file does not depend on the version of torch.
OPSET = 20

# A graph with more bytes of weights is stored as two files: the limit of protobuf is 2 GiB for a file.
_LARGEST_FILE = 2**31 - 2**26

# The variable sizes of the graphs.
AXES = {name: Dim(f"{name}_length" if name != "batch" else name) for name in ("batch", "source", "past", "target")}
_BATCH, _SOURCE, _PAST, _TARGET = AXES.values()


def to_onnx(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
) -> None:
    """Writes a model and its tokenizer as three ONNX graphs in float32.

    - encoder_model.onnx: `input_ids` and `attention_mask` (B, S) to `last_hidden_state` (B, S, D).
    - decoder_model.onnx, for the first step: `input_ids` (B, T), `encoder_hidden_states` and `encoder_attention_mask`
      to `logits` (B, T, V) and, for each layer N, `present.N.decoder.key`, `present.N.decoder.value` (B, H, T, K),
      `present.N.encoder.key` and `present.N.encoder.value` (B, H, S, K).
    - decoder_with_past_model.onnx, for all later steps: `input_ids` (the new tokens), `encoder_attention_mask` and
      `past_key_values.N...` of the same four to `logits` and `present.N.decoder...` (B, H, P + T, K). The keys and
      values of the source do not change.

    The folder also holds config.json, generation_config.json, and the tokenizer's files.

    Args:
        model: The model. It is not changed.
        tokenizer: Its tokenizer.
        folder: A new or empty folder.

    Raises:
        ImportError: If onnx or onnxscript is not installed.
        TypeError: If the model is not one of this package.
        ValueError: If the folder is not empty.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"`to_onnx` needs the package {missing[0]}, which is not installed. Run "
            "`pip install 'hf-seq2seq[export]'`."
        )
    check_model(model)
    with new_folder(folder) as unfinished:
        plain: Any = copy.deepcopy(model).to("cpu", torch.float32).eval()  # type: ignore[arg-type]
        plain.set_attn_implementation("sdpa")
        plain.config.dtype = "float32"
        plain.config.save_pretrained(unfinished)
        without_unused_settings(model.generation_config).save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        with torch.inference_mode(), quiet():
            _export_graphs(plain, unfinished)


def export_model(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
) -> str:
    """Writes ONNX graphs for the verb `export`, and returns how to use them."""
    to_onnx(model, tokenizer, folder)
    return "Load each graph with `onnxruntime.InferenceSession`, and the tokenizer with AutoTokenizer."


class _Encoder(nn.Module):
    """The encoder, as encoder_model.onnx runs it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return states


class _Decoder(nn.Module):
    """The decoder without past tokens, as decoder_model.onnx runs it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits, and keys and values in the order of `cache_names`."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        outputs = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=(encoder_hidden_states,),
            attention_mask=encoder_attention_mask,
            cache=cache,
            use_cache=True,
        )
        pairs = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
        layers: list[Any] = [layer for pair in pairs for layer in pair]
        return outputs.logits, [states for layer in layers for states in (layer.keys, layer.values)]


def cache_of_past(past_key_values: list[Tensor]) -> EncoderDecoderCache:
    """Returns a cache of the keys and values of all layers: the target's and the source's, two tensors each."""
    target, source = DynamicCache(), DynamicCache()
    num_layers = len(past_key_values) // 4
    for index in range(num_layers):
        target_keys, target_values, source_keys, source_values = past_key_values[4 * index : 4 * index + 4]
        target.update(target_keys, target_values, index)
        source.update(source_keys, source_values, index)
    cache = EncoderDecoderCache(target, source)
    cache.is_updated = dict.fromkeys(range(num_layers), True)
    return cache


class _DecoderWithPast(nn.Module):
    """The decoder with past tokens, as decoder_with_past_model.onnx runs it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_attention_mask: Tensor, past_key_values: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits, and the target's keys and values of all layers."""
        cache = cache_of_past(past_key_values)
        past_length = past_key_values[0].shape[2]
        outputs = self.model(
            decoder_input_ids=input_ids,
            # With a mask given, the graph is the same for one new token as for several.
            decoder_attention_mask=input_ids.new_ones(input_ids.shape[0], past_length + input_ids.shape[1]),
            # Only the shape is read, since the cache has the keys of the source: (B, H, S, K) -> (B, S, D)
            encoder_outputs=(past_key_values[3].transpose(1, 2).flatten(-2),),
            attention_mask=encoder_attention_mask,
            cache=cache,
            use_cache=True,
        )
        layers: list[Any] = cache.self_attention_cache.layers
        return outputs.logits, [states for layer in layers for states in (layer.keys, layer.values)]


def cache_names(prefix: str, num_layers: int, stacks: Sequence[str] = ("decoder", "encoder")) -> list[str]:
    """Returns the names of the keys and values of all layers, in the order of the graphs."""
    return [
        f"{prefix}.{layer}.{stack}.{part}"
        for layer in range(num_layers)
        for stack in stacks
        for part in ("key", "value")
    ]


def _export_graphs(model: Any, folder: Path) -> None:
    """Exports the three graphs, with variable sizes of batch and lengths."""
    num_layers = model.config.decoder_layers
    source_ids, target_ids = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)
    mask = torch.ones(2, 5, dtype=torch.long)
    encoder, decoder = _Encoder(model), _Decoder(model)
    encoder_states = encoder(source_ids, mask)
    _, past = decoder(target_ids, encoder_states, mask)
    source, target = {0: _BATCH, 1: _SOURCE}, {0: _BATCH, 1: _TARGET}
    past_names = cache_names("past_key_values", num_layers)
    past_axes = [{0: _BATCH, 2: _PAST if ".decoder." in name else _SOURCE} for name in past_names]
    export_graph(
        encoder,
        folder / "encoder_model.onnx",
        {"input_ids": (source_ids, source), "attention_mask": (mask, source)},
        ["last_hidden_state"],
    )
    export_graph(
        decoder,
        folder / "decoder_model.onnx",
        {
            "input_ids": (target_ids, target),
            "encoder_hidden_states": (encoder_states, source),
            "encoder_attention_mask": (mask, source),
        },
        ["logits", *cache_names("present", num_layers)],
    )
    export_graph(
        _DecoderWithPast(model),
        folder / "decoder_with_past_model.onnx",
        {
            "input_ids": (target_ids, target),
            "encoder_attention_mask": (mask, source),
            "past_key_values": (past, past_axes),
        },
        ["logits", *cache_names("present", num_layers, ("decoder",))],
        past_names,
    )


def export_graph(
    module: nn.Module,
    path: Path,
    inputs: dict[str, tuple[Any, Any]],
    output_names: list[str],
    past_names: Sequence[str] = (),
) -> None:
    """Exports a module as a graph.

    Args:
        module: The module.
        path: The file to write.
        inputs: For each argument of `forward`, an example and the names of its variable axes.
        output_names: The names of the outputs.
        past_names: The names of the tensors in the argument `past_key_values`.
    """
    names = [name for name in inputs if name != "past_key_values"]
    num_bytes = sum(parameter.nbytes for parameter in module.parameters())
    program: Any = torch.onnx.export(
        module.eval(),
        tuple(example for example, _ in inputs.values()),
        input_names=[*names, *past_names],
        output_names=output_names,
        dynamic_shapes={name: axes for name, (_, axes) in inputs.items()},
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    for part in (program.model, program.model.graph, *program.model.graph.all_nodes()):
        part.metadata_props.clear()  # the lines of Python that made each node, which take more room than the graph
        for value in getattr(part, "outputs", ()):
            value.metadata_props.clear()
    program.save(path, external_data=num_bytes > _LARGEST_FILE)


@contextmanager
def quiet() -> Iterator[None]:
    """Silences messages of the exporter: that torchvision is missing, and which names of axes it merged."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"# The axis name")
            warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)`")
            yield
    finally:
        logger.setLevel(level)
