"""Reads the folder of a Marian C++ model: which file holds what, the options, and why a model may not be read."""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.error_messages import first_line
from hf_seq2seq.loading import check_stays_inside

from .marian_cpp_names import CLASSIC, NEW


Arrays = dict[str, np.ndarray[Any, Any]]

OPTIONS_NAME = "special:model.yml"  # the array in the .npz that holds the options as text

# Options that change the network, or the text that it reads, and the only values that can be represented.
_EXPECTED: dict[str, tuple[Any, ...]] = {
    "transformer-decoder-autoreg": ("self-attention",),
    "guided-alignment": ("none",),
    "transformer-guided-alignment-layer": ("last",),
    "factors-dim-emb": (0,),
    "lemma-dim-emb": (0,),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "transformer-tied-layers": ([],),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "right-left": (False,),
    "ulr": (False,),
}
_REASONS = {
    "transformer-decoder-autoreg": "a decoder with recurrent or averaging layers is another network",
    "guided-alignment": "training with word alignments does not go on here; delete {yml} to import the weights alone",
}


@dataclass(frozen=True)
class MarianFolder:
    """What a folder of Marian's holds.

    Attributes:
        model: The .npz file.
        vocabularies: The vocabularies of source and target, which may be one file; empty if none is named or found.
        decoder: The settings in decoder.yml, or none.
        options: The model's options.
        arrays: The weights.
    """

    model: Path
    vocabularies: tuple[Path, ...]
    decoder: dict[str, Any]
    options: dict[str, Any]
    arrays: Arrays

    @property
    def layout(self) -> str:
        """`CLASSIC` or `NEW`, by the names of the weights: Marian can train the type of the one in the other."""
        return NEW if any(name.startswith("TransformerBatch") for name in self.arrays) else CLASSIC


def is_marian_cpp(path: PathLike) -> bool:
    """Returns True for a folder that Marian C++ wrote, by its .npz or its 8-bit file, and not transformers."""
    folder = Path(path)
    if not folder.is_dir():
        return False
    is_stock = (folder / "config.json").exists()
    return any(folder.glob("*.npz")) or (not is_stock and any(folder.glob("*.bin")))


def read_folder(path: PathLike) -> MarianFolder:
    """Reads a folder's files.

    The model and the vocabularies are those that decoder.yml or MODEL.npz.decoder.yml names. Without such a file, the
    model is the only .npz, and the vocabularies are vocab.spm, or source.spm and target.spm, or the only vocab.yml.

    Raises:
        FileNotFoundError: If there is no such folder, or no model in it.
        ValueError: If the folder holds several models, or a file that is damaged or lies elsewhere.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"`{path}` must be a folder of Marian C++, but there is none. Check the path.")
    check_stays_inside(folder)
    decoder = _read_decoder_settings(folder)
    model = _find_model(folder, decoder)
    options, arrays = _read_model(model)
    return MarianFolder(model, _find_vocabularies(folder, decoder), decoder, options, arrays)


def faults(folder: MarianFolder) -> list[str]:
    """Returns a sentence for each option of a model that this package cannot represent."""
    options, training = folder.options, folder.model.with_name(f"{folder.model.name}.yml")
    if options.get("type") not in (CLASSIC, NEW):
        return [f"its `type` is {options.get('type')!r}, not {CLASSIC!r} or {NEW!r}"]
    told = options if "guided-alignment" in options else options | _guided_alignment(training)
    found = [
        f"`{name}` is {told[name]!r}, not {values[0]!r}"
        + (f" ({_REASONS[name].format(yml=training.name)})" if name in _REASONS else "")
        for name, values in _EXPECTED.items()
        if told.get(name, values[0]) not in values
    ]
    found += [f"`{path.name}` is a vocabulary with factors" for path in folder.vocabularies if path.suffix == ".fsv"]
    norms = tuple(_without_dropout(options, f"transformer-{place}") for place in _NORM_PLACES)
    if norms not in (_POST_NORM, _PRE_NORM):
        shown = ", ".join(
            f"`transformer-{place}` {options.get(f'transformer-{place}', '')!r}" for place in _NORM_PLACES
        )
        found.append(f"its norms are neither those of post-norm ('', '', 'an', '') nor of pre-norm, but {shown}")
    elif norms == _PRE_NORM and folder.layout == CLASSIC and _version(options) < _FIRST_WITH_NORMED_KEYS:
        found.append(f"Marian {options['version'].split()[0]} trained it with pre-norm of the queries alone")
    activation = options.get("transformer-ffn-activation")
    if activation not in ACTIVATIONS:
        found.append(f"`transformer-ffn-activation` is {activation!r}, none of {', '.join(ACTIVATIONS)}")
    quantized = sorted(name for name, array in folder.arrays.items() if array.dtype.kind != "f")
    if quantized:
        found.append(f"it is an 8-bit file: `{quantized[0]}` holds {folder.arrays[quantized[0]].dtype} numbers")
    return found


# Marian's activation functions, and transformers' names of them. Before version 1.12, its GELU was x sigmoid(1.702 x).
ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu"}

# Where Marian normalises, and what the options say there, dropout ("d") left out.
_NORM_PLACES = ("preprocess", "postprocess-emb", "postprocess", "postprocess-top")
_POST_NORM, _PRE_NORM = ("", "", "an", ""), ("n", "", "a", "n")


# Until then, pre-norm left the keys and values of self-attention as they were.
_FIRST_WITH_NORMED_KEYS = (1, 10, 28)


def _version(options: dict[str, Any]) -> tuple[int, ...]:
    """Returns the version of the Marian that saved a model, or a high one where the model does not say."""
    found = re.match(r"v(\d+)\.(\d+)\.(\d+)", str(options.get("version")))
    return tuple(map(int, found.groups())) if found else (99,)


def is_pre_norm(options: dict[str, Any]) -> bool:
    """Returns True if the options are those of pre-norm, False if those of post-norm."""
    return "n" in str(options.get("transformer-preprocess", ""))


def _without_dropout(options: dict[str, Any], name: str) -> str:
    return str(options.get(name) or "").replace("d", "")


def _guided_alignment(training_settings: Path) -> dict[str, Any]:
    """Returns this option of the training, which the model's own do not hold."""
    if not training_settings.exists():
        return {}
    settings = _read_yaml(training_settings)
    return {name: settings[name] for name in ("guided-alignment",) if name in settings}


