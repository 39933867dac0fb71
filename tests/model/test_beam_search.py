"""Beam search finds what transformers' own finds, and computes settled sentences no further."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from model.test_generation import BEAM, PAD, ending_model, endless, inputs_of
from reference.tiny_models import pad, random_sentences
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration


class StockSearch(Seq2SeqTransformerForConditionalGeneration):
    """A model that computes all rows to the end, as transformers does."""

    def _why_no_row_may_leave(self, *args: Any) -> str:
        return "a test wants it so"


def as_class(
    chosen: type[Seq2SeqTransformerForConditionalGeneration], model: Seq2SeqTransformerForConditionalGeneration
) -> Any:
    other: Any = chosen(model.config).eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"early_stopping": True},
        {"early_stopping": "never"},
        {"length_penalty": -1.0},
        {"num_return_sequences": 4},
        {"do_sample": True},
        {"use_cache": False},
        {"cache_implementation": "static"},
    ],
    ids=str,
)
def test_sentences_that_are_settled_leave_the_decoder_without_an_effect(seed: int, options: dict[str, Any]) -> None:
    model = ending_model(seed)
    stock = as_class(StockSearch, model)
    inputs = inputs_of(random_sentences((7, 2, 5, 1, 9, 3), seed=seed))
    settings = BEAM | {"max_new_tokens": 20} | options
    torch.manual_seed(0)
    expected = stock.generate(**inputs, **settings)
    torch.manual_seed(0)
    assert model.generate(**inputs, **settings).equal(expected)


def test_settled_sentences_with_prefixes_of_unequal_length_leave_too() -> None:
    model = ending_model()
    prefixes, mask = pad([[1], [1, 8, 9], [1, 5]], side="left")
    options = BEAM | {"decoder_input_ids": prefixes, "decoder_attention_mask": mask, "max_new_tokens": 20}
    expected = as_class(StockSearch, model).generate(**inputs_of(), **options)
    assert model.generate(**inputs_of(), **options).equal(expected)


MANY = inputs_of(random_sentences((7, 2, 5, 1, 9, 3)))


def rows_of_each_step(
    model: Seq2SeqTransformerForConditionalGeneration, generate: Any = None, **options: Any
) -> list[int]:
    """How many rows the decoder gets at each step of a beam search for six sentences."""
    rows: list[int] = []
    layer: Any = model.model.decoder.layers[0]
    handle = layer.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    (generate or model.generate)(**MANY, **BEAM | {"max_new_tokens": 40} | options)
    handle.remove()
    return rows


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_decoder_gets_fewer_rows_as_sentences_are_settled(use_cache: bool) -> None:
    model = ending_model()
    rows = rows_of_each_step(model, use_cache=use_cache)
    assert rows[0] == 6 * 4
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] < rows[0]
    assert rows_of_each_step(as_class(StockSearch, model), use_cache=use_cache) == [6 * 4] * len(rows)


class OfAUser(Seq2SeqTransformerForConditionalGeneration):
    """A subclass, which sees what the search hands to the model."""

    num_rows: int = 0

    def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: Any) -> dict[str, Any]:
        self.num_rows += len(input_ids)
        return super().prepare_inputs_for_generation(input_ids, **kwargs)


def test_a_subclass_finds_the_same_with_as_few_rows() -> None:
    model = ending_model()
    mine = as_class(OfAUser, model)
    rows = rows_of_each_step(mine)
    assert rows == rows_of_each_step(model)
    assert mine.num_rows == sum(rows)
    assert mine.generate(**MANY, **BEAM).equal(as_class(StockSearch, model).generate(**MANY, **BEAM))


class WaitsForOthers(Seq2SeqTransformerForConditionalGeneration):
    """A model of one process of several that share its weights, which computes three steps after it is done."""

    num_steps: int = 3

    def _has_unfinished_sequences(self, this_peer_finished: bool, synced_gpus: bool, device: torch.device) -> bool:
        self.num_steps -= this_peer_finished
        return self.num_steps >= 0


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_process_that_waits_for_others_computes_on_without_an_effect(use_cache: bool) -> None:
    model = ending_model()
    options = BEAM | {"use_cache": use_cache}
    waiting = as_class(WaitsForOthers, model)
    assert waiting.generate(**MANY, **options, synced_gpus=True).equal(model.generate(**MANY, **options))
    assert waiting.num_steps < 0


def test_a_model_with_the_hooks_of_a_device_map_finds_the_same_with_as_few_rows() -> None:
    from accelerate import cpu_offload

    model = ending_model()
    expected, rows = model.generate(**MANY, **BEAM), rows_of_each_step(model)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert rows_of_each_step(model) == rows
    assert model.generate(**MANY, **BEAM).equal(expected)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"return_dict_in_generate": True}, "`return_dict_in_generate` asks for what each row gives"),
        ({"cache_implementation": "static"}, "only a dynamic cache can drop rows"),
        ({}, "a hook on a part of the model"),
    ],
)
def test_why_all_rows_are_computed_is_told_once(
    options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("hf_seq2seq"), "propagate", True)
    logging.Logger.info_once.cache_clear()  # type: ignore[attr-defined]
    caplog.set_level(logging.INFO, logger="hf_seq2seq")
    model = ending_model()
    if not options:
        model.lm_head.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
    for _ in range(2):
        assert set(rows_of_each_step(model, **options)) == {6 * 4}
    assert caplog.text.count(f"until the last one is done: {reason}") == 1


def test_searches_at_the_same_time_do_not_mix() -> None:
    model = ending_model()
    batches = [inputs_of(random_sentences((length, 2, 5), seed=length)) for length in range(3, 9)]
    expected = [model.generate(**batch, **BEAM) for batch in batches]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda batch: model.generate(**batch, **BEAM), batches))
    assert all(one.equal(other) for one, other in zip(found, expected, strict=True))


def test_a_method_of_the_instance_is_obeyed_in_beam_search() -> None:
    """PEFT sets `prepare_inputs_for_generation` on the model that it puts prompts before."""
    model = ending_model()
    inputs = inputs_of(random_sentences((7, 2, 5, 1, 9, 3)))
    expected = model.generate(**inputs, **BEAM)
    calls = []
    prepare = model.prepare_inputs_for_generation

    def patched(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return prepare(*args, **kwargs)

    model.prepare_inputs_for_generation = patched  # type: ignore[method-assign]
    assert model.generate(**inputs, **BEAM).equal(expected)
    assert calls


def test_rows_are_filled_up_with_padding_after_their_end() -> None:
    """https://github.com/huggingface/transformers/pull/47286: the end token took the place of a padding id of 0."""
    found = ending_model().generate(**MANY, **BEAM)
    is_end = found == 2
    is_after = (is_end.cumsum(dim=1) - is_end.int()) > 0
    assert is_after.any()
    assert (found[is_after] == PAD).all()


