"""The verb `import`: a foreign folder becomes one of ours that translates as before, tokenizer included."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    FSMTConfig,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
)

from hf_seq2seq import Seq2SeqTransformerConfig, Translator
from hf_seq2seq.data import tokenize_pairs
from hf_seq2seq.inspection import nearest_neighbours, trace
from hf_seq2seq.interop import to_ctranslate2
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.token_lookup import encode_sources, readable_texts
from hf_seq2seq.training.arguments import ModelArguments
from hf_seq2seq.training.preparing_model import new_config


Command = Callable[..., tuple[int, str, str]]

SOURCES = ["the cat sat on the mat", "a dog ran to the red house", "one two three"]
TARGETS = ["die katze lag auf der matte", "ein hund lief zum roten haus", "eins zwei drei"]
SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 128,
}


def train_pieces(lines: list[str], path: Path) -> list[str]:
    """Train a sentencepiece model and return its pieces without the special ones."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=40, hard_vocab_limit=False, minloglevel=2
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(piece) for piece in range(len(model)) if not model.is_control(piece)][1:]


def random_model(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name and "norm" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    pad = model.config.pad_token_id
    # No end is forced, since `generate` forces it at the limit of a batch and not of each text.
    model.generation_config.update(
        num_beams=3, bad_words_ids=[[pad]], repetition_penalty=3.0, forced_eos_token_id=None
    )
    return model.eval()


def write_marian(folder: Path, separate: bool) -> Any:
    """Write a MarianMT model with its tokenizer, of one vocabulary or two, as the Hub has them; return the model."""
    folder.mkdir()
    pieces = [train_pieces(SOURCES, folder / "source.spm"), train_pieces(TARGETS, folder / "target.spm")]
    if separate:
        pad = 2 + max(map(len, pieces))
        (folder / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": True}))
    else:
        pieces = [list(dict.fromkeys(pieces[0] + pieces[1]))]
        pad = 2 + len(pieces[0])
    for name, some in zip(("vocab.json", "target_vocab.json"), pieces, strict=False):
        vocabulary = {piece: number for number, piece in enumerate(["</s>", "<unk>", *some])} | {"<pad>": pad}
        (folder / name).write_text(json.dumps(vocabulary))
    config = MarianConfig(
        vocab_size=pad + 1,
        share_encoder_decoder_embeddings=not separate,
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        **SIZES,
    )
    model = random_model(MarianMTModel(config))
    model.save_pretrained(folder)
    return model


def write_fsmt(folder: Path) -> Any:
    """Write an FSMT model with its tokenizer, of two vocabularies, as the Hub has them; return the model."""
    folder.mkdir()
    sizes = []
    for name, lines, merged in (("src", SOURCES, ["th", "the</w>"]), ("tgt", TARGETS, ["di", "die</w>", "ei"])):
        letters = sorted(set("".join(lines)) - {" "})
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *merged, *letters, *(f"{letter}</w>" for letter in letters)]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        (folder / f"vocab-{name}.json").write_text(json.dumps(vocabulary))
        sizes.append(len(tokens))
    (folder / "merges.txt").write_text("t h 10\nth e</w> 9\nd i 8\ndi e</w> 7\ne i 6\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"langs": ["en", "de"], "model_max_length": 1024}))
    config = FSMTConfig(langs=["en", "de"], src_vocab_size=sizes[0], tgt_vocab_size=sizes[1], **SIZES)
    model = random_model(FSMTForConditionalGeneration(config))
    model.save_pretrained(folder)
    return model


def translations(model: Any, tokenizer: Any) -> list[str]:
    """What the original makes of each source, within our limit of the output's length and without unknown tokens."""
    results = []
    unknown = tokenizer.convert_ids_to_tokens(range(4)).index("<unk>")
    for text in SOURCES:
        inputs = tokenizer(text, return_tensors="pt")
        length = inputs["input_ids"].shape[1] + 50  # more tokens than its source
        [ids] = model.generate(**inputs, max_length=1 + length, suppress_tokens=[unknown]).tolist()
        results.append(tokenizer.decode(ids[1 : 1 + length], skip_special_tokens=True))
    return results


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("separate", [False, True])
def test_an_imported_marian_folder_translates_as_the_original(
    separate: bool, command: Command, tmp_path: Path
) -> None:
    original = write_marian(tmp_path / "marian", separate)
    expected = translations(original, MarianTokenizer.from_pretrained(tmp_path / "marian"))
    before = files(tmp_path)
    status, out, err = command("import", "marian", tmp_path / "marian", tmp_path / "ours")
    assert (status, err) == (0, "")
    assert "with its MarianTokenizer. Translate with it:" in out
    assert f"hf-seq2seq translate {tmp_path / 'ours'}" in out
    assert {path: data for path, data in files(tmp_path).items() if tmp_path / "ours" not in path.parents} == before

    shutil.rmtree(tmp_path / "marian")  # nothing of it is needed
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "ours"), MarianTokenizer)
    translator = Translator.from_pretrained(tmp_path / "ours")
    assert len(set(" ".join(expected))) > 5  # else nothing is shown
    assert translator(SOURCES) == expected