def _read_decoder_settings(folder: Path) -> dict[str, Any]:
    named = folder / "decoder.yml"
    found = [named] if named.exists() else sorted(folder.glob("*.decoder.yml"))
    if len(found) > 1:
        raise ValueError(
            f"`{folder}` must hold one decoder.yml, but holds {', '.join(path.name for path in found)}. Name the one "
            "of the model to import decoder.yml."
        )
    return _read_yaml(found[0]) if found else {}


def _find_model(folder: Path, decoder: dict[str, Any]) -> Path:
    named = [Path(str(name)).name for name in decoder.get("models") or []]
    found = [path.name for path in sorted(folder.glob("*.npz")) if not path.name.endswith(".optimizer.npz")]
    names = named or found
    if not names:
        eight_bit = sorted(path.name for path in folder.glob("*.bin"))
        raise _unreadable(folder, f"its {eight_bit[0]} is an 8-bit file") if eight_bit else _nothing(folder, "*.npz")
    if len(names) > 1:
        raise ValueError(
            f"`{folder}` must hold one model, but {'decoder.yml names' if named else 'it holds'} {', '.join(names)}. "
            "Copy the one to import, with its decoder.yml and vocabularies, into a folder of its own."
        )
    if not names[0].endswith(".npz"):
        raise _unreadable(folder, f"its {names[0]} is no .npz, but an 8-bit file")
    if not (folder / names[0]).exists():
        raise _nothing(folder, names[0])
    return folder / names[0]


def _find_vocabularies(folder: Path, decoder: dict[str, Any]) -> tuple[Path, ...]:
    named = [Path(str(name)).name for name in decoder.get("vocabs") or []]
    if not named:
        for names in (("vocab.spm",), ("source.spm", "target.spm"), ("vocab.yml",)):
            if all((folder / name).exists() for name in names):
                named = list(names)
                break
    paths = [folder / name for name in named]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise _nothing(folder, missing[0])
    return (*paths, *paths)[:2] if len(paths) == 1 else tuple(paths)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"`{path}` must be YAML, but is not ({first_line(error)}). Copy it again.") from error
    if not isinstance(settings, dict):
        raise ValueError(f"`{path}` must hold settings, but holds {type(settings).__name__}. Copy it again.")
    return settings


def _read_model(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Returns the options and the weights in a .npz."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        text = arrays.pop(OPTIONS_NAME).tobytes().rstrip(b"\0").decode()
        options = yaml.safe_load(io.StringIO(text))
        if not isinstance(options, dict):
            raise ValueError("its options are no table")
    except KeyError as error:
        raise ValueError(
            f"`{path}` must hold the options of a model ({OPTIONS_NAME}), but does not. Name the model that Marian "
            "saved, and not the state of its optimizer."
        ) from error
    except Exception as error:  # a damaged file makes zipfile, zlib, numpy and yaml raise all kinds of errors
        raise ValueError(
            f"`{path}` must be a whole .npz, but is damaged ({first_line(error)}). Copy it again."
        ) from error
    return options, arrays


def _nothing(folder: Path, name: str) -> FileNotFoundError:
    return FileNotFoundError(f"`{folder}` must hold {name}, but does not. Copy it there from where the model is.")


def _unreadable(folder: Path, fault: str) -> ValueError:
    return ValueError(
        f"`{folder}` must be a model that this package can represent, but {fault}, which lacks what was rounded away. "
        "Name the .npz that it was made from."
    )
