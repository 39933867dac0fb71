"""Writes a page that translates in a browser, without a server: the model in 8 bits, its tokenizer and a search.

The page runs two ONNX graphs in onnxruntime-web. It loads nothing but the files beside it, so that any static host can
serve it.

Shapes: B batch, S source length, P number of past target tokens, T number of new target tokens, H heads, K width of a
head's keys or values, V vocabulary.
"""

import copy
import json
import logging
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike, new_folder
from hf_seq2seq.model.generation_seq2seq_transformer import PAPER_SEARCH
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.output_limits import EXTRA_TOKENS, banned_ids, end_ids
from hf_seq2seq.token_lookup import unknown_id, vocabulary

from .checks import check_model
from .onnx import AXES, cache_names, cache_of_past, export_graph, quiet


_PAGE = Path(__file__).with_name("web_page")

# What the page takes out of node_modules, with the licences.
_LIBRARY_FILES = (
    "@huggingface/tokenizers/dist/tokenizers.min.mjs",
    "onnxruntime-web/dist/ort.wasm.min.mjs",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.mjs",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",
)
_PACKAGES = ("@huggingface/tokenizers", "onnxruntime-web")


def to_web(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: PathLike,
    library: PathLike,
) -> None:
    """Writes the page: index.html, its script, the model in 8 bits, the tokenizer, and the library.

    Args:
        model: The model. It is not changed.
        tokenizer: Its tokenizer, one of the tokenizers library for both sides.
        folder: A new or empty folder.
        library: The folder node_modules that `npm install --ignore-scripts @huggingface/transformers` makes.

    Raises:
        FileNotFoundError: If the library lacks a file.
        ImportError: If onnx, onnxruntime or onnxscript is not installed.
        TypeError: If the model is not one of this package.
        ValueError: If the folder is not empty, or the tokenizer is of another kind.
    """
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"`to_web` needs the package {missing[0]}, which is not installed. Run `pip install 'hf-seq2seq[export]'`."
        )
    check_model(model)
    _check_tokenizer(tokenizer)
    _check_library(Path(library))
    with new_folder(folder) as unfinished:
        for page in _PAGE.iterdir():
            shutil.copyfile(page, unfinished / page.name)
        _copy_library(Path(library), unfinished / "library")
        tokenizer.save_pretrained(unfinished)
        settings = json.dumps(_settings(model, tokenizer), indent=2)
        (unfinished / "settings.json").write_text(settings, encoding="utf-8")
        _write_graphs(model, unfinished)


def export_model(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: PathLike,
    library: str | None = None,
) -> str:
    """Writes the page for the verb `export`, and returns how to use it.

    Raises:
        ValueError: As `to_web` does, **or** if no library is given.
    """
    if library is None:
        raise ValueError(
            "`--library` must be given for web: the folder node_modules that "
            "`npm install --ignore-scripts @huggingface/transformers` makes."
        )
    to_web(model, tokenizer, folder, library)
    return f"See it with `python -m http.server --directory {folder}`, at http://localhost:8000."


class _Encoder(nn.Module):
    """The encoder, and the keys and values that the decoder makes of its output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Returns keys and values (B, H, S, K) of each decoder layer."""
        states = self.model.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return [
            projection(states).unflatten(-1, (-1, width)).transpose(1, 2)
            for layer in self.model.decoder.layers
            for projection, width in (
                (layer.encoder_attn.k_proj, layer.encoder_attn.key_dim),
                (layer.encoder_attn.v_proj, layer.encoder_attn.value_dim),
            )
        ]


class _Decoder(nn.Module):
    """The decoder, from the first step on: P is 0 there."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_attention_mask: Tensor, past_key_values: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns log-probabilities (B, T, V), attention to the source (B, T, S), and the target's keys and values."""
        cache = cache_of_past(past_key_values)
        outputs = self.model(
            decoder_input_ids=input_ids,
            decoder_attention_mask=input_ids.new_ones(
                input_ids.shape[0], past_key_values[0].shape[2] + input_ids.shape[1]
            ),
            # Only the shape is read, since the cache has the keys of the source: (B, H, S, K) -> (B, S, D)
            encoder_outputs=(past_key_values[3].transpose(1, 2).flatten(-2),),
            attention_mask=encoder_attention_mask,
            cache=cache,
            use_cache=True,
            output_attentions=True,
        )
        attention = torch.stack(outputs.cross_attentions).mean((0, 2))  # of all layers and heads
        layers: list[Any] = cache.self_attention_cache.layers
        present = [states for layer in layers for states in (layer.keys, layer.values)]
        return outputs.logits.log_softmax(-1), attention, present


