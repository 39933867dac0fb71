"""Imports a stock transformers model: reads its folder safely, names all that does not fit, and builds ours.

Only these importers read pytorch_model.bin, and only with `weights_only=True`, which runs no code of the file. The
Python code that may come with a model is never run.
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

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.generation_settings import read_generation_settings
from hf_seq2seq.loading import check_stays_inside, not_found
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


logger = logging.getLogger(__name__)

Weights = dict[str, torch.Tensor]

# Fields of old configs that the stock classes do not read, with the value that their code implements. Weights with
# another value belong to another network.
_EXPECTED_VALUES = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "is_encoder_decoder": True,
    "is_decoder": False,
}

# Fields with the same meaning in the configs of MarianMT, FSMT and this package.
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
    """Loads a model of a stock class as ours, with its weights, their type and its generation settings.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        stock_class: The class in transformers.
        convert: A function that gets the stock model, and those of its weights that were in the files. It returns the
            fields of our config that are not `COMMON_FIELDS`, and our weights by name.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If it holds another kind of model, or one that cannot be represented; all reasons are named.
    """
    folder = local_folder(path_or_repo)
    faults = _config_faults(_config_fields(folder, stock_class))
    try:
        stock, report = _load_stock_model(folder, stock_class)
    except Exception as error:  # a damaged file makes transformers, torch and safetensors raise all kinds of errors
        faults.append(f"{stock_class.__name__} cannot load it ({_cause(error)})")
        raise refusal(path_or_repo, faults) from error
    _warn_of_layerdrop(stock.config)
    faults += weight_faults(sorted(report["unexpected_keys"]), "left over")
    stored = {name: tensor for name, tensor in stock.state_dict().items() if name not in report["missing_keys"]}
    fields, weights = convert(stock, stored)
    common = {name: getattr(stock.config, name) for name in COMMON_FIELDS}
    try:
        config = Seq2SeqTransformerConfig(**(common | fields))
    except StrictDataclassError as error:
        faults.append(f"its config does not fit ours ({_cause(error)})")
        raise refusal(path_or_repo, faults) from error
    model: Any = Seq2SeqTransformerForConditionalGeneration(config).to(stock.dtype)
    model.load_state_dict(weights, strict=False)
    # `named_parameters` has one name for tied weights, so the other names may be absent.
    faults += weight_faults([name for name, _ in model.named_parameters() if name not in weights], "missing")
    if faults:
        raise refusal(path_or_repo, faults)
    model.generation_config = copied_settings(stock)
    return model.eval()  # type: ignore[no-any-return]


def _load_stock_model(folder: Path, stock_class: type[PreTrainedModel]) -> tuple[Any, dict[str, Any]]:
    """Returns the stock model, and the report of weights that are missing or left over."""
    if (folder / "generation_config.json").exists():
        read_generation_settings(folder / "generation_config.json")  # a damaged one would be silently replaced below
    loaded: Any = stock_class.from_pretrained(
        folder,
        local_files_only=True,
        weights_only=True,
        output_loading_info=True,
        attn_implementation="eager",  # config.json may name code of a repository here
    )
    return loaded  # type: ignore[no-any-return]


def copied_settings(model: Any) -> GenerationConfig:
    """Returns a copy of a model's generation settings, without the private fields that name their origin."""
    settings: dict[str, Any] = model.generation_config.to_dict()
    return GenerationConfig.from_dict({key: value for key, value in settings.items() if key[0] != "_"})


def load_stock_tokenizer(
    path_or_repo: PathLike, tokenizer_class: type[PreTrainedTokenizerBase], file_names: Sequence[str]
) -> PreTrainedTokenizerBase | None:
    """Loads a tokenizer of a stock class.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        tokenizer_class: The class in transformers.
        file_names: The files that it needs.

    Returns:
        The tokenizer, or None if the folder has none of the files.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If a file is missing or damaged, or a library that the tokenizer needs is not installed.
    """
    folder = local_folder(path_or_repo)
    missing = [name for name in file_names if not (folder / name).exists()]
    if len(missing) == len(file_names):
        return None
    if missing:
        raise ValueError(
            f"The tokenizer of `{path_or_repo}` must have the files {', '.join(file_names)}, but has no "
            f"{', '.join(missing)}. Copy them there, or remove all of them to import only the weights."
        )
    try:
        tokenizer: Any = tokenizer_class.from_pretrained(folder)
    except ImportError as error:
        raise ValueError(
            f"The tokenizer of `{path_or_repo}` needs a library that is not installed "
            f"({' '.join(str(error).split())}). Install it with `pip install 'hf-seq2seq[export]'`."
        ) from error
    except Exception as error:  # a damaged file makes sentencepiece and the tokenizers raise all kinds of errors
        raise ValueError(
            f"The tokenizer of `{path_or_repo}` must be whole, but cannot be read ({type(error).__name__}: "
            f"{' '.join(str(error).split())}). Copy its files again."
        ) from error
    return tokenizer  # type: ignore[no-any-return]


def local_folder(path_or_repo: PathLike) -> Path:
    """Returns the folder, or downloads a repository and returns its folder.

    Of a repository's weights, safetensors files are downloaded, or pytorch_model.bin if there are none.

    Raises:
        FileNotFoundError: If there is no such folder or repository.
        ValueError: If a file of it lies elsewhere.
    """
    folder = Path(path_or_repo)
    if folder.is_dir():
        check_stays_inside(folder)
        return folder
    try:
        # from_pretrained would ask the Hub to convert the weights of a repository that has no safetensors files.
        folder = Path(
            snapshot_download(str(path_or_repo), allow_patterns=["*.json", "*.safetensors", "*.spm", "*.txt"])
        )
        if not any(folder.glob("*.safetensors")):
            snapshot_download(str(path_or_repo), allow_patterns=["pytorch_model*.bin"])
    except (OSError, ValueError) as error:
        raise not_found(path_or_repo, "model", error) from error
    check_stays_inside(folder)
    return folder


def _config_fields(folder: Path, stock_class: type[PreTrainedModel]) -> dict[str, Any]:
    """Returns the fields of config.json, after a check that they describe a model of the stock class."""
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
    """Returns a sentence for each value that shows that the weights belong to another network."""
    faults = [
        f"`{name}` is {fields[name]!r}, not {expected!r}"
        for name, expected in _EXPECTED_VALUES.items()
        if fields.get(name, expected) not in (expected, None)
    ]
    activation = fields.get("activation_function", "relu")
    if activation not in ACT2FN:
        faults.append(f"transformers has no `activation_function` {activation!r}")
    return faults


def weight_faults(names: Sequence[str], fault: str, config: str = "config.json") -> list[str]:
    """Returns a sentence for each of a few weights, or one for them all.

    Args:
        names: The names of the weights.
        fault: What is wrong with them.
        config: What says which weights there are.
    """
    if len(names) <= 3:
        return [f"the weight `{name}` is {fault}" for name in names]
    return [
        f"{len(names)} weights are {fault}, from `{names[0]}` to `{names[-1]}`: {config} and the file of the weights "
        "must be those that were saved together"
    ]


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


def refusal(path_or_repo: PathLike, faults: Sequence[str]) -> ValueError:
    """Returns the error for a model that cannot be represented, with all reasons."""
    return ValueError(
        f"`{path_or_repo}` must be a model that this package can represent, but: {'; '.join(faults)}. Name another "
        "model."
    )