def test_an_imported_fsmt_folder_translates_as_the_original(command: Command, tmp_path: Path) -> None:
    original = write_fsmt(tmp_path / "fsmt")
    expected = translations(original, FSMTTokenizer.from_pretrained(tmp_path / "fsmt"))
    status, out, _ = command("import", "fsmt", tmp_path / "fsmt", tmp_path / "ours")
    assert status == 0
    assert "with its FSMTTokenizer. Translate with it:" in out

    shutil.rmtree(tmp_path / "fsmt")
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "ours"), FSMTTokenizer)
    translator = Translator.from_pretrained(tmp_path / "ours")
    assert len(set(" ".join(expected))) > 5
    assert translator(SOURCES) == expected


@pytest.mark.parametrize("write", [lambda folder: write_marian(folder, separate=True), write_fsmt])
def test_the_verb_translate_reads_the_imported_folder(
    write: Callable[[Path], Any], command: Command, tmp_path: Path
) -> None:
    kind = write(tmp_path / "foreign").config.model_type
    command("import", kind, tmp_path / "foreign", tmp_path / "ours")
    (tmp_path / "source.txt").write_text("".join(f"{text}\n" for text in SOURCES))
    status, out, _ = command("translate", tmp_path / "ours", "--input", tmp_path / "source.txt")
    assert status == 0
    assert out.splitlines() == Translator.from_pretrained(tmp_path / "ours")(SOURCES)


@pytest.mark.parametrize("separate", [False, True])
def test_an_imported_marian_tokenizer_encodes_targets_as_targets(
    separate: bool, command: Command, tmp_path: Path
) -> None:
    """And then sources as sources: https://github.com/huggingface/transformers/issues/6262."""
    write_marian(tmp_path / "marian", separate)
    names = ("target.spm", "target_vocab.json") if separate else ("target.spm", "vocab.json")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "marian" / names[0]))
    vocabulary = json.loads((tmp_path / "marian" / names[1]).read_text())
    expected = [vocabulary[piece] for piece in pieces.encode(TARGETS[0], out_type=str)] + [vocabulary["</s>"]]
    command("import", "marian", tmp_path / "marian", tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")

    source_ids = tokenizer(SOURCES[0])["input_ids"]
    for _ in range(2):
        assert tokenizer(SOURCES[0], text_target=TARGETS[0]) == {
            "input_ids": source_ids,
            "attention_mask": [1] * len(source_ids),
            "labels": expected,
        }
    assert source_ids != tokenizer(text_target=SOURCES[0])["input_ids"]
    with pytest.raises(ValueError, match="Input must be a string"):
        tokenizer(text_target={1: 2})
    assert tokenizer(SOURCES[0])["input_ids"] == source_ids


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (lambda folder: write_marian(folder, separate=True), ("vocab.json", "target_vocab.json")),
        (write_fsmt, ("vocab-src.json", "vocab-tgt.json")),
    ],
)
def test_each_side_s_tokens_are_of_its_own_vocabulary(
    write: Callable[[Path], Any], names: tuple[str, str], command: Command, tmp_path: Path
) -> None:
    kind = write(tmp_path / "foreign").config.model_type
    of_source, of_target = (json.loads((tmp_path / "foreign" / name).read_text()) for name in names)
    command("import", kind, tmp_path / "foreign", tmp_path / "ours")
    model, tokenizer = load_model(tmp_path / "ours"), load_tokenizer(tmp_path / "ours")
    [[hypothesis]] = Translator(model, tokenizer).hypotheses(SOURCES[:1], attention=True)
    assert [of_source[token] for token in hypothesis.source_tokens] == tokenizer(SOURCES[0])["input_ids"]
    assert [of_target[token] for token in hypothesis.tokens] == list(hypothesis.token_ids)

    [own], [given] = trace(model, tokenizer, SOURCES[:1]), trace(model, tokenizer, SOURCES[:1], [hypothesis])
    assert own.source_tokens == [token.replace("\u2581", "␣") for token in hypothesis.source_tokens]
    assert given.target_tokens == [token.replace("\u2581", "␣") for token in hypothesis.tokens] == own.target_tokens
    assert torch.equal(own.logits, given.logits)

    to_ctranslate2(model, tokenizer, tmp_path / "exported")
    for name, expected in (("source", of_source), ("target", of_target)):
        tokens = json.loads((tmp_path / "exported" / f"{name}_vocabulary.json").read_text())
        assert {token: tokens.index(token) for token in expected} == expected


