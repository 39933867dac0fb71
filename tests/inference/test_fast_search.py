"""The fast search gives the ids that `generate()` gives, and leaves to it what it does not do itself."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import random_sentences, tiny_model
from torch import nn
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator, output_limits
from hf_seq2seq.inference.fast_search import FastSearch, best_continuations
from hf_seq2seq.inference.segment import Segment
from hf_seq2seq.inference.settings import DecodingSettings
from hf_seq2seq.inference.torch_search import TorchSearch, generate_arguments
from hf_seq2seq.model import packed_seq2seq_transformer
from hf_seq2seq.output_limits import end_ids


END = 2
VOCAB_SIZE = 50

MODELS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre-norm": {"norm_position": "pre"},
    "biases": {"attention_bias": True},
    "learned positions": {"position_embedding_type": "learned", "max_position_embeddings": 16},
    "vocabularies of their own": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 70},
    "narrow keys": {"key_dim": 4, "lm_head_bias": False},
    "another activation": {"activation_function": "gelu", "norm_position": "pre"},
    "free projection": {"tie_word_embeddings": False, "scale_embedding": False},
    "unequal stacks": {"encoder_layers": 1, "decoder_layers": 3, "decoder_attention_heads": 4},
}


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 6)


def random_model(seed: int = 0, **options: Any) -> Seq2SeqTransformerForConditionalGeneration:
    """A random model whose outputs depend on all tokens before, and end at many lengths."""
    model = tiny_model(seed, **({"lm_head_bias": True} | options))
    with torch.no_grad():
        for weight in model.model.decoder.layers.parameters():
            if weight.ndim > 1:
                weight.mul_(3)
        if model.lm_head.bias is not None:
            model.lm_head.bias.zero_()
            model.lm_head.bias[END] = 2.0
    return model


def searched(
    model: Seq2SeqTransformerForConditionalGeneration,
    lengths: list[int],
    prefix_lengths: list[int] | None = None,
    **options: Any,
) -> list[list[list[int]]]:
    """The ids of all hypotheses of random sentences."""
    searcher = TorchSearch(model)
    settings = DecodingSettings.resolve(options, searcher.generation_config)  # type: ignore[arg-type]
    prefixes = random_sentences(prefix_lengths or [0] * len(lengths), vocab_size=VOCAB_SIZE, seed=4)
    sources = random_sentences(lengths, vocab_size=VOCAB_SIZE, seed=3)
    segments = [Segment("", ids=[*ids, END], prefix_ids=prefix) for ids, prefix in zip(sources, prefixes, strict=True)]
    return [[output.ids for output in outputs] for outputs in searcher.search(segments, settings)]


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[list[int]]]]:
    """Searches without and with `generate()`, by the model's own steps, and returns what both find."""

    def search(model: Any, *arguments: Any, **options: Any) -> list[list[list[int]]]:
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "generate", None)
            fast = searched(model, *arguments, **options)
        with monkeypatch.context() as patch:
            patch.setattr(packed_seq2seq_transformer, "_can_be_packed", lambda *_: False)
            assert searched(model, *arguments, **options) == fast
        return fast

    return search


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_each_kind_of_model_gives_the_same_ids(model: Any, both_ways: Any) -> None:
    lengths = set()
    for seed, (beam_size, texts) in enumerate(product((1, 4), ([5], [1, 9, 4, 4, 7, 2, 8]))):
        found = both_ways(random_model(seed, **model), texts, beam_size=beam_size)
        lengths |= {len(output) for outputs in found for output in outputs}
    assert len(lengths) > 3


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0, -1.0])
def test_each_kind_of_beam_search_gives_the_same_ids(
    early_stopping: Any, length_penalty: float, both_ways: Any
) -> None:
    for seed in range(3):
        model = random_model(seed, norm_position="pre")
        model.generation_config.early_stopping = early_stopping
        both_ways(model, [6, 3, 1, 9], beam_size=4, n_best=4, length_penalty=length_penalty)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("prefix_lengths", [[2, 2, 2], [3, 0, 1]], ids=str)
def test_prefixes_of_equal_and_unequal_length_give_the_same_ids(
    prefix_lengths: list[int], beam_size: int, both_ways: Any
) -> None:
    for options in ({}, {"position_embedding_type": "learned", "max_position_embeddings": 32}):
        both_ways(random_model(3, **options), [4, 7, 2], prefix_lengths, beam_size=beam_size)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("ends", [None, [2, 9, 11]], ids=str)
def test_none_and_several_end_tokens_give_the_same_ids(ends: Any, beam_size: int, both_ways: Any) -> None:
    model = random_model(5)
    model.generation_config.eos_token_id = model.config.eos_token_id = ends
    both_ways(model, [4, 7, 2], beam_size=beam_size)


