"""Load a model or a tokenizer from a folder or the Hub, in one place, with errors that name what is wrong.

Only safetensors files are read, since a pickle file can run code, and code that travels with a model is never run.
"""

import logging
import os
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoTokenizer, GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

from .configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]


def load_model(
    path_or_repo: PathLike, *, dtype: str | torch.dtype | None = None, **config_overrides: Any
) -> Seq2SeqTransformerForConditionalGeneration:
    """Load a model that `save_pretrained` wrote, with every weight in its place.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        dtype: The type of the weights, such as "bfloat16"; by default the one they were saved in.
        **config_overrides: Fields of the config to change, such as `dropout`.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository, or a file of it is missing, **or**
        ValueError: If it holds another kind of model, a file is damaged, or the weights do not fit the config.
    """
    fields = _load_config_fields(path_or_repo) | config_overrides
    loaded: Any
    try:
        config = Seq2SeqTransformerConfig.from_dict(fields)
    except StrictDataclassError as error:
        raise ValueError(f"The config of `{path_or_repo}` must be valid, but is not: {error.__cause__}") from error
    try:
        loaded = Seq2SeqTransformerForConditionalGeneration.from_pretrained(
            path_or_repo, config=config, dtype=dtype or "auto", use_safetensors=True, output_loading_info=True
        )
    except SafetensorError as error:
        raise ValueError(
            f"The safetensors files of `{path_or_repo}` must be whole, but one is cut short or damaged ({error}). "
            "Copy it again, or use an earlier checkpoint."
        ) from error
    except RuntimeError as error:
        if "mismatched" not in str(error):
            raise
        # from_pretrained has logged which weights.
        raise ValueError(
            f"The weights of `{path_or_repo}` must have the sizes that its config.json says, but some differ. Use the "
            "config.json that was saved with them."
        ) from error
    model, report = loaded
    _check_generation_config(path_or_repo)
    lost = sorted(report["missing_keys"] | report["unexpected_keys"])
    if lost:
        raise ValueError(
            f"The weights of `{path_or_repo}` must be those that its config.json describes, but {len(lost)} are "
            f"missing or left over, `{lost[0]}` among them. Use the config.json that was saved with them."
        )
    return model  # type: ignore[no-any-return]


def load_tokenizer(path_or_repo: PathLike) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.

    Returns:
        The tokenizer, which has a `pad_token` and an `eos_token`.

    Raises:
        OSError: If there is no such folder or repository, **or**
        ValueError: If it holds no tokenizer, a file is damaged, or one of the two tokens is not defined.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(path_or_repo, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare exceptions for damaged files
        if not Path(path_or_repo).is_dir():
            raise _no_such_place(path_or_repo, "tokenizer", error) from error
        raise ValueError(
            f"`{path_or_repo}` must hold the files of a tokenizer (tokenizer.json and tokenizer_config.json), but "
            f"they are missing or damaged ({_first_line(error)}). Save the tokenizer there with `save_pretrained`."
        ) from error
    for name in ("pad_token", "eos_token"):
        if getattr(tokenizer, name) is None:
            raise ValueError(
                f"The tokenizer of `{path_or_repo}` must have a `{name}`, but has none. Name it in "
                "tokenizer_config.json."
            )
    return tokenizer


def _load_config_fields(path_or_repo: PathLike) -> dict[str, Any]:
    """Read config.json and check that the folder can be loaded by us."""
    folder = Path(path_or_repo)
    if folder.is_dir():
        weights = ("model.safetensors", "model.safetensors.index.json")
        if not (folder / "config.json").exists() or not any((folder / name).exists() for name in weights):
            found = sorted(path.name for path in folder.iterdir())
            raise FileNotFoundError(
                f"`{path_or_repo}` must be a model's folder, with config.json and model.safetensors, but holds "
                f"{', '.join(found[:5]) or 'nothing'}{', ...' if len(found) > 5 else ''} instead. Name a folder that "
                "`hf-seq2seq train` or `save_pretrained` wrote; weights in pickle files (.bin, .pt) are not read."
            )
    try:
        fields, _ = PreTrainedConfig.get_config_dict(path_or_repo)
    except OSError as error:
        if folder.is_dir():
            raise ValueError(f"`{folder / 'config.json'}` must be JSON, but is not: {_first_line(error)}") from error
        raise _no_such_place(path_or_repo, "model", error) from error
    if not isinstance(fields, dict):
        raise ValueError(f"The config.json of `{path_or_repo}` must be a JSON object, but is {fields!r} instead.")
    model_type = fields.get("model_type")
    if model_type != Seq2SeqTransformerConfig.model_type:
        raise ValueError(
            f"The `model_type` in the config.json of `{path_or_repo}` must be "
            f"{Seq2SeqTransformerConfig.model_type!r}, but is {model_type!r} instead. Name a model of this package."
        )
    return fields


def _check_generation_config(path_or_repo: PathLike) -> None:
    """Refuses a damaged generation_config.json, which from_pretrained would replace in silence."""
    path = Path(path_or_repo) / "generation_config.json"
    if path.exists():
        try:
            GenerationConfig.from_pretrained(path_or_repo)
        except (OSError, ValueError) as error:
            raise ValueError(f"`{path}` must be valid, but is not: {_first_line(error)}") from error


def _no_such_place(path_or_repo: PathLike, kind: str, error: Exception) -> OSError:
    return FileNotFoundError(
        f"`{path_or_repo}` must be the folder of a {kind}, or the name of a repository on the Hub, but is no folder, "
        f"and the Hub did not give it ({_first_line(error)}). Check the path for a typing error."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
