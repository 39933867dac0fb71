"""The training loss never holds all logits, yet it and its gradients are those of plain cross-entropy."""

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import convert_outputs_to_fp32
from reference.tiny_models import pad, random_sentences, tiny_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import LabelSmoother
from transformers.utils.generic import TransformersKwargs

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.model import loss_seq2seq_transformer


Model = Seq2SeqTransformerForConditionalGeneration
Gradients = dict[str, Tensor]
LAYOUTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 40},
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
both_biases = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
both_smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1])
both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


def batch(num_rows: int = 3) -> dict[str, Tensor]:
    """Pairs of unequal lengths, 13 labels among padding in all three."""
    input_ids, attention_mask = pad(random_sentences((7, 2, 5), vocab_size=40, seed=1)[:num_rows])
    labels, _ = pad(random_sentences((4, 6, 3), vocab_size=40, seed=2)[:num_rows], value=-100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def plain_loss(model: Model, inputs: dict[str, Tensor], smoothing: float = 0.0) -> Tensor:
    """torch's cross-entropy of all logits, which the model gives where it is given no labels."""
    labels = inputs["labels"]
    start = labels.new_full((len(labels), 1), 1)
    decoder_input_ids = torch.cat((start, labels[:, :-1]), dim=1).clamp(min=0)
    others = {name: value for name, value in inputs.items() if name != "labels"}
    logits = model(**others, decoder_input_ids=decoder_input_ids).logits
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


def gradients(model: nn.Module, loss: Tensor, factor: float = 1.0) -> Gradients:
    """In float32, formed from the loss times a factor as loss scaling does."""
    model.zero_grad()
    (loss * factor).backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: gradient.float() / factor for name, gradient in named.items() if gradient is not None}


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-6, rtol=1e-5)


def assert_same_loss(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6, check_dtype=False)