def _write_graphs(model: Any, folder: Path) -> None:
    """Writes encoder.onnx and decoder.onnx in 8 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = copy.deepcopy(model).to("cpu", torch.float32).eval()
    plain.set_attn_implementation("eager")  # which alone returns attention
    num_layers = plain.config.decoder_layers
    ids, mask, target = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long), torch.ones(2, 1).long()
    encoder, decoder = _Encoder(plain), _Decoder(plain)
    source_names = cache_names("past_key_values", num_layers, ("encoder",))
    names = cache_names("past_key_values", num_layers)
    with torch.inference_mode(), quiet():
        of_source = iter(encoder(ids, mask))
        attention = plain.model.decoder.layers[0].self_attn
        heads = plain.config.decoder_attention_heads
        widths = {"key": attention.key_dim, "value": attention.value_dim}
        past = [
            next(of_source) if ".encoder." in name else torch.zeros(2, heads, 3, widths[name.rpartition(".")[2]])
            for name in names
        ]
        source = {0: AXES["batch"], 1: AXES["source"]}
        export_graph(
            encoder,
            folder / "encoder.full",
            {"input_ids": (ids, source), "attention_mask": (mask, source)},
            source_names,
        )
        axes = [{0: AXES["batch"], 2: AXES["past" if ".decoder." in name else "source"]} for name in names]
        export_graph(
            decoder,
            folder / "decoder.full",
            {
                "input_ids": (target, {0: AXES["batch"]}),
                "encoder_attention_mask": (mask, source),
                "past_key_values": (past, axes),
            },
            ["log_probs", "attention", *cache_names("present", num_layers, ("decoder",))],
            names,
        )
    for name in ("encoder", "decoder"):
        full = folder / f"{name}.full"
        with _without_advice():
            quantize_dynamic(full, folder / f"{name}.onnx", weight_type=QuantType.QUInt8)
        full.unlink()


def _without_advice() -> Any:
    """Silences the advice to prepare a model before it is quantized, which this one does not need."""
    logging.getLogger().addFilter(lambda record: "pre-processing before quantization" not in record.getMessage())
    return warnings.catch_warnings()


def _settings(model: Any, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Returns what the page's search has to know."""
    config, own = model.config, model.generation_config
    search = {
        name: default if getattr(own, name, None) is None else getattr(own, name)
        for name, default in PAPER_SEARCH.items()
    }
    attention = model.model.decoder.layers[0].self_attn
    is_learned = config.position_embedding_type == "learned"
    return {
        "beam_size": search["num_beams"],
        "length_penalty": search["length_penalty"],
        "start_id": own.decoder_start_token_id,
        "end_ids": end_ids(own),
        "banned_ids": banned_ids(own, unknown_id(tokenizer, "target")),
        "extra_tokens": EXTRA_TOKENS,
        "num_positions": config.max_position_embeddings if is_learned else None,
        "num_layers": config.decoder_layers,
        "num_heads": config.decoder_attention_heads,
        "key_width": attention.key_dim,
        "value_width": attention.value_dim,
    }


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    is_joint = vocabulary(tokenizer, "source") == vocabulary(tokenizer, "target")
    if not tokenizer.is_fast or not is_joint:
        raise ValueError(
            "The tokenizer must be one of the tokenizers library (tokenizer.json) for both sides, which a browser can "
            f"run, but is a {type(tokenizer).__name__}. Train the model with one, or serve it (`hf-seq2seq serve`)."
        )


def _check_library(library: Path) -> None:
    missing = [name for name in _LIBRARY_FILES if not (library / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"`{library}` must be the folder node_modules that `npm install --ignore-scripts "
            f"@huggingface/transformers` makes, but has no {missing[0]}. Run that, and name the folder."
        )


def _copy_library(library: Path, folder: Path) -> None:
    """Copies the files of the library, and what each package says of its licence."""
    folder.mkdir()
    for name in _LIBRARY_FILES:
        shutil.copyfile(library / name, folder / Path(name).name)
    for package in _PACKAGES:
        fields = json.loads((library / package / "package.json").read_text(encoding="utf-8"))
        licence = library / package / "LICENSE"
        text = licence.read_text(encoding="utf-8") if licence.exists() else ""
        head = (
            f"{fields['name']} {fields['version']}, licence {fields.get('license')}, from {fields.get('homepage')}\n\n"
        )
        (folder / f"LICENSE-{package.rpartition('/')[2]}").write_text(head + text, encoding="utf-8")