def test_outputs_longer_than_the_first_room_of_the_cache_give_the_same_ids(
    both_ways: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 70)
    model = random_model(1, norm_position="pre")
    model.generation_config.suppress_tokens = [0, 1, END]
    assert {len(ids) for [ids] in both_ways(model, [4, 2], beam_size=1)} == {75, 73}
    both_ways(model, [4, 2], beam_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_many_random_models_give_the_same_ids(seed: int, both_ways: Any) -> None:
    generator = torch.Generator().manual_seed(seed)
    names = list(MODELS)
    options = MODELS[names[seed % len(names)]] | {"d_model": 32}
    for beam_size in (1, 2, 4, 8):
        lengths = torch.randint(1, 10, (int(torch.randint(1, 12, (), generator=generator)),), generator=generator)
        both_ways(random_model(seed, **options), lengths.tolist(), beam_size=beam_size)


def test_the_best_continuations_are_those_of_a_sort() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs, scores = torch.randn(3, 4, 640, generator=generator), torch.randn(3, 4, generator=generator)
    expected = (log_probs + scores[..., None]).flatten(1).sort(dim=-1, descending=True)
    best, hypotheses, tokens = best_continuations(log_probs, scores, 9)
    assert best.tolist() == expected.values[:, :9].tolist()
    assert (hypotheses * 640 + tokens).tolist() == expected.indices[:, :9].tolist()


# What is left to `generate()`


def finds_a_fast_search(model: Any, **options: Any) -> bool:
    settings = DecodingSettings.resolve(options, model.generation_config)  # type: ignore[arg-type]
    ends = end_ids(model.generation_config)
    arguments = generate_arguments(settings, model.generation_config)
    return FastSearch.for_call(model, arguments, ends) is not None


def test_greedy_and_beam_search_of_a_model_are_fast() -> None:
    assert finds_a_fast_search(random_model(), beam_size=1)
    assert finds_a_fast_search(random_model(), beam_size=4, length_penalty=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.2},
        {"no_repeat_ngram_size": 2},
        {"min_length": 5},
        {"forced_bos_token_id": 7},
        {"bad_words_ids": [[5, 6]]},
        {"sequence_bias": [[[5], 1.0]]},
        {"begin_suppress_tokens": [8]},
        {"output_scores": True},
        {"a_setting_of_tomorrow": True},
    ],
    ids=str,
)
def test_settings_of_the_model_that_change_a_search_are_followed_by_generate(settings: dict[str, Any]) -> None:
    model = random_model()
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    assert not finds_a_fast_search(model, beam_size=4)


def test_sampling_and_arguments_that_are_not_known_are_left_to_generate() -> None:
    model = random_model()
    assert not finds_a_fast_search(model, do_sample=True)
    assert not finds_a_fast_search(model, gnmt_penalty=True)
    assert not finds_a_fast_search(model, min_new_tokens=4)
    settings = DecodingSettings.resolve({}, model.generation_config)
    arguments = generate_arguments(settings, model.generation_config)
    assert FastSearch.for_call(model, arguments, [END]) is not None
    assert FastSearch.for_call(model, arguments | {"logits_processor": [print]}, [END]) is None
    assert FastSearch.for_call(model, arguments | {"length_penalty": type("Power", (float,), {})(0.6)}, [END]) is None


def add_hook(model: Any) -> None:
    model.model.decoder.layers[0].fc1.register_forward_hook(lambda *_: None)


def replace_forward(model: Any) -> None:
    model.model.encoder.forward = model.model.encoder.forward


def replace_layer(model: Any) -> None:
    class Other(nn.Linear):
        pass

    model.model.decoder.layers[0].fc1 = Other(16, 32)


def make_subclass(model: Any) -> None:
    model.__class__ = type("Other", (type(model),), {})


@pytest.mark.parametrize(
    "change",
    [
        add_hook,
        replace_forward,
        replace_layer,
        make_subclass,
        lambda model: model.train(),
        lambda model: model.double(),
        lambda model: model.bfloat16(),
        lambda model: setattr(model.config, "_attn_implementation", "flex_attention"),
        lambda model: setattr(model, "generate", print),
    ],
)
def test_models_that_compute_otherwise_are_left_to_generate(change: Callable[[Any], Any]) -> None:
    model = random_model()
    change(model)
    assert not finds_a_fast_search(model)


def test_a_vocabulary_of_fewer_tokens_than_candidates_is_left_to_generate() -> None:
    assert not finds_a_fast_search(random_model(), beam_size=30)


# A model that changes


def train_a_step(model: Any) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = torch.tensor([[5, 6, 7, END]])
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    model.eval()


@torch.no_grad()
def change_a_number(model: Any) -> None:
    model.lm_head.weight[9, 5] += 50


def change_a_row_of_data(model: Any) -> None:
    model.model.decoder.layers[1].fc2.weight.data[3] += 5


def change_a_bias_of_data(model: Any) -> None:
    model.model.decoder.layers[1].fc2.bias.data[3] += 5


def replace_data(model: Any) -> None:
    model.model.decoder.layers[1].fc2.weight.data = torch.randn(16, 32)


def replace_weight(model: Any) -> None:
    model.model.encoder.layers[0].fc1.weight = nn.Parameter(torch.randn(32, 16))


def load_state(model: Any) -> None:
    model.load_state_dict(random_model(9).state_dict())


def resize(model: Any) -> None:
    model.resize_token_embeddings(80, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[70] = 2 * model.lm_head.weight[4]


CHANGES = [
    train_a_step,
    change_a_number,
    change_a_row_of_data,
    change_a_bias_of_data,
    replace_data,
    replace_weight,
    load_state,
    resize,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_has_changed_gives_its_new_ids(change: Callable[[Any], None], both_ways: Any) -> None:
    torch.manual_seed(0)
    model = random_model(2)
    before = both_ways(model, [5, 8, 2], beam_size=4, n_best=4)
    change(model)
    assert both_ways(model, [5, 8, 2], beam_size=4, n_best=4) != before


def test_a_model_is_saved_and_trained_after_a_search_as_before_it(
    tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    model = random_model(4, vocab_size=30)
    translator = Translator(model, letter_tokenizer)
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    translated = translator(["a b c", "d"], beam_size=3)
    model.save_pretrained(tmp_path)
    letter_tokenizer.save_pretrained(tmp_path)
    assert Translator.from_pretrained(tmp_path)(["a b c", "d"], beam_size=3) == translated
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    assert all(weight.is_contiguous() and not weight.is_inference() for weight in model.parameters())
    train_a_step(model)
    assert any(not torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