def set_chunk(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(loss_seq2seq_transformer, "LOSS_CHUNK", size)


# Value and gradients


@both_smoothings
@both_biases
@every_layout
@pytest.mark.parametrize("chunk", [1, 5, 13, 256])
def test_loss_and_gradients_are_those_of_plain_cross_entropy(
    chunk: int, layout: dict[str, Any], bias: bool, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/huggingface/transformers/pull/46903."""
    set_chunk(monkeypatch, chunk)
    model = tiny_model(lm_head_bias=bias, **layout).train()
    expected = plain_loss(model, batch(), smoothing)
    expected_gradients = gradients(model, expected)
    outputs = model(**batch(), smoothing=smoothing)
    assert_same_loss(outputs.loss, expected)
    assert_same(gradients(model, outputs.loss), expected_gradients)


@both_smoothings
def test_the_size_of_a_chunk_changes_nothing(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(lm_head_bias=True).train()
    expected = plain_loss(model, batch(), smoothing)
    expected_gradients = gradients(model, expected)
    for chunk in range(1, 15):  # there are 13 labels
        set_chunk(monkeypatch, chunk)
        loss = model(**batch(), smoothing=smoothing).loss
        assert_same_loss(loss, expected)
        assert_same(gradients(model, loss), expected_gradients)


def scaled_head(model: Model) -> None:
    class Half(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) / 2

    head = Half(16, 50, bias=model.lm_head.bias is not None)
    head.load_state_dict(model.lm_head.state_dict())
    model.lm_head = head


def hooked_head(model: Model) -> None:
    model.lm_head.register_forward_hook(lambda module, arguments, output: output / 2)


def pre_hooked_head(model: Model) -> None:
    model.lm_head.register_forward_pre_hook(lambda module, arguments: (arguments[0] / 2,))


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_backward_hook_of_the_head_is_called_in_training(register: str) -> None:
    model = tiny_model().train()
    calls: list[Any] = []
    getattr(model.lm_head, register)(lambda *gradients: calls.append(gradients))
    model(**batch()).loss.backward()
    assert calls


@both_smoothings
@pytest.mark.parametrize("chunk", [5, 256])
@pytest.mark.parametrize("change", [scaled_head, hooked_head, pre_hooked_head])
def test_a_head_that_does_more_than_project_is_obeyed(
    change: Callable[[Model], None], chunk: int, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunk(monkeypatch, chunk)
    model = tiny_model(tie_word_embeddings=False, lm_head_bias=True).train()
    unchanged = model(**batch(), smoothing=smoothing).loss
    change(model)
    expected = plain_loss(model, batch(), smoothing)
    assert abs(expected - unchanged) > 0.1
    expected_gradients = gradients(model, expected)
    outputs = model(**batch(), smoothing=smoothing)
    assert_same_loss(outputs.loss, expected)
    assert_same(gradients(model, outputs.loss), expected_gradients)


@pytest.mark.parametrize(
    "trained",
    ["lm_head.weight", "lm_head.bias", "model.decoder.layers.0.fc1.weight", "model.encoder.layers.0.fc1.bias"],
)
def test_any_part_can_be_trained_alone(trained: str) -> None:
    model = tiny_model(tie_word_embeddings=False, lm_head_bias=True).train().requires_grad_(False)
    model.get_parameter(trained).requires_grad_(True)
    expected = gradients(model, plain_loss(model, batch()))
    assert list(expected) == [trained]
    assert_same(gradients(model, model(**batch()).loss), expected)


@both_modes
def test_the_first_label_counts(training: bool) -> None:
    """https://github.com/huggingface/transformers/pull/46903: a loss shifted twice never sees it."""
    model = tiny_model().train(training)
    inputs = batch()
    before = model(**inputs).loss
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    inputs["labels"][:, 0] = 9
    after = model(**inputs, decoder_input_ids=decoder_input_ids).loss
    assert abs(after - before) > 0.1


@both_modes
def test_a_target_of_one_token_has_a_loss(training: bool) -> None:
    """https://github.com/huggingface/transformers/pull/46903."""
    model = tiny_model().train(training)
    inputs = batch() | {"labels": torch.tensor([[5], [6], [2]])}
    assert_same(model(**inputs).loss, plain_loss(model, inputs))


@pytest.mark.parametrize("number", [40, torch.tensor(40), torch.tensor([40])], ids=["int", "tensor", "1-D tensor"])
@both_modes
def test_the_sum_is_divided_by_the_number_of_items_that_is_given(training: bool, number: Tensor | int) -> None:
    """https://github.com/huggingface/transformers/issues/47688."""
    model = tiny_model().train(training)
    expected = plain_loss(model, batch()) * 13 / 40
    loss = model(**batch(), num_items_in_batch=number).loss
    assert_same(loss.squeeze(), expected)


@both_smoothings
def test_rows_one_by_one_add_up_to_the_batch(smoothing: float) -> None:
    """https://github.com/huggingface/transformers/issues/46731: gradient accumulation changes nothing."""
    model = tiny_model().train()
    whole = gradients(model, model(**batch(), smoothing=smoothing).loss)
    model.zero_grad()
    for row in range(3):
        inputs = {name: value[row : row + 1] for name, value in batch().items()}
        model(**inputs, smoothing=smoothing, num_items_in_batch=13).loss.backward()
    assert_same({name: parameter.grad for name, parameter in model.named_parameters()}, whole)


@pytest.mark.parametrize("change", [None, hooked_head], ids=["plain head", "hooked head"])
@both_modes
def test_without_a_label_every_parameter_still_gets_a_gradient_of_zero(
    training: bool, change: Callable[[Model], None] | None
) -> None:
    """https://github.com/pytorch/pytorch/issues/24816; data-parallel training waits for every gradient."""
    model = tiny_model(lm_head_bias=True).train(training)
    if change is not None:
        change(model)
    outputs = model(**(batch() | {"labels": torch.full((3, 4), -100)}), smoothing=0.1)
    assert outputs.loss.item() == 0
    zeros = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    torch.testing.assert_close(gradients(model, outputs.loss), zeros, atol=0, rtol=0)


@pytest.mark.parametrize("label", [40, -1], ids=["too large", "negative"])
@both_modes
def test_a_label_that_is_no_target_token_is_named(training: bool, label: int) -> None:
    model = tiny_model(**LAYOUTS["two vocabularies"]).train(training)
    inputs = batch()
    inputs["labels"][1, 5] = label  # the last one, which the decoder is not given
    with pytest.raises(ValueError, match=rf"`labels` must be .* size \(40\), or -100, but one is {label} instead"):
        model(**inputs)


# R-Drop


def twice(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each pair in two rows, one after the other, and a label left out in the middle of one pair."""
    inputs["labels"][1, 2] = -100
    return {name: value.repeat_interleave(2, dim=0) for name, value in inputs.items()}


def r_drop_model(**overrides: Any) -> Model:
    model = tiny_model(dropout=0.3, **overrides)
    model.train()
    return model


def r_drop_loss(model: Model, smoothing: float = 0.0, alpha: float = 5.0, **settings: Any) -> Tensor:
    """The model's own, with the dropout of seed 0."""
    torch.manual_seed(0)
    outputs = model(**twice(batch()), smoothing=smoothing, r_drop_alpha=alpha, **settings)
    return outputs.loss  # type: ignore[no-any-return]


def plain_r_drop_loss(model: Model, smoothing: float = 0.0, alpha: float = 5.0) -> Tensor:
    """The sum as Liang et al. (2021) write it, from all logits in float64, with the same dropout, over 24 labels."""
    inputs = twice(batch())
    labels = inputs.pop("labels")
    torch.manual_seed(0)
    logits = model(**inputs, decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels)).logits.double()
    cross_entropy = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction="sum"
    )
    first, second = (logits[copy::2][labels[copy::2] != -100].log_softmax(-1) for copy in (0, 1))
    forth = nn.functional.kl_div(second, first, reduction="sum", log_target=True)
    back = nn.functional.kl_div(first, second, reduction="sum", log_target=True)
    assert forth > 0.1
    return (cross_entropy + alpha * (forth + back) / 2) / 24


@both_smoothings
@both_biases
@every_layout
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 24, 256])
def test_r_drop_and_its_gradients_are_those_of_plain_autograd(
    chunk: int, layout: dict[str, Any], bias: bool, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunk(monkeypatch, chunk)
    model = r_drop_model(lm_head_bias=bias, **layout)
    expected = plain_r_drop_loss(model, smoothing)
    expected_gradients = gradients(model, expected)
    loss = r_drop_loss(model, smoothing)
    assert_same_loss(loss, expected)
    assert_same(gradients(model, loss), expected_gradients)


@pytest.mark.parametrize("chunk", [1, 7, 256])
@pytest.mark.parametrize("change", [None, scaled_head, hooked_head], ids=["plain head", "scaled", "hooked"])
@pytest.mark.parametrize("return_logits", [True, False], ids=["logits", "no logits"])
def test_every_way_to_the_loss_gives_the_same_r_drop(
    return_logits: bool, change: Callable[[Model], None] | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunk(monkeypatch, chunk)
    model = r_drop_model(lm_head_bias=True)
    if change is not None:
        change(model)
    expected = plain_r_drop_loss(model, smoothing=0.1)
    expected_gradients = gradients(model, expected)
    loss = r_drop_loss(model, smoothing=0.1, return_logits=return_logits)
    assert_same_loss(loss, expected)
    assert_same(gradients(model, loss), expected_gradients)


def test_the_weight_of_r_drop_is_obeyed_however_large() -> None:
    model = r_drop_model()
    for alpha in (0.0, 0.5, 50.0):
        expected = plain_r_drop_loss(model, alpha=alpha)
        expected_gradients = gradients(model, expected, factor=1 / max(alpha, 1))
        loss = r_drop_loss(model, alpha=alpha)
        assert_same_loss(loss, expected)
        assert_same(gradients(model, loss, factor=1 / max(alpha, 1)), expected_gradients)


@both_smoothings
def test_the_gradients_of_r_drop_are_its_slopes(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By finite differences in float64, where twins differ more than dropout sets them apart."""
    set_chunk(monkeypatch, 4)
    generator = torch.Generator().manual_seed(0)
    sizes = ((10, 4), (6, 4), (6,))
    inputs = [torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for size in sizes]
    labels = torch.tensor([1, 4, 0, 5, 2]).repeat_interleave(2)
    loss = loss_seq2seq_transformer._ChunkedCrossEntropy.apply
    assert torch.autograd.gradcheck(lambda *values: loss(*values, labels, smoothing, 1.5), inputs)  # type: ignore[no-untyped-call, unused-ignore]


@both_modes
def test_twins_that_are_equal_add_nothing(training: bool) -> None:
    model = tiny_model().train(training)
    inputs = twice(batch())
    assert_same_loss(model(**inputs, r_drop_alpha=5.0).loss, plain_loss(model, inputs))


def test_r_drop_is_divided_by_the_number_of_items_that_is_given() -> None:
    model = r_drop_model()
    assert_same_loss(r_drop_loss(model, num_items_in_batch=60), plain_r_drop_loss(model) * 24 / 60)


@pytest.mark.parametrize("change", [None, hooked_head], ids=["plain head", "hooked head"])
@both_modes
def test_r_drop_without_a_label_is_zero_and_so_are_its_gradients(
    training: bool, change: Callable[[Model], None] | None
) -> None:
    model = r_drop_model(lm_head_bias=True).train(training)
    if change is not None:
        change(model)
    inputs = twice(batch()) | {"labels": torch.full((6, 4), -100)}
    loss = model(**inputs, smoothing=0.1, r_drop_alpha=5.0).loss
    assert loss.item() == 0
    zeros = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    torch.testing.assert_close(gradients(model, loss), zeros, atol=0, rtol=0)


@both_modes
def test_r_drop_needs_an_even_number_of_rows(training: bool) -> None:
    with pytest.raises(
        ValueError, match=r"rows must be even with `r_drop_alpha` \(0\.5\), but is 3.*repeat_interleave"
    ):
        tiny_model().train(training)(**batch(), r_drop_alpha=0.5)


def test_r_drop_needs_the_same_labels_in_both_copies() -> None:
    inputs = {name: value.repeat(2, 1) for name, value in batch().items()}
    with pytest.raises(ValueError, match=r"`labels` must be equal in rows 2i and 2i \+ 1 .* but differ.*_interleave"):
        tiny_model().train()(**inputs, r_drop_alpha=5.0)


# Number types


def relative_errors(actual: Gradients, expected: Gradients) -> Tensor:
    assert actual.keys() == expected.keys()
    return torch.stack([(actual[name] - expected[name]).norm() / expected[name].norm() for name in expected])


@both_smoothings
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_gradients_are_as_good_as_those_of_all_logits(
    dtype: torch.dtype, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunk(monkeypatch, 5)
    model = tiny_model(lm_head_bias=True, tie_word_embeddings=False).train().to(dtype)
    # A loss scaled as torch.amp.GradScaler does, so that neither way underflows.
    factor = 2.0**10 if dtype == torch.float16 else 1.0
    plain = gradients(model, plain_loss(model, batch(), smoothing), factor)
    chunked = gradients(model, model(**batch(), smoothing=smoothing).loss, factor)
    exact = gradients(model, plain_loss(model.float(), batch(), smoothing))
    limits = 1.2 * relative_errors(plain, exact) + torch.finfo(dtype).eps
    assert (relative_errors(chunked, exact) < limits).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_the_loss_is_that_of_all_logits(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-6, for the logits are rounded alike and all that follows is float32 (a bias is added before or after)."""
    model = tiny_model(dtype=dtype).train()
    for smoothing in (0.0, 0.1):
        expected = plain_loss(model, batch(), smoothing)
        for chunk in (1, 5, 13, 256):
            set_chunk(monkeypatch, chunk)
            assert_same_loss(model(**batch(), smoothing=smoothing).loss, expected)


@both_smoothings
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_r_drop_is_as_good_as_that_of_all_logits(
    dtype: torch.dtype, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to 1e-5, since each layer rounds its gradients to the type: plain autograd errs by as much."""
    set_chunk(monkeypatch, 5)
    model = r_drop_model(lm_head_bias=True, tie_word_embeddings=False, dtype=dtype)
    factor = 2.0**10 if dtype == torch.float16 else 1.0
    plain = plain_r_drop_loss(model, smoothing)
    plain_gradients = gradients(model, plain, factor)
    chunked = r_drop_loss(model, smoothing)
    chunked_gradients = gradients(model, chunked, factor)
    exact = plain_r_drop_loss(model.float(), smoothing)
    exact_gradients = gradients(model, exact)
    assert abs(chunked - exact) < 1.2 * abs(plain - exact) + torch.finfo(dtype).eps * exact
    limits = 1.2 * relative_errors(plain_gradients, exact_gradients) + torch.finfo(dtype).eps
    assert (relative_errors(chunked_gradients, exact_gradients) < limits).all()


def test_float16_keeps_the_gradients_of_improbable_tokens() -> None:
    """Most probabilities of a vocabulary of 40,000 are below 6e-5, where float16 loses digits."""
    model = tiny_model(vocab_size=40_000, encoder_layers=1, decoder_layers=1, tie_word_embeddings=False).train()
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    model.half()
    chunked = gradients(model, model(**batch()).loss, factor=2.0**14)["lm_head.weight"]
    exact = gradients(model, plain_loss(model.float(), batch()))["lm_head.weight"]
    errors = (chunked - exact).norm(dim=1) / exact.norm(dim=1)
    assert errors.quantile(0.9) < 0.01


def test_float16_keeps_the_gradients_of_tokens_that_are_almost_certain() -> None:
    """What is left of their probability is spread over the vocabulary in parts too small for float16."""
    sizes: dict[str, Any] = {"vocab_size": 40_000, "encoder_layers": 1, "decoder_layers": 1}
    model = tiny_model(tie_word_embeddings=False, lm_head_bias=True, **sizes).train()
    with torch.no_grad():
        model.lm_head.weight.mul_(0.1).add_(0.3)
        model.lm_head.bias.zero_()[7] = 16
    model.half()
    inputs = batch() | {"labels": torch.full((3, 6), 7)}
    last_norm = "model.decoder.layers.0.final_layer_norm.bias"
    chunked = gradients(model, model(**inputs).loss, factor=2.0**14)[last_norm]
    exact = gradients(model.float(), plain_loss(model, inputs))[last_norm]
    assert (chunked - exact).norm() < 0.3 * exact.norm()


def test_float16_does_not_overflow_where_one_label_fills_a_chunk_and_states_are_large() -> None:
    """No lower loss scale could mend that."""
    model = tiny_model(tie_word_embeddings=False).train().half()
    norm = model.get_decoder().layers[-1].final_layer_norm
    with torch.no_grad():
        norm.bias.fill_(5)
    inputs = {"input_ids": batch()["input_ids"][:1], "labels": torch.full((1, 256), 7)}
    chunked = gradients(model, model(**inputs).loss)["lm_head.weight"]
    torch.testing.assert_close(
        chunked, gradients(model, plain_loss(model, inputs))["lm_head.weight"], atol=0.01, rtol=0.01
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_under_autocast_loss_and_gradients_are_those_of_all_logits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunk(monkeypatch, 5)
    model = tiny_model().train()
    exact = gradients(model, plain_loss(model, batch()))
    factor = 2.0**10 if dtype == torch.float16 else 1.0
    with torch.autocast("cpu", dtype=dtype):
        plain, chunked = plain_loss(model, batch()), model(**batch()).loss
    assert chunked.dtype == torch.float32
    assert_same(chunked, plain)
    plain_gradients, chunked_gradients = gradients(model, plain, factor), gradients(model, chunked, factor)
    assert all(
        parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in model.parameters()
    )
    limits = 1.2 * relative_errors(plain_gradients, exact) + torch.finfo(dtype).eps
    assert (relative_errors(chunked_gradients, exact) < limits).all()


# Logits and memory


def test_logits_come_where_they_are_asked_for_or_cost_nothing_more() -> None:
    model, inputs = tiny_model(), batch()
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    without_labels = {"input_ids": inputs["input_ids"], "decoder_input_ids": decoder_input_ids}
    assert "logits" not in model.train()(**inputs)
    assert model.train()(**inputs, return_logits=True).logits.shape == (3, 6, 50)
    assert model.train()(**without_labels).logits.shape == (3, 6, 50)
    assert model.eval()(**inputs).logits.shape == (3, 6, 50)
    assert "logits" not in model.eval()(**inputs, return_logits=False)
    assert model.eval()(**without_labels, return_logits=False).logits.shape == (3, 6, 50)


USES: dict[str, Callable[[Any], Any]] = {
    "a method": lambda logits: logits.flatten(0, 1),
    "an attribute": lambda logits: logits.shape,
    "an index": lambda logits: logits[:, -1],
    "a sum": lambda logits: logits + 1,
    "a function": lambda logits: torch.log_softmax(logits, dim=-1),
    "another loss": lambda logits: nn.functional.cross_entropy(logits, batch()["labels"]),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda output: output,
    "pickled": lambda output: pickle.loads(pickle.dumps(output)),
    "replaced": lambda output: dataclasses.replace(output, encoder_last_hidden_state=None),
    "a tree": lambda output: torch.utils._pytree.tree_map(torch.Tensor.detach, output),
    "in float32": lambda output: convert_outputs_to_fp32(lambda: output)(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_logits_that_were_left_out_name_the_way_to_get_them(
    use: Callable[[Any], Any], copied: Callable[[Any], Any]
) -> None:
    output = tiny_model().train()(**batch())
    output.loss = output.loss.detach()
    output.encoder_last_hidden_state = output.encoder_last_hidden_state.detach()
    found = copied(output)
    assert "logits" not in found
    assert found.get("logits") is None
    assert len(found.to_tuple()) == len(found.keys())
    with pytest.raises((AttributeError, TypeError), match="`return_logits` must be True to read logits beside a loss"):
        use(found.logits)


def test_a_loss_that_a_stock_trainers_user_wrote_is_told_how_to_get_logits(tmp_path: Path) -> None:
    class OwnLoss(Trainer):
        asked: dict[str, bool] = {}  # noqa: RUF012

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = model(**inputs, **self.asked)
            return nn.functional.cross_entropy(outputs.logits.flatten(0, 1), inputs["labels"].flatten())

    row = {name: value[0] for name, value in batch().items()}
    settings = TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, save_strategy="no", disable_tqdm=True)
    trainer = OwnLoss(tiny_model(), settings, train_dataset=[row])
    with pytest.raises(AttributeError, match="Call the model with `return_logits=True`, or without `labels`"):
        trainer.train()
    trainer.asked = {"return_logits": True}
    assert trainer.train().global_step == 1


class LargestOverVocabulary(TorchDispatchMode):
    """Records the most rows of any tensor made whose last dimension is the vocabulary."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.num_rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, Tensor) and tensor.shape[-1:] == (self.vocab_size,):
                self.num_rows = max(self.num_rows, tensor.numel() // self.vocab_size)
        return result


@pytest.mark.parametrize("r_drop_alpha", [0.0, 5.0], ids=["plain", "R-Drop"])
@pytest.mark.parametrize("change", [None, hooked_head], ids=["plain head", "hooked head"])
@both_smoothings
def test_a_training_step_makes_no_more_logits_at_a_time_than_a_chunk(
    smoothing: float,
    change: Callable[[Model], None] | None,
    r_drop_alpha: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen in every tensor that torch makes, forward and backward; (D, V) is the projection's own size, so D is 4."""
    set_chunk(monkeypatch, 4)
    model = tiny_model(d_model=4, lm_head_bias=True, vocab_size=47).train()
    if change is not None:
        change(model)
    with LargestOverVocabulary(47) as chunked:
        model(**twice(batch()), smoothing=smoothing, r_drop_alpha=r_drop_alpha).loss.backward()
    with LargestOverVocabulary(47) as plain:
        plain_loss(model, twice(batch()), smoothing).backward()
    assert (chunked.num_rows, plain.num_rows) == (4, 36)


@pytest.mark.parametrize("r_drop_alpha", [0.0, 5.0], ids=["plain", "R-Drop"])
@pytest.mark.parametrize("change", [None, hooked_head], ids=["plain head", "hooked head"])
def test_a_training_step_keeps_no_logits_for_its_backward_pass(
    change: Callable[[Model], None] | None, r_drop_alpha: float
) -> None:
    model = tiny_model(vocab_size=47, d_model=4).train()
    if change is not None:
        change(model)
    kept: list[tuple[int, ...]] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(**twice(batch()), r_drop_alpha=r_drop_alpha).loss
    assert kept
    assert not [shape for shape in kept if shape[-1:] == (47,) and shape != (4, 47)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        plain_loss(model, twice(batch()))
    assert (36, 47) in kept
    loss.backward()


# Labels that the stock Trainer takes away


def test_labels_are_shifted_right_after_the_start_token() -> None:
    """https://github.com/huggingface/transformers/issues/10452."""
    labels = torch.tensor([[5, 6, 2], [7, 2, -100], [8, -100, -100], [-100, -100, -100]])
    expected = torch.tensor([[1, 5, 6], [1, 7, 2], [1, 8, 0], [1, 0, 0]])
    model = tiny_model()
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), expected)
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels=labels), expected)
    assert labels[3, 0] == -100


def test_without_a_start_token_labels_cannot_be_shifted() -> None:
    model = tiny_model(decoder_start_token_id=None)
    with pytest.raises(ValueError, match=r"`decoder_start_token_id` must be the id that .*, but is None instead"):
        model.prepare_decoder_input_ids_from_labels(torch.tensor([[5]]))


def test_the_smoothed_loss_is_the_stock_trainers() -> None:
    """https://github.com/huggingface/transformers/issues/10452: its smoother takes logits of shifted labels."""
    model, inputs = tiny_model(), batch()
    ours = model(**inputs, smoothing=0.1).loss
    labels = inputs.pop("labels")
    outputs = model(**inputs, decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels))
    assert_same(LabelSmoother(0.1)(outputs, labels), ours)


# Gradients of gradients, and of single rows


def test_second_derivatives_are_exact_with_logits_and_refused_without() -> None:
    """The gradients that training mode forms in its forward pass would count as constants."""
    model = tiny_model().train()
    weight = model.model.decoder.layers[1].fc1.weight

    def second_derivative(loss: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), weight)
        assert isinstance(second, Tensor)
        return second

    expected = second_derivative(plain_loss(model, batch(), smoothing=0.1))
    actual = second_derivative(model(**batch(), smoothing=0.1, return_logits=True).loss)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(RuntimeError, match="`return_logits` must be True for second derivatives of the loss"):
        second_derivative(model(**batch(), smoothing=0.1).loss)


def gradients_of_each_row(model: Model, inputs: dict[str, Tensor]) -> Gradients:
    rows = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(3)]
    found = [gradients(model, plain_loss(model, row, smoothing=0.1)) for row in rows]
    return {name: torch.stack([each[name] for each in found]) for name in found[0]}


