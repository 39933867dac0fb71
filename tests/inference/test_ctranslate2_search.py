"""The backend ctranslate2 translates as PyTorch does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from inference.test_translator import letters_model, random_texts
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.interop import to_ctranslate2


@pytest.fixture
def translators(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> tuple[Translator, Translator]:
    """The same model in PyTorch and in CTranslate2, which bans tokens before the softmax."""
    model = letters_model(end_bias=5.0, decoder_layers=2)
    model.generation_config.update(num_beams=4, length_penalty=0.6, early_stopping=True, renormalize_logits=True)
    to_ctranslate2(model, letter_tokenizer, tmp_path / "exported")
    return Translator(model, letter_tokenizer), Translator.from_pretrained(
        tmp_path / "exported", backend="ctranslate2"
    )


@pytest.mark.parametrize(
    "options", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 4, "length_penalty": 2.0}], ids=str
)
def test_translations_are_the_same(translators: tuple[Translator, Translator], options: dict[str, Any]) -> None:
    ours, theirs = translators
    texts = ["", *random_texts(3, 8, 1, 5, 13, 2), "  "]
    assert theirs(texts, **options) == ours(texts, **options)


def test_hypotheses_have_the_same_scores(translators: tuple[Translator, Translator]) -> None:
    ours, theirs = (translator.hypotheses(random_texts(3, 8, 5), beam_size=4, n_best=2) for translator in translators)
    for row, other_row in zip(ours, theirs, strict=True):
        for hypothesis, other in zip(row, other_row, strict=True):
            assert hypothesis.tokens == other.tokens
            # Not quite: what probability the two banned tokens have is shared out among the others there.
            assert other.token_log_probs == pytest.approx(hypothesis.token_log_probs, abs=0.2)
            assert other.score == pytest.approx(hypothesis.score, abs=0.2)


@pytest.mark.parametrize("prefix", [None, "a b"])
def test_a_model_by_words_writes_no_unknown_word_and_scores_are_in_order(
    prefix: str | None, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """https://github.com/OpenNMT/OpenNMT/issues/56 and https://github.com/OpenNMT/OpenNMT-py/issues/2173."""
    model = letters_model(end_bias=5.0, decoder_layers=2)
    with torch.no_grad():
        model.lm_head.bias[3] = 4.0
    to_ctranslate2(model, letter_tokenizer, tmp_path / "exported")
    translator = Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2")
    for found in translator.hypotheses(random_texts(3, 8, 5, 2), n_best=4, beam_size=4, prefix=prefix):
        assert len({hypothesis.text for hypothesis in found}) == 4
        assert not any("<unk>" in hypothesis.tokens for hypothesis in found)
        scores = [hypothesis.score or 0.0 for hypothesis in found]
        assert scores == sorted(scores, reverse=True)


def test_a_text_that_is_too_long_is_cut_split_or_skipped(translators: tuple[Translator, Translator]) -> None:
    ours, theirs = translators
    texts = random_texts(3, 8, 5)
    for over_long in ("cut", "split", "skip"):
        options: Any = {"max_source_tokens": 6, "over_long": over_long}
        assert theirs(texts, **options) == ours(texts, **options)


def test_prefixes_are_gone_on_from(translators: tuple[Translator, Translator]) -> None:
    ours, theirs = translators
    texts, prefixes = random_texts(3, 8, 5), ["a b", "", "c"]
    assert theirs(texts, prefix=prefixes, beam_size=4) == ours(texts, prefix=prefixes, beam_size=4)


def test_samples_with_one_candidate_are_greedy(translators: tuple[Translator, Translator]) -> None:
    _, theirs = translators
    texts = random_texts(3, 8, 5)
    assert theirs(texts, do_sample=True, top_k=1) == theirs(texts, beam_size=1)


def test_an_output_may_fill_the_table_of_positions(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    to_ctranslate2(letters_model(end_bias=-1e4), letter_tokenizer, tmp_path / "endless")
    translator = Translator.from_pretrained(tmp_path / "endless", backend="ctranslate2")
    assert len(translator("a " * 1000, beam_size=1).split()) == 1024


def test_lines_are_streamed(translators: tuple[Translator, Translator]) -> None:
    ours, theirs = translators
    texts = random_texts(3, 8, 5)
    assert list(theirs.stream(texts)) == ours(texts)


def test_what_it_lacks_is_named(translators: tuple[Translator, Translator], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`attention` must be False with the backend ctranslate2"):
        translators[1].hypotheses(["a"], attention=True)
    with pytest.raises(FileNotFoundError, match=r"must be a folder with the model.bin of CTranslate2, but has none"):
        Translator.from_pretrained(tmp_path, backend="ctranslate2")


def test_samples_are_drawn_as_the_model_s_settings_say(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = letters_model(end_bias=5.0, decoder_layers=2)
    to_ctranslate2(model, letter_tokenizer, tmp_path / "plain")
    # generate's, which is 50 for top_k: all of these tokens
    plain = Translator.from_pretrained(tmp_path / "plain", backend="ctranslate2")
    usual = plain.settings(do_sample=True)
    assert (usual.top_k, usual.top_p, usual.temperature) == (50, 1.0, 1.0)
    many = plain(["a b"] * 20, do_sample=True)
    assert len(set(many)) > 1
    model.generation_config.update(do_sample=True, top_k=1)
    to_ctranslate2(model, letter_tokenizer, tmp_path / "one")
    translator = Translator.from_pretrained(tmp_path / "one", backend="ctranslate2")
    texts = random_texts(3, 8, 5)
    assert translator(texts, do_sample=True) == translator(texts, beam_size=1)
    assert len(set(translator(["a b"] * 20, do_sample=True, top_k=0))) > 1  # of all tokens


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.bin", b"12345678", "CTranslate2 cannot load `.*` on device 'cpu'"),
        (
            "config.json",
            b'{"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}',
            "must be written by `hf-seq2seq export ctranslate2`, but was by another program",
        ),
    ],
)
def test_a_damaged_folder_is_told(
    name: str, content: bytes, message: str, translators: tuple[Translator, Translator], tmp_path: Path
) -> None:
    (tmp_path / "exported" / name).write_bytes(content)
    (tmp_path / "exported" / "generation_config.json").unlink()  # which other programs do not write
    with pytest.raises(ValueError, match=message):
        Translator.from_pretrained(tmp_path / "exported", backend="ctranslate2", device="cpu")
