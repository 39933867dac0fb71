"""The learning rate: its defaults, and the paper's schedule."""

import logging
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


SCRATCH_LEARNING_RATE = 7e-4  # about the highest rate of the paper's base model
FINE_TUNING_LEARNING_RATE = 1e-4
DEFAULT_SCHEDULE = "inverse_sqrt"  # transformers' name of it: after the warm-up, the rate falls as the paper's does
DEFAULT_WARMUP = 0.1  # of all updates
PAPER_WARMUP_STEPS = 4000

# transformers' schedules that do not read `warmup_steps`.
_WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau", "greedy")

logger = logging.getLogger(__name__)


def paper_learning_rate(step: int, d_model: int, warmup_steps: float = PAPER_WARMUP_STEPS) -> float:
    """Returns d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5): Vaswani et al. (2017), section 5.3, equation 3.

    It rises linearly to (d_model warmup_steps)^-0.5 and then falls with the square root of the step.

    Args:
        step: The number of the update, from 1.
        d_model: The width of the model.
        warmup_steps: The number of the update with the highest rate; 0 for no warm-up.

    Raises:
        ValueError: If an argument is out of range.
    """
    for name, value, least in (("step", step, 1), ("d_model", d_model, 1), ("warmup_steps", warmup_steps, 0)):
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}, but is {value} instead.")
    rate = step**-0.5
    if step < warmup_steps:
        rate = step * warmup_steps**-1.5
    return float(d_model**-0.5 * rate)


def paper_schedule(optimizer: Optimizer, d_model: int, warmup_steps: float = PAPER_WARMUP_STEPS) -> LambdaLR:
    """Returns a scheduler that gives every parameter group the paper's rate, whatever rate the group had."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] = 1.0  # the factor of the lambda's value
    return LambdaLR(optimizer, lambda updates: paper_learning_rate(updates + 1, d_model, warmup_steps))


def warn_of_unreached_peak(args: Any, updates: int) -> None:
    """Warns where a run ends before its learning rate has reached its highest value.

    Args:
        args: The training arguments, which choose the schedule.
        updates: The number of updates of the run.
    """
    warmup_steps = args.get_warmup_steps(updates)
    has_warmup = args.paper_schedule or args.lr_scheduler_type not in _WITHOUT_WARMUP
    if has_warmup and warmup_steps > updates:
        logger.warning(
            "The learning rate rises for %s updates, but the run has only %s: it ends at %.1f %% of the highest rate. "
            "Lower `warmup_steps`, which below 1 is a share of all updates, or train for longer.",
            *(f"{warmup_steps:,}", f"{updates:,}", 100 * updates / warmup_steps),
        )
