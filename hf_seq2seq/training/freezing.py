"""Weights that training leaves as they are."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn


logger = logging.getLogger(__name__)


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freezes the weights whose names match a pattern, and logs how many they are.

    Weights that are tied are one weight with several names. It is frozen where one of them matches, and a warning
    names the others.

    Args:
        model: The model, whose weights are changed in place.
        patterns: Names of weights, in which `*` stands for any characters, such as "model.encoder.*".

    Raises:
        ValueError: If a pattern matches no weight, or no weight is left to be trained.
    """
    names: dict[nn.Parameter, list[str]] = defaultdict(list)
    for name, weight in model.named_parameters(remove_duplicate=False):
        names[weight].append(name)
    all_names = [name for weight_names in names.values() for name in weight_names]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in all_names):
            raise ValueError(
                f"`freeze` must be patterns of the names of weights, such as {_example(all_names)!r}, but {pattern!r} "
                "matches none."
            )
    for weight, weight_names in names.items():
        matching = [name for name in weight_names if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if matching:
            weight.requires_grad_(False)
            _tell_of_tied(matching, weight_names)
    num_weights = sum(weight.numel() for weight in names)
    num_frozen = sum(weight.numel() for weight in names if not weight.requires_grad)
    if num_frozen == num_weights:
        raise ValueError(
            f"`freeze` must leave weights to be trained, but {', '.join(map(repr, patterns))} matches all of them. "
            "Freeze fewer."
        )
    logger.info("Frozen: %.1f M of %.1f M parameters.", num_frozen / 1e6, num_weights / 1e6)


def _tell_of_tied(matching: Sequence[str], names: Sequence[str]) -> None:
    others = [name for name in names if name not in matching]
    if others:
        logger.warning(
            "`freeze` also freezes %s, which %s tied to %s: they are one weight.",
            *(" and ".join(f"`{name}`" for name in others), "is" if len(others) == 1 else "are", f"`{matching[0]}`"),
        )


def _example(names: Sequence[str]) -> str:
    """Returns a pattern of the first part of a model, such as "model.encoder.*"."""
    return ".".join([*names[0].split(".")[:2], "*"])