def test_words_are_found_in_the_vocabulary_of_their_side(command: Command, tmp_path: Path) -> None:
    write_marian(tmp_path / "marian", separate=True)
    of_target = json.loads((tmp_path / "marian" / "target_vocab.json").read_text())
    gap = of_target.pop("e")
    (tmp_path / "marian" / "target_vocab.json").write_text(json.dumps(of_target))
    command("import", "marian", tmp_path / "marian", tmp_path / "ours")
    model, tokenizer = load_model(tmp_path / "ours"), load_tokenizer(tmp_path / "ours")
    table = model.get_decoder_input_embeddings().weight.detach()
    found = nearest_neighbours(model, tokenizer, "z", len(table) - 1, side="target")
    assert found.token == "␣z"
    cosines = torch.nn.functional.cosine_similarity(table, table[of_target["\u2581z"]][None])
    names = {number: token.replace("\u2581", "␣") for token, number in of_target.items()} | {gap: f"<{gap}>"}
    expected = [names.get(number, f"<{number}>") for number in cosines.topk(len(table)).indices.tolist()[1:]]
    assert found.tokens == expected
    assert f"<{gap}>" in expected


def test_a_new_model_has_a_table_for_each_vocabulary(command: Command, tmp_path: Path) -> None:
    write_marian(tmp_path / "marian", separate=True)
    of_target = json.loads((tmp_path / "marian" / "target_vocab.json").read_text())
    of_target["<pad>"] = max(of_target.values()) + 3
    (tmp_path / "marian" / "target_vocab.json").write_text(json.dumps(of_target))
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "marian")
    config = new_config(ModelArguments(), tokenizer)
    assert config.vocab_size == max(tokenizer.encoder.values()) + 1
    assert config.decoder_vocab_size == of_target["<pad>"] + 1 == config.vocab_size + 3
    assert not config.share_encoder_decoder_embeddings


def test_sources_are_read_by_the_source_s_vocabulary(tmp_path: Path) -> None:
    for separate in (False, True):
        write_marian(tmp_path / str(separate), separate)
    one, two = (MarianTokenizer.from_pretrained(tmp_path / name) for name in ("False", "True"))
    ids = two(SOURCES[:1])["input_ids"]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "True" / "source.spm"))
    assert readable_texts(two, ids, "source") == [" ".join(pieces.encode(SOURCES[0], out_type=str))]
    assert readable_texts(one, one(SOURCES[:1])["input_ids"], "source") == SOURCES[:1]


def test_targets_that_fsmt_would_encode_as_sources_are_refused(command: Command, tmp_path: Path) -> None:
    write_fsmt(tmp_path / "fsmt")
    command("import", "fsmt", tmp_path / "fsmt", tmp_path / "ours")
    model, tokenizer = load_model(tmp_path / "ours"), load_tokenizer(tmp_path / "ours")
    with pytest.raises(ValueError, match="must encode targets, but is an FSMTTokenizer with a vocabulary for each"):
        Translator(model, tokenizer)(SOURCES[0], prefix="die")
    with pytest.raises(ValueError, match="must encode targets"):
        trace(model, tokenizer, SOURCES[:1], TARGETS[:1])
    with pytest.raises(ValueError, match="must encode targets"):
        nearest_neighbours(model, tokenizer, "die", side="target")


