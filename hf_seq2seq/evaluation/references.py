"""References: what each hypothesis should have been, one text or several that are all right."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any


Texts = Sequence[str]
References = Sequence[str] | Sequence[Sequence[str]]


def alternatives(references: References) -> list[list[str]]:
    """Returns the references of each line: lists with at least one text each.

    Args:
        references: A text for each line, or a list of texts for each line.

    Raises:
        ValueError: If a line has no reference.
    """
    lines = [[line] if isinstance(line, str) else list(line) for line in references]
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ValueError(f"`references` must have a text for each line, but line {number} has none.")
    return lines


def streams(references: Sequence[Sequence[str]]) -> list[Any]:
    """Returns the references as sacreBLEU takes them: all first ones, all second ones and so on, None for none."""
    return list(zip_longest(*references))


def check_numbers(references: References, **texts: Texts) -> None:
    """Checks that there are references, and as many of each of the other texts, which are given by name.

    Raises:
        ValueError: If not.
    """
    for name, of_system in texts.items():
        if not references or len(of_system) != len(references):
            raise ValueError(
                f"`{name}` must be as many as `references` and at least one, but are {len(of_system)} for "
                f"{len(references)} instead."
            )
