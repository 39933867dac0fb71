"""Loads a model or a tokenizer from a folder or the Hub, with errors that name the file and the way out.

Weights are read only from safetensors files, since a pickle file can run code. The Python code that may come with a
model is never run.
"""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # as transformers takes it
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME
from transformers.utils.hub import cached_file

from .atomic_writing import PathLike
from .error_messages import first_line
from .generation_settings import check_generation_settings, read_generation_settings
from .model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .model.generation_seq2seq_transformer import fill_special_tokens
from .model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from .model_files import check_sizes, is_float_type, make_config, read_json_object


logger = logging.getLogger(__name__)

_WEIGHTS_FILES = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)  # one file, or the table of contents of several
_ADAPTER_FILE = "adapter_config.json"  # of PEFT

# Files that name other files, in the field that is named here, and that transformers follows anywhere.
_NAMING_FIELDS = {
    SAFE_WEIGHTS_INDEX_NAME: "weight_map",
    WEIGHTS_INDEX_NAME: "weight_map",
    "config.json": "configuration_files",
    "tokenizer_config.json": "fast_tokenizer_files",
}

# This turns a pickle file into safetensors safely: `from_pretrained` lets torch read nothing but tensors from it.
_WAY_TO_CONVERT = (
    "Weights in pickle files (.bin, .pt) are not read, since those can run code. Turn a pytorch_model.bin that you "
    "trust into safetensors once, with `from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration as Model; "
    "Model.from_pretrained({path!r}, use_safetensors=False).save_pretrained('converted')`, and save its tokenizer "
    "there too."
)


def load_model(
    path_or_repo: PathLike,
    *,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    **config_overrides: Any,
) -> Seq2SeqTransformerForConditionalGeneration:
    """Loads a model that `save_pretrained` wrote, and checks that no weight is missing or left over.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        dtype: The type of the weights, such as "bfloat16"; by default the type in the files.
        revision: Branch, tag or commit of a repository; by default "main".
        **config_overrides: Fields of the config to change, such as `dropout`.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository, or one of its files is missing.
        ValueError: If it holds another kind of model, a file is damaged, the weights do not match the config, or
            `revision` is given for a folder.
    """
    _check_place(path_or_repo, revision)
    config = make_config(_read_config_fields(path_or_repo, revision) | config_overrides, path_or_repo)
    if dtype not in (None, "auto") and not is_float_type(dtype):
        raise ValueError(f"`dtype` must be a type of floating point numbers that torch has, but is {dtype!r} instead.")
    check_sizes(config, _weights_files(path_or_repo, revision), path_or_repo)
    _check_generation_config(path_or_repo, revision, config.decoder_vocab_size or config.vocab_size)
    model: Any = Seq2SeqTransformerForConditionalGeneration.from_pretrained(
        path_or_repo,
        config=config,
        dtype=dtype or "auto",
        revision=revision or "main",
        use_safetensors=True,
    )
    name = name_of_weight_without_number(model)
    if name is not None:
        raise ValueError(
            f"The weights of `{path_or_repo}` must be finite numbers, but those of `{name}` are not. Take another "
            "model, such as an earlier checkpoint of its run."
        )
    fill_special_tokens(model.generation_config, model.config)
    return model  # type: ignore[no-any-return]


def name_of_weight_without_number(model: nn.Module) -> str | None:
    """Returns the name of a parameter that holds an infinite value or NaN, or None if none does."""
    for name, parameter in model.named_parameters():
        local: Any = parameter.detach()
        if isinstance(local, DTensor):
            local = local.to_local()
        if not local.isfinite().all():
            return name
    return None