@pytest.mark.parametrize(
    ("missing", "is_told", "message"),
    [
        (["target_vocab.json"], True, r"must have the files .*target_vocab\.json.*, but has no target_vocab\.json\."),
        (["tokenizer_config.json"], True, r"but has no tokenizer_config\.json\. Copy them there"),
        (["target_vocab.json", "tokenizer_config.json"], True, r"has no target_vocab\.json, tokenizer_config\.json\."),
        ([], False, r"tokenizer_config\.json` must hold `\"separate_vocabs\": true`, .* but does not\. Add it"),
    ],
)
def test_a_second_vocabulary_that_is_missing_or_not_told_of_is_named(
    missing: list[str], is_told: bool, message: str, command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "marian"
    write_marian(folder, separate=True)
    for name in missing:
        (folder / name).unlink()
    if not is_told:
        (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en"}))
    status, _, err = command("import", "marian", folder, tmp_path / "ours")
    assert status == 1
    assert re.search(message, err.splitlines()[-1])
    assert not (tmp_path / "ours").exists()


def test_a_config_of_an_fsmt_tokenizer_that_is_missing_is_named(command: Command, tmp_path: Path) -> None:
    write_fsmt(tmp_path / "fsmt")
    (tmp_path / "fsmt" / "tokenizer_config.json").unlink()
    status, _, err = command("import", "fsmt", tmp_path / "fsmt", tmp_path / "ours")
    assert status == 1
    assert "but has no tokenizer_config.json. Copy them there" in err


@pytest.mark.parametrize("write", [lambda folder: write_marian(folder, separate=True), write_fsmt])
def test_control_tokens_in_a_text_are_text_for_an_imported_tokenizer(
    write: Callable[[Path], Any], command: Command, tmp_path: Path
) -> None:
    kind = write(tmp_path / "foreign").config.model_type
    command("import", kind, tmp_path / "foreign", tmp_path / "ours")
    tokenizer = load_tokenizer(tmp_path / "ours")
    for text in ("the </s> cat <pad> sat", "</s>"):
        [ids] = encode_sources(tokenizer, [text])
        assert ids[-1] == tokenizer.eos_token_id
        assert not {tokenizer.eos_token_id, tokenizer.pad_token_id} & set(ids[:-1])
    [[hypothesis]] = Translator(load_model(tmp_path / "ours"), tokenizer).hypotheses(["a </s> cat"], attention=True)
    assert hypothesis.source_tokens.count("</s>") == 1
    [ids] = encode_sources(tokenizer, ["the <2de> </s>"])
    assert tokenizer.unk_token_id in ids
    tokenizer.add_tokens(["<2de>"])
    assert tokenizer.convert_tokens_to_ids("<2de>") in encode_sources(tokenizer, ["the <2de> cat"])[0]


def test_control_tokens_in_a_target_are_text_for_an_imported_tokenizer(tmp_path: Path) -> None:
    write_marian(tmp_path / "marian", separate=True)
    pairs = Dataset.from_list([{"source": SOURCES[0], "target": "die </s> katze"}])
    tokenizer = load_tokenizer(tmp_path / "marian")
    [row] = tokenize_pairs(pairs, tokenizer, max_length=99)
    assert row["labels"].count(tokenizer.eos_token_id) == 1


def test_a_folder_without_a_tokenizer_is_imported_and_told(command: Command, tmp_path: Path) -> None:
    write_fsmt(tmp_path / "fsmt")
    for name in ("vocab-src.json", "vocab-tgt.json", "merges.txt", "tokenizer_config.json"):
        (tmp_path / "fsmt" / name).unlink()
    status, out, _ = command("import", "fsmt", tmp_path / "fsmt", tmp_path / "ours")
    assert status == 0
    assert "It has no tokenizer, since the other has none." in out
    assert load_model(tmp_path / "ours").config.model_type == "seq2seq_transformer"


def test_a_folder_that_holds_something_is_left_alone(command: Command, tmp_path: Path) -> None:
    write_fsmt(tmp_path / "fsmt")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/notes.txt").write_text("mine")
    before = files(tmp_path)
    status, _, err = command("import", "fsmt", tmp_path / "fsmt", tmp_path / "ours")
    assert status == 1
    assert "must be a new or empty folder, but" in err
    assert "'notes.txt'" in err
    assert files(tmp_path) == before


def test_a_file_in_the_place_of_the_folder_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("mine")
    status, _, err = command("import", "fsmt", tmp_path / "fsmt", tmp_path / "ours")
    assert status == 1
    assert "is a file. Name another folder." in err


@pytest.mark.parametrize("kind", ["marian", "fsmt"])
def test_what_cannot_be_imported_leaves_no_folder_behind(kind: str, command: Command, tmp_path: Path) -> None:
    Seq2SeqTransformerConfig().save_pretrained(tmp_path / "wrong")
    status, _, err = command("import", kind, tmp_path / "wrong", tmp_path / "ours")
    assert status == 1
    assert f"must be '{kind}', but is 'seq2seq_transformer' instead" in err
    assert not (tmp_path / "ours").exists()


def test_an_unknown_kind_is_named(command: Command, tmp_path: Path) -> None:
    status, _, err = command("import", "bart", tmp_path / "bart", tmp_path / "ours")
    assert status == 2
    assert "'bart' is not one of 'fsmt', 'marian'" in err
