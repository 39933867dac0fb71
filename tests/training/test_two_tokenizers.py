"""Runs whose sides have a tokenizer each, trained or given, and SentencePiece models as tokenizers."""

from pathlib import Path
from typing import Any, cast

import pytest
import sentencepiece
import torch
from reference.tiny_runs import Settings, command_line, tiny_settings

from hf_seq2seq import Translator
from hf_seq2seq.hub import save_for_hub
from hf_seq2seq.interop import to_ctranslate2
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.training.command_line import parse_arguments
from hf_seq2seq.training.run import run_training


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return {**tiny_settings(tmp_path_factory.mktemp("pairs")), "max_steps": 2}


def run(settings: Settings, output_dir: Path, **overrides: Any) -> dict[str, Any]:
    return run_training(*parse_arguments(command_line(settings | overrides | {"output_dir": output_dir})))


@pytest.fixture(scope="module")
def trained(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output_dir = tmp_path_factory.mktemp("run") / "out"
    run(settings, output_dir, vocab_size=30, decoder_vocab_size=20, save_steps=1)
    return output_dir


def lines(settings: Settings, name: str) -> list[str]:
    return Path(settings[name]).read_text(encoding="utf-8").splitlines()


def test_a_vocabulary_size_for_the_target_trains_a_tokenizer_for_each_side(settings: Settings, trained: Path) -> None:
    tokenizer: Any = load_tokenizer(trained)
    for side in ("source", "target"):
        letters = set("".join(lines(settings, f"train_{side}")))
        assert set(getattr(tokenizer, f"{side}_tokenizer").get_vocab()) == {"<pad>", "<s>", "</s>", "<unk>", *letters}
    config = load_model(trained).config
    sizes = len(tokenizer.source_tokenizer), len(tokenizer.target_tokenizer)
    assert (config.vocab_size, config.decoder_vocab_size) == sizes
    assert not config.share_encoder_decoder_embeddings


def test_a_model_with_two_tokenizers_is_translated_scored_and_exported(
    settings: Settings, trained: Path, tmp_path: Path
) -> None:
    model, tokenizer = load_model(trained), cast(Any, load_tokenizer(trained))
    sources = lines(settings, "validation_source")
    translations = Translator(model, tokenizer)(sources, beam_size=1)
    ids = model.generate(**tokenizer(sources[:1], return_tensors="pt"), num_beams=1)
    assert translations[0][:5] == tokenizer.target_tokenizer.decode(ids[0], skip_special_tokens=True)[:5] != ""

    to_ctranslate2(model, tokenizer, tmp_path / "exported")
    exported = Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2")
    assert exported(sources, beam_size=1) == translations

    save_for_hub(model, tokenizer, tmp_path / "published", repo_id="YOU/pair")
    card = (tmp_path / "published" / "README.md").read_text(encoding="utf-8")
    assert f"{len(tokenizer)} tokens (WordLevel) of the source and" in card
    assert "which takes the package hf_seq2seq" in card
    assert "trust_remote_code=True" not in card
    assert Translator.from_pretrained(tmp_path / "published")(sources, beam_size=1) == translations


def test_it_goes_on_and_is_trained_further_with_both(settings: Settings, trained: Path, tmp_path: Path) -> None:
    further = {name: settings[name] for name in settings if name.startswith(("train_", "validation_"))}
    run({**further, "max_steps": 1}, tmp_path / "tuned", model_name_or_path=trained, extra_token="<new>")
    model, tokenizer = load_model(tmp_path / "tuned"), load_tokenizer(tmp_path / "tuned")
    before = load_model(trained)
    assert model.config.vocab_size == before.config.vocab_size + 1
    assert (model.config.decoder_vocab_size or 0) - (before.config.decoder_vocab_size or 0) == 1
    assert tokenizer("<new>")["input_ids"][0] == before.config.vocab_size


def test_ready_tokenizers_make_the_run_that_trained_ones_make(
    settings: Settings, trained: Path, tmp_path: Path
) -> None:
    tokenizer: Any = load_tokenizer(trained)
    given: Settings = {"vocab_size": None, "tokenizer_kind": None}
    for side in ("source", "target"):
        getattr(tokenizer, f"{side}_tokenizer").save_pretrained(tmp_path / side)
        given[f"{side}_tokenizer"] = tmp_path / side
    run(settings, tmp_path / "out", **given)
    weights, others = load_model(trained).state_dict(), load_model(tmp_path / "out").state_dict()
    assert all(torch.equal(others[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_sentencepiece_model_is_a_tokenizer_with_its_ids(place: str, settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "spm"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines(settings, "train_source"), *lines(settings, "train_target")]),
        model_prefix=str(folder / "x"),
        vocab_size=40,
        hard_vocab_limit=False,
    )
    named = folder / "x.model" if place == "file" else folder
    run(settings, tmp_path / "out", tokenizer=named, vocab_size=None, tokenizer_kind=None, max_steps=1)
    tokenizer = load_tokenizer(tmp_path / "out")
    original = sentencepiece.SentencePieceProcessor(model_file=str(folder / "x.model"))
    texts = ["one two", "  zwei   drei ", "fünf</s>", "<pad>", "▁one", "x\u00a0é"]
    assert tokenizer(texts)["input_ids"] == [[*original.encode(text), original.eos_id()] for text in texts]
    Translator.from_pretrained(tmp_path / "out")(texts)


def test_a_folder_of_two_sentencepiece_models_is_refused(settings: Settings, tmp_path: Path) -> None:
    for name in ("a.model", "b.spm"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"must hold one tokenizer, but holds the SentencePiece models a.model and b"):
        run(settings, tmp_path / "out", tokenizer=tmp_path, vocab_size=None, tokenizer_kind=None)
