"""The paper's learning rate, against values worked out by hand."""

from typing import Any

import pytest
import torch

from hf_seq2seq.training.arguments import Seq2SeqTransformerTrainingArguments
from hf_seq2seq.training.schedule import paper_learning_rate, paper_schedule, warn_of_unreached_peak


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (1, 1.746928e-7),  # 512^-0.5 4000^-1.5
        (1000, 1.746928e-4),
        (4000, 6.987712e-4),  # the peak, 512^-0.5 4000^-0.5
        (16000, 3.493856e-4),  # 4 times the steps, half the rate
        (100000, 1.397542e-4),
    ],
)
def test_the_rate_is_that_of_equation_3_for_the_base_model(step: int, rate: float) -> None:
    assert paper_learning_rate(step, 512) == pytest.approx(rate, rel=1e-6)


def test_without_warm_up_the_rate_falls_from_the_first_step() -> None:
    assert paper_learning_rate(1, 16, 0) == 0.25
    assert paper_learning_rate(4, 16, 0) == 0.125


@pytest.mark.parametrize(("name", "arguments"), [("step", (0, 8)), ("d_model", (1, 0)), ("warmup_steps", (1, 8, -1))])
def test_an_argument_out_of_range_is_named(name: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"^`{name}` must be at least [01], but is -?[01] instead\.$"):
        paper_learning_rate(*arguments)


def test_the_scheduler_gives_each_group_the_paper_s_rate_whatever_it_had() -> None:
    groups: list[dict[str, Any]] = [{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}]
    optimizer = torch.optim.SGD(groups, lr=3.0)
    scheduler = paper_schedule(optimizer, d_model=16, warmup_steps=2)
    for step in range(1, 6):
        assert [group["lr"] for group in optimizer.param_groups] == [paper_learning_rate(step, 16, 2)] * 2
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("options", "updates", "message"),
    [
        ({"paper_schedule": True}, 160, "rises for 4,000 updates, but the run has only 160: it ends at 4.0 % of"),
        ({"paper_schedule": True}, 4000, None),
        ({"warmup_steps": 10}, 9, "rises for 10 updates, but the run has only 9: it ends at 90.0 % of"),
        ({"warmup_steps": 10, "lr_scheduler_type": "constant"}, 9, None),
        ({}, 1, None),  # a share of all updates
    ],
)
def test_a_run_too_short_for_its_warm_up_is_told(
    options: dict[str, Any], updates: int, message: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_unreached_peak(Seq2SeqTransformerTrainingArguments(output_dir="out", **options), updates)
    assert len(caplog.messages) == (message is not None)
    assert (message or "") in caplog.text