def test_sentences_that_end_at_limits_of_their_own_are_filled_up_with_padding() -> None:
    limits = torch.tensor([4, 9, 6])

    class Limits(StoppingCriteria):  # type: ignore[misc, unused-ignore]
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            return (input_ids.shape[1] >= limits).repeat_interleave(len(input_ids) // len(limits))

    criteria = StoppingCriteriaList([Limits()])
    found = endless(ending_model()).generate(**inputs_of(), **BEAM, stopping_criteria=criteria)
    assert (found != PAD).sum(dim=1).tolist() == limits.tolist()


# PEFT


def adapted(model: Seq2SeqTransformerForConditionalGeneration, *names: str) -> Any:
    """The model with LoRA adapters that change its outputs."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    places = ["q_proj", "k_proj", "v_proj", "fc2"]
    settings = LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, lora_alpha=4, init_lora_weights=False, target_modules=places)
    wrapped: Any = get_peft_model(model, settings, adapter_name=names[0])
    for name in names[1:]:
        wrapped.add_adapter(name, settings)
    return wrapped.eval()


def prompted(model: Seq2SeqTransformerForConditionalGeneration) -> Any:
    """The model with virtual tokens before each source."""
    from peft import PromptTuningConfig, get_peft_model

    torch.manual_seed(0)
    wrapped: Any = get_peft_model(model, PromptTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3))
    return wrapped.eval()


@pytest.mark.parametrize("wrapped", [lambda model: adapted(model, "one"), prompted], ids=["LoRA", "prompt tuning"])
def test_a_model_in_the_hands_of_peft_finds_the_same_with_as_few_rows(wrapped: Any) -> None:
    ours, stock = wrapped(ending_model()), wrapped(as_class(StockSearch, ending_model()))
    rows, all_rows = (rows_of_each_step(model.get_base_model(), model.generate) for model in (ours, stock))
    assert len(rows) == len(all_rows)
    assert sum(rows) < sum(all_rows)
    expected = stock.generate(**MANY, **BEAM)
    assert ours.generate(**MANY, **BEAM).equal(expected)
    assert not ending_model().generate(**MANY, **BEAM).equal(expected)


@pytest.mark.parametrize("num_return_sequences", [1, 3])
def test_sentences_of_one_batch_that_each_have_their_adapter_find_what_each_finds_alone(
    num_return_sequences: int,
) -> None:
    """https://github.com/huggingface/peft/issues/2283 and https://github.com/huggingface/peft/pull/2287."""
    model = adapted(ending_model(), "one", "other")
    names = ["one", "other", "__base__", "other", "one", "__base__"]
    options = BEAM | {"num_return_sequences": num_return_sequences}
    together = model.generate(**MANY, **options, adapter_names=names)
    found = []
    for row, name in enumerate(names):
        sentence = {key: value[row : row + 1] for key, value in MANY.items()}
        if name == "__base__":
            with model.disable_adapter():
                found.append(model.generate(**sentence, **options))
        else:
            model.set_adapter(name)
            found.append(model.generate(**sentence, **options))
    width = together.shape[1]
    alone = torch.cat([torch.nn.functional.pad(one, (0, width - one.shape[1]), value=PAD) for one in found])
    assert together.equal(alone)
