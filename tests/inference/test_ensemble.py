"""An ensemble predicts with the mean of its models' probabilities, in every search."""

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference.test_translator import letters_model, random_texts
from model.test_generation import END, PAD, SOURCES, START, NextLogProbs, ending_model, inputs_of, outputs_of
from reference.brute_force_search import beam_search
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator, output_limits, train_tokenizer
from hf_seq2seq.inference import Ensemble


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 3)


def two_models() -> list[Any]:
    """Models of unlike widths, depths and positions, whose outputs differ."""
    wider: dict[str, Any] = {"d_model": 24, "decoder_layers": 3, "position_embedding_type": "learned"}
    return [ending_model(0), ending_model(1, **wider)]


class MeanLogProbs:
    """The logarithm of the mean of next-token probabilities, each from a forward pass without a cache."""

    def __init__(self, models: list[Any], source: list[int]) -> None:
        self.scorers = [NextLogProbs(model, source, suppressed=()) for model in models]

    def __call__(self, prefix: tuple[int, ...]) -> Any:
        log_probs = np.log(np.mean([np.exp(scorer(prefix)) for scorer in self.scorers], axis=0))
        log_probs[[PAD, START]] = -np.inf
        return log_probs


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_search_equals_a_hand_written_one_over_mean_probabilities(
    use_cache: bool, num_beams: int, early_stopping: bool
) -> None:
    models = two_models()
    settings: Any = {"num_beams": num_beams, "length_penalty": 0.6, "max_new_tokens": 8}
    stopping = {"early_stopping": early_stopping if num_beams > 1 else True}
    expected = [
        beam_search(MeanLogProbs(models, source), prefix=(START,), eos_token_id=END, **settings, **stopping)[0]
        for source in SOURCES
    ]
    if num_beams == 1:
        settings = {"num_beams": 1, "max_new_tokens": 8}
        stopping = {}
    found = Ensemble(models).generate(**inputs_of(), **settings, **stopping, use_cache=use_cache)
    assert outputs_of(found) == [hypothesis.tokens for hypothesis in expected]


def test_three_copies_of_a_model_are_the_model() -> None:
    model = ending_model()
    three = Ensemble([copy.deepcopy(model) for _ in range(3)])
    options: Any = {"num_beams": 4, "max_new_tokens": 10}
    assert three.generate(**inputs_of(), **options).equal(model.generate(**inputs_of(), **options))


@pytest.fixture
def folders(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> list[Path]:
    for number in range(2):
        letters_model(seed=number, decoder_layers=2 + number).save_pretrained(tmp_path / str(number))
        letter_tokenizer.save_pretrained(tmp_path / str(number))
    return [tmp_path / "0", tmp_path / "1"]


def test_the_translator_tells_of_an_ensemble_what_it_tells_of_a_model(folders: list[Path]) -> None:
    together = Translator.from_pretrained(folders, device="cpu")
    alone = [Translator.from_pretrained(folder, device="cpu") for folder in folders]
    texts = random_texts(3, 8, 5)
    assert together(texts) not in [translator(texts) for translator in alone]
    for line in together.hypotheses(texts, n_best=2, attention=True):
        for hypothesis in line:
            ids = list(hypothesis.token_ids)
            source = alone[0].tokenizer(" ".join(hypothesis.source_tokens[:-1]))["input_ids"]
            told = [each._searcher.score([source], [ids], with_attention=True)[0] for each in alone]
            mean = np.log(np.mean([np.exp(each.log_probs) for each in told], axis=0))
            assert hypothesis.token_log_probs == pytest.approx(mean, abs=1e-4)
            attention = torch.stack([each.attention for each in told]).mean(dim=0)
            torch.testing.assert_close(hypothesis.attention, attention, atol=1e-4, rtol=0)
    copied = pickle.loads(pickle.dumps(together))
    assert copied(texts) == together(texts)


def test_one_model_in_a_list_is_that_model(folders: list[Path]) -> None:
    texts = random_texts(3, 8)
    one = Translator.from_pretrained(folders[:1], device="cpu")
    assert one(texts) == Translator.from_pretrained(folders[0], device="cpu")(texts)


def test_models_that_cannot_be_together_are_named(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`vocab_size` must be the same in all models of an ensemble, but is 30, 31"):
        Ensemble([tiny_model(vocab_size=30), tiny_model(vocab_size=31)])
    with pytest.raises(ValueError, match="An ensemble must have at least 2 models, but has 1"):
        Ensemble([tiny_model()])
    with pytest.raises(ValueError, match="Several models must have the backend torch and no `revision`, but have"):
        Translator.from_pretrained(folders, backend="ctranslate2")
    with pytest.raises(ValueError, match="`path_or_repo` must name at least one model"):
        Translator.from_pretrained([])
    shutil.copytree(folders[0], tmp_path / "other")
    train_tokenizer(iter(["a b c"]), kind="word", vocab_size=30).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match=r"must have the same vocabulary, but `.*other` has another one than `.*0`"):
        Translator.from_pretrained([folders[0], tmp_path / "other"], device="cpu")


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_the_command_takes_more_models(verb: str, folders: list[Path], command: Any, tmp_path: Path) -> None:
    texts = random_texts(3, 8, 5)
    expected = Translator.from_pretrained(folders, device="cpu")(texts)
    for name in ("source", "reference"):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    options = {"translate": ["--input", tmp_path / "source"]}
    options["evaluate"] = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
    output = tmp_path / "output"
    status, _, err = command(
        verb, folders[0], "--ensemble", folders[1], "--device", "cpu", *options[verb], "--output", output
    )
    assert (status, err) == (0, "")
    assert output.read_text(encoding="utf-8").splitlines() == expected
