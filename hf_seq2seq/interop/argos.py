"""Writes a model as a package of Argos Translate, which LibreTranslate serves.

A package is a zip of a folder with metadata.json, the model for CTranslate2, sentencepiece.model and README.md. Argos
cuts a text into sentences itself, with a splitter that it fetches at first use.
"""

import json
import shutil
import zipfile
from pathlib import Path

from babel import Locale, UnknownLocaleError
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike, new_folder
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.sentencepiece_tokenizer import sentencepiece_file

from .ctranslate2 import to_ctranslate2


_VERSION = "1.0"
_ENGINE_FILES = (
    "model.bin",
    "config.json",
    "shared_vocabulary.json",
    "source_vocabulary.json",
    "target_vocabulary.json",
)

_README = """# {source_name} to {target_name}

A package for Argos Translate, written by hf_seq2seq. Install it with `argospm install FILE`, or put the unzipped
folder where LibreTranslate has its packages.
"""


def to_argos(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: PathLike,
    source_language: str,
    target_language: str,
    quantization: str | None = None,
) -> Path:
    """Writes translate-SOURCE_TARGET-1_0.argosmodel.

    Argos searches with beam 4 and the length penalty 0.2, whatever the model's settings say.

    Args:
        model: The model. It is not changed.
        tokenizer: Its tokenizer, which was made from a SentencePiece model.
        folder: A new or empty folder.
        source_language: The code of the language that the model reads, such as "en".
        target_language: The code of the language that it writes.
        quantization: The type of the stored weights, such as "int8"; by default float32.

    Returns:
        The path of the file.

    Raises:
        ValueError: If the folder is not empty, the tokenizer is of another kind, a language is unknown, or the model
            has parts that CTranslate2 does not have.
        TypeError: If the model is not one of this package.
    """
    pieces = sentencepiece_file(tokenizer)
    if pieces is None:
        raise ValueError(
            "The tokenizer must be made from a SentencePiece model for Argos Translate, which knows no other, but is "
            f"a {type(tokenizer).__name__} without one. Train the model with one (`--tokenizer FILE.model`), or "
            "export it for another engine."
        )
    names = {code: _language_name(code) for code in (source_language, target_language)}
    package = f"translate-{source_language}_{target_language}-{_VERSION.replace('.', '_')}"
    metadata = {
        "package_version": _VERSION,
        "argos_version": "1.9",
        "from_code": source_language,
        "from_name": names[source_language],
        "to_code": target_language,
        "to_name": names[target_language],
    }
    with new_folder(folder) as unfinished:
        content = unfinished / "content"
        to_ctranslate2(model, tokenizer, content / "engine", quantization)
        _end_sources_itself(content / "engine/config.json")
        readme = _README.format(source_name=names[source_language], target_name=names[target_language])
        with zipfile.ZipFile(unfinished / f"{package}.argosmodel", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(f"{package}/metadata.json", json.dumps(metadata, ensure_ascii=False, indent=4))
            file.writestr(f"{package}/README.md", readme)
            file.write(pieces, f"{package}/sentencepiece.model")
            for name in _ENGINE_FILES:
                if (content / "engine" / name).exists():
                    file.write(content / "engine" / name, f"{package}/model/{name}")
        shutil.rmtree(content)
    return Path(folder) / f"{package}.argosmodel"


def export_model(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: PathLike,
    source_language: str | None = None,
    target_language: str | None = None,
    quantization: str | None = None,
) -> str:
    """Writes a package for the verb `export`, and returns how to use it.

    Raises:
        ValueError: As `to_argos` does, **or** if a language is not given.
    """
    if source_language is None or target_language is None:
        missing = "source" if source_language is None else "target"
        raise ValueError(f"`--{missing}-language` must be given for argos, such as `--{missing}-language en`.")
    path = to_argos(model, tokenizer, folder, source_language, target_language, quantization)
    return f"Install it with `argospm install {path}`."


def _language_name(code: str) -> str:
    """Returns the English name of a language, which users of Argos choose it by."""
    try:
        name = Locale.parse(code, sep="-").get_language_name("en")
    except (ValueError, UnknownLocaleError):
        name = None
    if name is None:
        raise ValueError(f"A language must be a code of ISO 639, such as en, but is {code!r} instead.")
    return name


def _end_sources_itself(config_file: Path) -> None:
    """Makes CTranslate2 add `</s>` to each source, which Argos does not."""
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config_file.write_text(json.dumps(config | {"add_source_eos": True}, indent=2), encoding="utf-8")
