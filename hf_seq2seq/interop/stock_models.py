"""What the importers of stock transformers models share: read a folder safely, tell all that does not fit, build ours.

These importers alone read pytorch_model.bin, and only with `weights_only=True`, which runs no code of the file. Code
that travels with a model is never run.
"""

import logging
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.activations import ACT2FN

from hf_seq2seq.loading import PathLike
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


logger = logging.getLogger(__name__)

Weights = dict[str, torch.Tensor]

# Fields of old configs that the stock models do not read, with the one value that their code stands for: with another
# one the weights were meant for another network.
_EXPECTED_VALUES = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "is_encoder_decoder": True,
    "is_decoder": False,
}

# Fields that mean the same in every config here.
COMMON_FIELDS = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "activation_function",
    "max_position_embeddings",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "scale_embedding",
    "use_cache",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)


def import_stock_model(
    path_or_repo: PathLike,
    stock_class: type[PreTrainedModel],
    convert: Callable[[Any, Weights], tuple[dict[str, Any], Weights]],
) -> Seq2SeqTransformerForConditionalGeneration:
    """Load a model of a stock class and turn it into ours, with its weights, their type and its generation settings.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        stock_class: The class in transformers.
        convert: Given the stock model and those of its weights that were in the files, returns our config's fields
            that are not `COMMON_FIELDS`, and our weights by name.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository, **or**
        ValueError: If it holds another kind of model, or one that cannot be represented; all reasons are named.
    """
    folder = local_folder(path_or_repo)
    config_fields = _config_fields(folder, stock_class)
    faults = _config_faults(config_fields)
    loaded: Any
    try:
        if (folder / "generation_config.json").exists():
            GenerationConfig.from_pretrained(folder)  # a damaged one would be replaced in silence below
        loaded = stock_class.from_pretrained(
            folder,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
            attn_implementation="eager",  # not what config.json asks for: that may be code of a repository
        )
    except Exception as error:  # transformers, torch and safetensors raise whatever a damaged file leads to
        faults.append(f"{stock_class.__name__} cannot load it ({_cause(error)})")
        raise _refusal(path_or_repo, faults) from error
    stock, report = loaded
    _warn_of_layerdrop(stock.config)
    faults += [f"the weight `{name}` is left over" for name in sorted(report["unexpected_keys"])]
    stored = {name: tensor for name, tensor in stock.state_dict().items() if name not in report["missing_keys"]}
    fields, weights = convert(stock, stored)
    common = {name: getattr(stock.config, name) for name in COMMON_FIELDS}
    try:
        config = Seq2SeqTransformerConfig(**(common | fields))
    except StrictDataclassError as error:
        faults.append(f"its config does not fit ours ({_cause(error)})")
        raise _refusal(path_or_repo, faults) from error
    model: Any = Seq2SeqTransformerForConditionalGeneration(config).to(stock.dtype)
    model.load_state_dict(weights, strict=False)
    # A tied weight has one name here.
    faults += [f"the weight `{name}` is missing" for name, _ in model.named_parameters() if name not in weights]
    if faults:
        raise _refusal(path_or_repo, faults)
    model.generation_config = copied_settings(stock)
    return model.eval()  # type: ignore[no-any-return]


def copied_settings(model: Any) -> GenerationConfig:
    """Return a copy of a model's generation settings, without what tells where they came from."""
    settings: dict[str, Any] = model.generation_config.to_dict()
    return GenerationConfig.from_dict({key: value for key, value in settings.items() if key[0] != "_"})


