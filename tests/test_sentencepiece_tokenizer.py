"""A SentencePiece model as a tokenizer: the pieces and ids of SentencePiece itself, and its file kept."""

import io
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from transformers import AutoTokenizer

from hf_seq2seq.sentencepiece_tokenizer import load_sentencepiece, sentencepiece_file


TEXTS = [
    "the cat sat on the mat",
    "  the   mat sat,  on the cat. ",
    "thecatsaton",
    "The\u00a0cat \uff21 caf\u00e9",
    "a </s> and <unk> in a text",
    "\u4e2d\u6587 the",
    "<0x41> is no byte",
    ">>de<< the cat",
    "",
]


def spm_file(folder: Path, **options: Any) -> Path:
    """A small SentencePiece model, trained here."""
    settings: dict[str, Any] = {
        "vocab_size": 60,
        "hard_vocab_limit": False,
        "minloglevel": 2,
        "character_coverage": 1.0,
    }
    model = io.BytesIO()
    lines = [
        f"the {word} sat on the mat, and then it ran" for word in ("cat", "dog", "rat", "hen", "caf\u00e9", "A <k/>u")
    ]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20), model_writer=model, **(settings | options)
    )
    path = folder / "any.spm"
    path.write_bytes(model.getvalue())
    return path


KINDS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "BPE": {"model_type": "bpe"},
    "as Marian trains it": {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1},
    "with every special token": {"pad_id": 3},
    "with bytes": {"byte_fallback": True, "vocab_size": 320},
    "with a language tag": {"user_defined_symbols": [">>de<<"]},
    "without a space before the text": {"add_dummy_prefix": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_and_texts_are_those_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    path = spm_file(tmp_path, **KINDS[kind])
    expected = sentencepiece.SentencePieceProcessor(model_file=str(path))
    load_sentencepiece(path).save_pretrained(tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in TEXTS:
        ids = expected.encode(text)
        assert tokenizer(text)["input_ids"] == [*ids, tokenizer.eos_token_id], text
        if expected.unk_id() not in ids:
            assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == expected.decode(ids)


PARTS = ["the", "cat", " ", "  ", "▁", "</s>", "<s>", "<unk>", "<0x41>", "<", "/", "s", ">", "é", "e\u0301", "\u3000"]
PARTS += ["\u2028", "\t", "ﬁ", "\u200b", "😀", ">>de<<", "<k/>u", "1", "-"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_of_random_odd_texts_are_those_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    path = spm_file(tmp_path, **KINDS[kind])
    expected, tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path)), load_sentencepiece(path)
    texts = ["".join(draw.choices(PARTS, k=draw.randint(1, 8))) for _ in range(300)]
    for text, ids in zip(texts, tokenizer(texts)["input_ids"], strict=True):
        assert ids == [*expected.encode(text), tokenizer.eos_token_id], text


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_keep_their_ids_or_come_last(kind: str, tmp_path: Path) -> None:
    expected = sentencepiece.SentencePieceProcessor(model_file=str(spm_file(tmp_path, **KINDS[kind])))
    tokenizer = load_sentencepiece(tmp_path / "any.spm")
    next_id = expected.get_piece_size()
    for name, number in (("pad", expected.pad_id()), ("bos", expected.bos_id()), ("eos", expected.eos_id())):
        if number < 0:
            number, next_id = next_id, next_id + 1
        assert getattr(tokenizer, f"{name}_token_id") == number
    assert (tokenizer.unk_token_id, len(tokenizer)) == (expected.unk_id(), next_id)
    assert load_sentencepiece(tmp_path / "any.spm", ["</s>"]).eos_token_id == expected.eos_id()


def test_only_the_special_tokens_that_are_asked_for_are_added(tmp_path: Path) -> None:
    path = spm_file(tmp_path, **KINDS["as Marian trains it"])
    size = sentencepiece.SentencePieceProcessor(model_file=str(path)).get_piece_size()
    tokenizer = load_sentencepiece(path, ["<pad>"])
    assert (tokenizer.pad_token_id, tokenizer.bos_token, len(tokenizer)) == (size, None, size + 1)


def test_the_file_is_kept_wherever_the_tokenizer_is_saved(tmp_path: Path) -> None:
    path = spm_file(tmp_path)
    load_sentencepiece(path).save_pretrained(tmp_path / "first")
    content = path.read_bytes()
    path.unlink()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "first")
    tokenizer.save_pretrained(tmp_path / "first")
    tokenizer.save_pretrained(tmp_path / "second")
    file = sentencepiece_file(AutoTokenizer.from_pretrained(tmp_path / "second"))
    assert file == tmp_path / "second/sentencepiece.model"
    assert file.read_bytes() == content
    assert str(tmp_path) not in (tmp_path / "second/tokenizer_config.json").read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no model", r"must be a SentencePiece model .*, but (cannot be read|holds no pieces)"),
        (b"", "but holds no pieces"),
    ],
)
def test_another_file_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "any.spm").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_sentencepiece(tmp_path / "any.spm")


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    path = spm_file(tmp_path, model_type="char")
    with pytest.raises(ValueError, match=r"any\.spm` must be a SentencePiece model .* but is of another kind"):
        load_sentencepiece(path)


def test_the_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = spm_file(tmp_path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match=r"needs the package sentencepiece, .* Run `pip install"):
        load_sentencepiece(path)