@every_layout
def test_torch_func_gives_the_gradients_of_each_row(layout: dict[str, Any]) -> None:
    model = tiny_model(attention="eager", **layout).train()
    weights = dict(model.named_parameters())

    def loss(weights: Gradients, row: dict[str, Tensor]) -> Tensor:
        inputs = {name: value[None] for name, value in row.items()}
        output: Any = torch.func.functional_call(model, weights, (), inputs | {"smoothing": 0.1})
        return output.loss  # type: ignore[no-any-return]

    inputs = {name: value for name, value in batch().items() if name != "attention_mask"}  # transformers looks into it
    expected = gradients_of_each_row(model, inputs)
    first = torch.func.grad(loss)(weights, {name: value[0] for name, value in inputs.items()})
    of_each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, inputs)
    for name, gradient in expected.items():
        torch.testing.assert_close(first[name], gradient[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(of_each[name], gradient, atol=1e-5, rtol=1e-4)


def test_dropout_under_vmap_is_as_random_as_asked_for() -> None:
    model = tiny_model(attention="eager", dropout=0.3).train()
    row = {name: value[:1] for name, value in batch().items()}

    def loss(_: Tensor) -> Tensor:
        return model(**row).loss  # type: ignore[no-any-return]

    for randomness, num_losses in (("different", 3), ("same", 1)):
        losses = torch.func.vmap(loss, randomness=randomness)(torch.zeros(3))
        assert len(set(losses.tolist())) == num_losses


def test_hooks_that_collect_gradients_of_rows_see_whole_batches_at_the_output_projection() -> None:
    """Opacus' GradSampleModule, which names them `grad_sample`, found none for `lm_head.weight`."""
    model = tiny_model(tie_word_embeddings=False).train()
    expected = gradients_of_each_row(model, batch())["lm_head.weight"]
    counts = (batch()["labels"] != -100).sum(dim=1)
    seen: list[Tensor] = []
    head: Any = model.lm_head
    head.weight.grad_sample = None

    def remember(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen.append(inputs[0].detach())

    def collect(module: nn.Module, grad_input: Any, grad_output: tuple[Tensor]) -> None:
        head.weight.grad_sample = torch.einsum("btv,btd->bvd", grad_output[0], seen[-1])

    head.register_forward_hook(remember)
    head.register_full_backward_hook(collect)
    model(**batch(), smoothing=0.1, num_items_in_batch=1).loss.backward()
    torch.testing.assert_close(head.weight.grad_sample / counts[:, None, None], expected, atol=1e-5, rtol=1e-4)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"smoothing": 1.5}, "`smoothing` must be from 0 to 1, but is 1.5 instead"),
        ({"smoothing": -0.1}, "`smoothing` must be from 0 to 1, but is -0.1 instead"),
        ({"smoothing": float("nan")}, "`smoothing` must be from 0 to 1, but is nan instead"),
        ({"r_drop_alpha": float("nan")}, "`r_drop_alpha` must be at least 0 and finite, but is nan instead"),
        ({"r_drop_alpha": float("inf")}, "`r_drop_alpha` must be at least 0 and finite, but is inf instead"),
    ],
    ids=str,
)
def test_a_number_out_of_range_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        tiny_model()(**batch(), **arguments)


@pytest.mark.parametrize(
    ("name", "near"),
    [("label_smoothing", "smoothing"), ("decoder_inputs_ids", "decoder_input_ids"), ("alpha", "r_drop_alpha")],
)
def test_an_unknown_keyword_is_an_error_that_names_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"`{name}` must be a keyword .* but is none. The nearest one is `{near}`"):
        tiny_model()(**batch(), **{name: 0.1})


def test_the_keywords_of_other_libraries_pass() -> None:
    expected = tiny_model()(**batch()).loss
    for name in (*TransformersKwargs.__annotations__, "task_ids", "adapter_names", "cache_position", "return_dict"):
        value = True if name == "return_dict" else None
        assert tiny_model()(**batch(), **{name: value}).loss.equal(expected), name
