"""Reads and writes the vocabularies of Marian C++, and makes tokenizers of them.

Marian's own vocabularies have `</s>` and `<unk>`, but no padding and no start token. An imported model gets one more
token, `<pad>`, for both.
"""

import json
import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MarianTokenizer, PreTrainedTokenizerBase

from hf_seq2seq.error_messages import first_line
from hf_seq2seq.sentencepiece_tokenizer import load_sentencepiece, read_sentencepiece, sentencepiece_file
from hf_seq2seq.token_lookup import vocabulary
from hf_seq2seq.tokenization import Seq2SeqTransformerTokenizer


logger = logging.getLogger(__name__)

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"


def read_vocabulary(path: Path) -> dict[str, int]:
    """Returns the id of each token in a vocabulary: a SentencePiece model, a table in YAML or JSON, or lines of text.

    Raises:
        ValueError: If the file is damaged, or lacks `</s>` or `<unk>`.
    """
    if path.suffix == ".spm":
        pieces = [piece.piece for piece in read_sentencepiece(path).pieces]
        tokens = {piece: number for number, piece in enumerate(pieces)}
    else:
        try:
            tokens = _read_table(path)
        except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise ValueError(
                f"`{path}` must be a vocabulary, but cannot be read ({first_line(error)}). Copy it again."
            ) from error
    for token in (END, UNKNOWN):
        if token not in tokens:
            raise ValueError(f"`{path}` must be a vocabulary of Marian's, with {token!r}, but has none.")
    return tokens


def _read_table(path: Path) -> dict[str, int]:
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yml", ".yaml", ".json"):
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # by which `null` and `1` are tokens like any other
        return {token: int(number) for token, number in yaml.load(text, Loader=loader).items()}
    return {token: number for number, token in enumerate(text.splitlines())}


def make_tokenizer(files: tuple[Path, ...], pad_id: int) -> PreTrainedTokenizerBase | None:
    """Returns a tokenizer with the ids of a model's vocabularies, and `<pad>`.

    Args:
        files: The vocabularies of source and target. Beside a table may lie source.spm and target.spm, which cut a
            text into its tokens; without them, the tokens of a text are what stands between white space.
        pad_id: The id of `<pad>`.

    Returns:
        The tokenizer, or None where source and target have a table each and no SentencePiece models, since no
        tokenizer of transformers is of that kind.

    Raises:
        ValueError: If a file is damaged.
    """
    if not files:
        return None
    source, target = files
    is_joint = source == target or source.read_bytes() == target.read_bytes()
    if source.suffix == ".spm" and is_joint:
        return load_sentencepiece(source, [PAD])
    cutters = files if source.suffix == ".spm" else (source.with_name("source.spm"), source.with_name("target.spm"))
    tables = [read_vocabulary(path) | {PAD: pad_id} for path in files]
    if all(path.exists() for path in cutters):
        return _marian_tokenizer(cutters, tables, is_joint)
    if is_joint:
        return _word_tokenizer(tables[0])
    logger.warning(
        "The tokenizer is left out, since source and target have a vocabulary each (%s, %s) without the SentencePiece "
        "models source.spm and target.spm. Copy them there, if a text was cut by them.",
        *(path.name for path in files),
    )
    return None


def _marian_tokenizer(cutters: Iterable[Path], tables: list[dict[str, int]], is_joint: bool) -> MarianTokenizer:
    """Returns the tokenizer of MarianMT models, which has an own table for each side or one for both."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("vocab.json", "target_vocab.json")]
        for path, table in zip(paths, tables, strict=True):
            path.write_text(json.dumps(table), encoding="utf-8")
        source, target = map(str, cutters)
        tokenizer = MarianTokenizer(
            source, target, str(paths[0]), str(paths[1]) if not is_joint else None, separate_vocabs=not is_joint
        )
        tokenizer.init_kwargs.pop("target_vocab_file", None)  # the file is gone; `save_pretrained` writes it anew
    return tokenizer


def _word_tokenizer(tokens: dict[str, int]) -> Seq2SeqTransformerTokenizer:
    """Returns a tokenizer of what stands between white space."""
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, tokens[END])]
    )
    return Seq2SeqTransformerTokenizer(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def write_vocabularies(tokenizer: PreTrainedTokenizerBase, sizes: tuple[int, int], folder: Path) -> list[str]:
    """Writes the vocabularies of source and target into a folder.

    A SentencePiece model whose ids are the model's is written with the tokens that were added to it as its last
    pieces: Marian then takes text. Else it is a table of the tokens, into which a text has to be cut before.

    Args:
        tokenizer: The tokenizer.
        sizes: The number of tokens of source and target in the model that is written.
        folder: The folder.

    Returns:
        The names of the files, one for each side.
    """
    tables = [vocabulary(tokenizer, "source"), vocabulary(tokenizer, "target")]
    cutters = _sentencepiece_files(tokenizer)
    is_joint = tables[0] == tables[1]
    ends = tokenizer.eos_token_id
    if cutters and all(_has_ids_of(path, table, ends) for path, table in zip(cutters, tables, strict=True)):
        names = ["vocab", "vocab"] if is_joint and cutters[0] == cutters[1] else ["source", "target"]
        for name, path, table, size in zip(names, cutters, tables, sizes, strict=True):
            _write_sentencepiece(path, table, size, folder / f"{name}.spm")
        return [f"{name}.spm" for name in names]
    for path, name in zip(cutters, ("source.spm", "target.spm"), strict=False):
        shutil.copyfile(path, folder / name)
    names = ["vocab", "vocab"] if is_joint else ["source.vocab", "target.vocab"]
    for name, table, size in zip(names, tables, sizes, strict=True):
        _write_table(table, size, folder / f"{name}.yml")
    return [f"{name}.yml" for name in names]


def _sentencepiece_files(tokenizer: Any) -> list[Path]:
    """Returns the SentencePiece models of source and target, or none."""
    if isinstance(tokenizer, MarianTokenizer):
        return [Path(path) for path in tokenizer.spm_files]
    path = sentencepiece_file(tokenizer)
    return [] if path is None else [path, path]


def _has_ids_of(path: Path, table: dict[str, int], end_id: Any) -> bool:
    proto = read_sentencepiece(path)
    is_same = all(table.get(piece.piece) == number for number, piece in enumerate(proto.pieces))
    return is_same and proto.trainer_spec.eos_id == end_id


def _write_sentencepiece(path: Path, table: dict[str, int], size: int, copy: Path) -> None:
    """Copies a SentencePiece model, with a control piece for each id that it lacks."""
    proto = read_sentencepiece(path)
    tokens = {number: token for token, number in table.items()}
    for number in range(len(proto.pieces), size):
        piece = proto.pieces.add()
        piece.piece, piece.score, piece.type = tokens.get(number, f"<unused-{number}>"), 0.0, piece.CONTROL
    copy.write_bytes(proto.SerializeToString())


def _write_table(table: dict[str, int], size: int, path: Path) -> None:
    """Writes a table as JSON, which is YAML too. An id without a token gets a name that no token has."""
    tokens = {number: token for token, number in table.items()}
    rows = {tokens.get(number, f"<unused-{number}>"): number for number in range(size)}
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=0), encoding="utf-8")