def load_stock_tokenizer(
    path_or_repo: PathLike, tokenizer_class: type[PreTrainedTokenizerBase], file_names: Sequence[str]
) -> PreTrainedTokenizerBase | None:
    """Load a tokenizer of a stock class.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        tokenizer_class: The class in transformers.
        file_names: The files that it needs.

    Returns:
        The tokenizer, or None where the folder holds none of the files.

    Raises:
        OSError: If there is no such folder or repository, **or**
        ValueError: If a file is missing or damaged, or a library that the tokenizer needs is not installed.
    """
    folder = local_folder(path_or_repo)
    missing = [name for name in file_names if not (folder / name).exists()]
    if len(missing) == len(file_names):
        return None
    if missing:
        raise ValueError(
            f"The tokenizer of `{path_or_repo}` must have the files {', '.join(file_names)}, but has no "
            f"{', '.join(missing)}. Copy them there, or take all of them away to import the weights alone."
        )
    try:
        tokenizer: Any = tokenizer_class.from_pretrained(folder)
    except ImportError as error:
        raise ValueError(
            f"The tokenizer of `{path_or_repo}` needs a library that is not installed "
            f"({' '.join(str(error).split())}). Install it with `pip install 'hf-seq2seq[export]'`."
        ) from error
    except Exception as error:  # sentencepiece and the tokenizers raise whatever a damaged file leads to
        raise ValueError(
            f"The tokenizer of `{path_or_repo}` must be whole, but cannot be read ({type(error).__name__}: "
            f"{' '.join(str(error).split())}). Copy its files again."
        ) from error
    return tokenizer  # type: ignore[no-any-return]


def local_folder(path_or_repo: PathLike) -> Path:
    """Return the folder, or that of a repository once it is downloaded: safetensors files where it has any.

    Raises:
        FileNotFoundError: If there is no such folder or repository.
    """
    folder = Path(path_or_repo)
    if folder.is_dir():
        return folder
    try:
        # Not left to from_pretrained, which asks the Hub to convert a repository that has no safetensors files.
        folder = Path(
            snapshot_download(str(path_or_repo), allow_patterns=["*.json", "*.safetensors", "*.spm", "*.txt"])
        )
        if not any(folder.glob("*.safetensors")):
            snapshot_download(str(path_or_repo), allow_patterns=["pytorch_model*.bin"])
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"`{path_or_repo}` must be a model's folder, or the name of a repository on the Hub, but is no folder, "
            f"and the Hub did not give it ({' '.join(str(error).split())}). Check the path for a typing error."
        ) from error
    return folder


def _config_fields(folder: Path, stock_class: type[PreTrainedModel]) -> dict[str, Any]:
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"`{folder}` must be a model's folder, but has no config.json. Name another folder.")
    try:
        fields, _ = PreTrainedConfig.get_config_dict(folder)
    except OSError as error:
        raise ValueError(f"`{folder / 'config.json'}` must be JSON, but is not. Copy it again.") from error
    expected = stock_class.config_class.model_type  # type: ignore[union-attr]
    found = fields.get("model_type") if isinstance(fields, dict) else fields
    if found != expected:
        raise ValueError(
            f"The `model_type` in the config.json of `{folder}` must be {expected!r}, but is {found!r} instead. Name "
            "a model of that kind."
        )
    return fields


def _config_faults(fields: dict[str, Any]) -> list[str]:
    """Name each value that says that the weights were meant for another network than the stock class."""
    faults = [
        f"`{name}` is {fields[name]!r}, not {expected!r}"
        for name, expected in _EXPECTED_VALUES.items()
        if fields.get(name, expected) not in (expected, None)
    ]
    activation = fields.get("activation_function", "relu")
    if activation not in ACT2FN:
        faults.append(f"transformers has no `activation_function` {activation!r}")
    return faults


def _warn_of_layerdrop(config: Any) -> None:
    for name in ("encoder_layerdrop", "decoder_layerdrop"):
        if getattr(config, name):
            logger.warning(
                "`%s` (%s) is left out: it drops layers in training, which this package does not do.",
                *(name, getattr(config, name)),
            )


def _cause(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        return "its pytorch_model.bin is damaged or holds more than tensors, which is not read, since it can run code"
    if isinstance(error, StrictDataclassError) and error.__cause__:
        return str(error.__cause__)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _refusal(path_or_repo: PathLike, faults: Sequence[str]) -> ValueError:
    return ValueError(
        f"`{path_or_repo}` must be a model that this package can represent, but: {'; '.join(faults)}. Name another "
        "model."
    )