def load_tokenizer(path_or_repo: PathLike, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Loads a tokenizer.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.
        revision: Branch, tag or commit of a repository; by default "main".

    Returns:
        The tokenizer, which has a `pad_token` and an `eos_token`.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If it holds no tokenizer, a file is damaged, the tokenizer has no `pad_token` or no `eos_token`, or
            `revision` is given for a folder.
    """
    _check_place(path_or_repo, revision)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path_or_repo,
            config=_config_of_tokenizer(path_or_repo, revision),
            trust_remote_code=False,
            revision=revision or "main",
        )
    except Exception as error:  # the tokenizers library raises bare exceptions for damaged files
        if not Path(path_or_repo).is_dir():
            raise not_found(path_or_repo, "tokenizer", error, revision) from error
        raise ValueError(
            f"`{path_or_repo}` must hold the files of a tokenizer (tokenizer.json and tokenizer_config.json), but "
            f"they are missing or damaged ({first_line(error)}). Save the tokenizer there with `save_pretrained`."
        ) from error
    tokenizer.init_kwargs.pop("auto_map", None)  # it names code, which is not copied where the tokenizer is saved
    for name in ("pad_token", "eos_token"):
        if getattr(tokenizer, name) is None:
            raise ValueError(
                f"The tokenizer of `{path_or_repo}` must have a `{name}`, but has none. Name it in "
                "tokenizer_config.json."
            )
    longest = tokenizer.model_max_length
    if type(longest) not in (int, float) or not longest >= 1:
        raise ValueError(
            f"`model_max_length` in the tokenizer_config.json of `{path_or_repo}` must be a number of at least 1, but "
            f"is {longest!r} instead. Write the number of tokens that the model was trained on."
        )
    _warn_of_split_tokens(path_or_repo, tokenizer)
    return tokenizer


def _config_of_tokenizer(path_or_repo: PathLike, revision: str | None) -> Seq2SeqTransformerConfig | None:
    """Returns a config beside which to find the tokenizer of a model of this package, or None for other models.

    transformers would read the model's own, and build something as large as its `num_labels` says.
    """
    file = _file_of(path_or_repo, "config.json", revision)
    if file is None or read_json_object(Path(file)).get("model_type") != Seq2SeqTransformerConfig.model_type:
        return None
    return Seq2SeqTransformerConfig()


def _warn_of_split_tokens(path_or_repo: PathLike, tokenizer: Any) -> None:
    """Warns of special tokens that a user added to a stock tokenizer that cuts all special tokens in a text."""
    if not getattr(tokenizer, "split_special_tokens", False):
        return
    controls = set(tokenizer.special_tokens_map.values())
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    split = [token for token in added if token not in controls and tokenizer.tokenize(token) != [token]]
    if split:
        logger.warning(
            "The tokenizer of `%s` cuts the special token %r, which was added to it, into %d pieces, and never uses "
            "the token itself. To keep it whole, add it to the tokenizer as it was before, with `add_tokens([%r])` "
            "or after `import hf_seq2seq`, and save that.",
            *(path_or_repo, split[0], len(tokenizer.tokenize(split[0])), split[0]),
        )


def check_stays_inside(folder: PathLike) -> None:
    """Checks that no file of a model's folder lies elsewhere: a link or a name could lead to any file of the machine.

    A folder in the Hub's cache has links to the files of its repository, which may be read.

    Raises:
        ValueError: If a file is a link that leads out of the folder, or names a file out of it.
    """
    path = Path(folder)
    inside = path.resolve()
    if inside.parent.name == "snapshots":
        inside = inside.parent.parent
    for file in (*path.iterdir(), *path.glob("additional_chat_templates/*")):
        if file.is_file() and not file.resolve().is_relative_to(inside):
            raise ValueError(
                f"`{file}` must be a file in `{folder}`, but is one outside of it, {file.resolve()}, where a link "
                "leads. Put a copy of the file in the place of the link, if others may read it."
            )
    for name in _NAMING_FIELDS:
        _check_names_in(path / name)


def _check_names_in(file: Path) -> None:
    """Raises ValueError if a file names files of other folders. What else is wrong with it is told elsewhere."""
    field = _NAMING_FIELDS[file.name]
    try:
        named = json.loads(file.read_text(encoding="utf-8"))[field]
        names = list(named.values() if isinstance(named, dict) else named)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    for name in names:
        if isinstance(name, str) and Path(name).name != name:
            raise ValueError(
                f"`{file}` must name files of its own folder, but its `{field}` names {name!r}. Ask whoever made it "
                "for another."
            )


def _check_place(path_or_repo: PathLike, revision: str | None) -> None:
    """Checks what can be checked without the Hub, which would be asked several times for a wrong name.

    Raises:
        OSError: If the path is that of a file, or can only be that of a folder and there is none.
        ValueError: If `revision` is given for a folder, or a file of it lies elsewhere.
    """
    if Path(path_or_repo).is_file():
        raise NotADirectoryError(
            f"`{path_or_repo}` must be a folder, but is a file instead. Name the folder {Path(path_or_repo).parent}."
        )
    if str(path_or_repo).endswith(os.sep) and not Path(path_or_repo).is_dir():
        raise FileNotFoundError(f"`{path_or_repo}` must be a folder, but there is none. Check the path.")
    if revision is not None and Path(path_or_repo).is_dir():
        raise ValueError(
            f"`revision` must be left out for a folder, but is {revision!r} for `{path_or_repo}`. Only a repository "
            "on the Hub has several."
        )
    if Path(path_or_repo).is_dir():
        check_stays_inside(path_or_repo)


def _check_folder(folder: Path) -> None:
    """Raises FileNotFoundError if a folder has no config.json or no weights."""
    if (folder / "config.json").exists() and any((folder / name).exists() for name in _WEIGHTS_FILES):
        return
    if (folder / "model.bin").exists() and list(folder.glob("*_vocabulary.json")):
        raise FileNotFoundError(
            f"`{folder}` must be a model's folder for the backend torch, but is an export for CTranslate2. Run it "
            "with `--backend ctranslate2`."
        )
    found = sorted(path.name for path in folder.iterdir())
    raise FileNotFoundError(
        f"`{folder}` must be a model's folder, with config.json and model.safetensors, but holds "
        f"{', '.join(found[:5]) or 'nothing'}{', ...' if len(found) > 5 else ''} instead. Name a folder that "
        f"`hf-seq2seq train` or `save_pretrained` wrote. {_WAY_TO_CONVERT.format(path=str(folder))}"
    )


def _read_config_fields(path_or_repo: PathLike, revision: str | None) -> dict[str, Any]:
    """Returns the fields of config.json, after a check that they describe a model of this package."""
    folder = Path(path_or_repo)
    if folder.is_dir():
        _check_folder(folder)
    try:
        file = cached_file(path_or_repo, "config.json", revision=revision)
    except Exception as error:  # the Hub's client raises errors of several libraries
        raise not_found(path_or_repo, "model", error, revision) from error
    assert file is not None  # else an error would have been raised
    fields = read_json_object(Path(file))
    model_type = fields.get("model_type")
    if model_type != Seq2SeqTransformerConfig.model_type:
        raise ValueError(
            f"The `model_type` in the config.json of `{path_or_repo}` must be "
            f"{Seq2SeqTransformerConfig.model_type!r}, but is {model_type!r} instead. Name a model of this package."
        )
    if fields.get("quantization_config") is not None:
        raise ValueError(
            f"The config.json of `{path_or_repo}` must have no `quantization_config`, but has one. Quantized weights "
            "are not read here: load the model that they were made from, or export that with `hf-seq2seq export`."
        )
    return fields


def _file_of(path_or_repo: PathLike, name: str, revision: str | None) -> str | None:
    """Returns the path of a file of a folder or repository, downloaded where need be, or None if there is none."""
    options: Any = {"revision": revision, "_raise_exceptions_for_missing_entries": False}
    return cached_file(path_or_repo, name, **options)


def _weights_files(path_or_repo: PathLike, revision: str | None) -> list[Path]:
    """Returns the files of the weights, downloaded where need be: safetensors files with the model's own weights.

    Without this check, transformers would do three things: with PEFT installed, load an adapter, and the model that it
    was made for, in place of the weights; ask a service on the Hub to convert the pickle file of a repository without
    safetensors, and load the result; and read the pickle files that a table of contents names.

    Raises:
        OSError: If there are no weights in safetensors files.
        ValueError: If there is an adapter, or the table of contents is damaged or names other files.
    """
    try:
        one, index, adapter = (_file_of(path_or_repo, name, revision) for name in (*_WEIGHTS_FILES, _ADAPTER_FILE))
    except OSError as error:
        raise not_found(path_or_repo, "model", error, revision) from error
    if adapter is not None:
        raise ValueError(
            f"`{path_or_repo}` must be a whole model, but holds an adapter too ({_ADAPTER_FILE}). Merge it into the "
            "model (`merge_and_unload` of peft), and save that in a folder of its own."
        )
    if one is not None:
        return [Path(one)]
    if index is None:
        raise FileNotFoundError(
            f"`{path_or_repo}` must have its weights in {SAFE_WEIGHTS_NAME}, but has no such file. "
            f"{_WAY_TO_CONVERT.format(path=str(path_or_repo))}"
        )
    _check_names_in(Path(index))
    try:
        names = set(read_json_object(Path(index))["weight_map"].values())
        if not names:
            raise ValueError("it names no file")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The {SAFE_WEIGHTS_INDEX_NAME} of `{path_or_repo}` must tell which file holds which weight, but is "
            f"damaged ({first_line(error)}). Copy it again."
        ) from error
    others = sorted(str(name) for name in names if not str(name).endswith(".safetensors"))
    if others:
        raise ValueError(
            f"The {SAFE_WEIGHTS_INDEX_NAME} of `{path_or_repo}` must name only safetensors files, but names "
            f"{others[0]!r}, which is not read. Ask whoever made it for another."
        )
    files = {name: _file_of(path_or_repo, name, revision) for name in sorted(names)}
    for name, file in files.items():
        if file is None:
            raise FileNotFoundError(
                f"`{path_or_repo}` must have the file {name}, which its index names, but has none."
            )
    return [Path(file) for file in files.values() if file is not None]


def _check_generation_config(path_or_repo: PathLike, revision: str | None, vocab_size: int) -> None:
    """Raises ValueError for a generation_config.json that cannot be followed.

    transformers would silently replace a damaged one, and fail with any error where a value is of the wrong kind.
    """
    try:
        file = _file_of(path_or_repo, "generation_config.json", revision)
    except OSError:
        return  # transformers looks for it next, and does without it
    if file is not None:
        check_generation_settings(read_generation_settings(Path(file)), vocab_size, f"`{file}`")


def not_found(path_or_repo: PathLike, kind: str, error: Exception, revision: str | None = None) -> FileNotFoundError:
    """Returns the error for a name that is no folder, and that the Hub did not give.

    Args:
        path_or_repo: The name.
        kind: What was looked for, such as "model".
        error: The error of the Hub's client.
        revision: Branch, tag or commit that was asked for.
    """
    at_revision = "" if revision is None else f" at revision {revision!r}"
    return FileNotFoundError(
        f"`{path_or_repo}` must be the folder of a {kind}, or the name of a repository on the Hub, but is no folder, "
        f"and the Hub did not give it{at_revision} ({_explain(error)})."
    )


def _explain(error: BaseException) -> str:
    """Returns why the Hub did not give something, and what to do, by the first error that its client raised."""
    causes = list(_causes(error))
    statuses = [cause.response.status_code for cause in causes if isinstance(cause, HfHubHTTPError)]
    status = statuses[-1] if statuses else None
    if status in (401, 403, 404):
        return (
            f"{first_line(error)} It says so of private ones too: check the name for a typing error, or sign in with "
            "`hf auth login`"
        )
    if status == 429:
        return "it must not be asked so often for now: wait a while, and run the same command again"
    if status is not None:
        return f"it answered {status}: run the same command again later"
    if any(isinstance(cause, httpx.TransportError) for cause in causes):
        return "it could not be reached: check the network, or the path for a typing error"
    return f"{first_line(error)} Check the path for a typing error"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
