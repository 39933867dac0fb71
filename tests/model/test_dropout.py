"""Dropout on a CPU drops at its rate, keeps the mean, and depends only on torch's seed."""

import pytest
import torch
from reference.tiny_models import tiny_model

from hf_seq2seq.model.dropout_seq2seq_transformer import dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1_000_003,), (100, 100, 101)], ids=str)
def test_elements_are_dropped_at_the_rate_and_the_others_scaled(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    output = dropout(torch.ones(shape), p, training=True)
    values = output.unique()
    assert values[0] == 0
    assert values[1:].tolist() == pytest.approx([1 / (1 - p)], rel=1e-4)
    num_elements = output.numel()
    deviation = (p * (1 - p) / num_elements) ** 0.5
    assert (output == 0).double().mean().item() == pytest.approx(p, abs=4 * deviation)
    assert output.double().mean().item() == pytest.approx(1, abs=4 * deviation / (1 - p))


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    is_dropped = (dropout(torch.ones(400_000), 0.5, training=True) == 0).double()
    for distance in (1, 2, 3, 4, 8):
        both = (is_dropped[:-distance] * is_dropped[distance:]).mean().item()
        assert both == pytest.approx(0.25, abs=0.004)
    for place in range(4):  # of a number's 64 bits
        assert is_dropped[place::4].mean().item() == pytest.approx(0.5, abs=0.007)


def test_the_gradient_goes_through_what_was_kept() -> None:
    torch.manual_seed(0)
    states = torch.randn(50, 7, requires_grad=True)
    output = dropout(states, 0.4, training=True)
    output.sum().backward()
    scale = torch.where(output == 0, 0.0, 1 / 0.6)
    torch.testing.assert_close(states.grad, scale, atol=1e-4, rtol=1e-4)


def test_the_seed_decides() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropout(torch.ones(1000), 0.3, training=True)

    assert draw(1).equal(draw(1))
    assert not draw(1).equal(draw(2))


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False), (1.0, True), (1e-9, True)])
def test_rates_without_an_effect_or_without_a_rest(p: float, training: bool) -> None:
    states = torch.randn(100)
    expected = torch.zeros(100) if p == 1 else states
    assert dropout(states, p, training).equal(expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_type_stays(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(9, dtype=dtype), 0.5, training=True).dtype == dtype


def test_the_model_drops_in_training_alone() -> None:
    model = tiny_model(dropout=0.5)
    ids = torch.tensor([[5, 6, 7]])
    evaluated = [model(input_ids=ids, decoder_input_ids=ids).logits for _ in range(2)]
    trained = [model.train()(input_ids=ids, decoder_input_ids=ids).logits for _ in range(2)]
    assert evaluated[0].equal(evaluated[1])
    assert not trained[0].equal(trained[1])
