"""Makes a tokenizer of this package from a SentencePiece model: the same pieces, with the same ids.

Beside tokenizer.json, `save_pretrained` then writes the SentencePiece model itself, as sentencepiece.model, since
other programs (Argos Translate, Marian) read only that.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import SpmConverter

from .atomic_writing import PathLike
from .error_messages import first_line
from .tokenization import SPECIAL_TOKENS, Seq2SeqTransformerTokenizer


# Constants of sentencepiece_model.proto.
_UNIGRAM, _BPE = 1, 2
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6
_NOT_SPELLABLE = (_UNKNOWN, _CONTROL, _BYTE)  # the types of pieces that no text can spell


def load_sentencepiece(path: PathLike, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> PreTrainedTokenizerFast:
    """Returns a tokenizer with the pieces and ids of a SentencePiece model, which ends each text with `</s>`.

    Where a text can be cut in two ways that are equally likely, such as hh + h and h + hh, it may choose the other.

    Args:
        path: The file, which usually ends in .model or .spm.
        special_tokens: Those of `<pad>`, `<s>`, `</s>` and `<unk>` that the tokenizer has to have. The ones that the
            model lacks get the ids after its last piece, in this order.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is no SentencePiece model of the kind unigram or BPE, or sentencepiece is not installed.
    """
    proto = read_sentencepiece(path)
    pieces = [piece.piece for piece in proto.pieces]
    scored = [(piece.piece, piece.score) for piece in proto.pieces]
    is_unigram = proto.trainer_spec.model_type == _UNIGRAM
    vocab = scored if is_unigram else {piece: number for number, piece in enumerate(pieces)}
    tokenizer: Any = SpmConverter.build_tokenizer_from_spm_proto(proto, vocab)
    _cut_control_pieces(tokenizer, proto)
    names = _special_names(proto.trainer_spec, pieces)
    added = [names[token] for token in special_tokens if names[token] not in pieces]
    controls = [piece.piece for piece in proto.pieces if piece.type == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in (*added, *controls)])
    eos = names["</s>"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    fields = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return Seq2SeqTransformerTokenizer(
        tokenizer_object=tokenizer,
        sentencepiece_file=str(path),
        split_special_tokens=True,  # a "</s>" in a text is text, as in SentencePiece
        clean_up_tokenization_spaces=False,
        **{field: names[token] for field, token in fields.items() if tokenizer.token_to_id(names[token]) is not None},
    )


def sentencepiece_file(tokenizer: PreTrainedTokenizerBase) -> Path | None:
    """Returns the SentencePiece model that a tokenizer was made from, or None if there is none."""
    path = tokenizer.init_kwargs.get("sentencepiece_file")
    return Path(path) if path is not None else None


def _cut_control_pieces(tokenizer: Any, proto: Any) -> None:
    """Has a text that spells a control or byte piece cut into two, so that it is text, as in SentencePiece.

    Two differences are left: if no two neighbours in it can be parted without cutting a piece, its pieces differ, and
    if all its characters are unknown, they are two `<unk>`, not one.
    """
    spellable = {piece.piece for piece in proto.pieces if piece.type not in _NOT_SPELLABLE}
    pairs = {piece[i : i + 2] for piece in spellable for i in range(len(piece) - 1)}
    cuts = []
    for piece in (piece.piece for piece in proto.pieces if piece.type in _NOT_SPELLABLE):
        places = range(1, len(piece))
        harmless = [i for i in places if piece[i - 1 : i + 1] not in pairs and spellable & {piece[i - 1], piece[i]}]
        place = next(iter(harmless), 1)
        before, last, after = (re.escape(part) for part in (piece[: place - 1], piece[place - 1], piece[place:]))
        cuts.append(f"(?<={before}){last}(?={after})" if before else f"{last}(?={after})")
    cut = pre_tokenizers.Split(Regex("|".join(cuts)), behavior="merged_with_previous")
    parts = [cut] if tokenizer.pre_tokenizer is None else [tokenizer.pre_tokenizer, cut]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)


def _special_names(spec: Any, pieces: Sequence[str]) -> dict[str, str]:
    """Returns what the model calls each of the special tokens of this package."""
    ids = {"<pad>": spec.pad_id, "<s>": spec.bos_id, "</s>": spec.eos_id, "<unk>": spec.unk_id}
    return {token: pieces[number] if 0 <= number < len(pieces) else token for token, number in ids.items()}


def read_sentencepiece(path: PathLike) -> Any:
    """Returns the protocol buffer (ModelProto) of a SentencePiece model; raises as `load_sentencepiece` does."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise ValueError(
            f"The SentencePiece model `{path}` needs the package sentencepiece, with protobuf, to be read. Run "
            "`pip install 'hf-seq2seq[export]'`."
        ) from error
    proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # made at run time
    content = Path(path).read_bytes()
    try:
        proto.ParseFromString(content)
    except Exception as error:  # protobuf's implementations raise errors of their own
        raise _no_model(path, f"cannot be read ({first_line(error)})") from error
    if not proto.pieces:
        raise _no_model(path, "holds no pieces")
    if proto.trainer_spec.model_type not in (_UNIGRAM, _BPE):
        raise _no_model(path, "is of another kind")
    return proto


def _no_model(path: PathLike, fault: str) -> ValueError:
    return ValueError(
        f"`{path}` must be a SentencePiece model of the kind unigram or BPE, but {fault}. Name another file."
    )
