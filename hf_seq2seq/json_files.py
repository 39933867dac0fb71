"""Reads and writes JSON more strictly than Python's json does."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any


def parse_json(text: str) -> Any:
    """Returns what a JSON text holds.

    Raises:
        ValueError: If it is not JSON, is nested too deeply, or an object has a field twice. Python would take the last
            of the two in silence.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_of(value: Any, **options: Any) -> str:
    """Returns JSON, with null where a number is NaN or infinite, which JSON does not have.

    Args:
        value: What is to be written.
        **options: Those of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value, **options), parse_constant=lambda name: None), **options)


def check_once(names: Sequence[str], place: str = "") -> None:
    """Checks that each field of a mapping has one value.

    Args:
        names: The names of the fields as they are written.
        place: Where they stand, for the message.

    Raises:
        ValueError: If one is there again.
    """
    for name, number in Counter(names).items():
        if number > 1:
            raise ValueError(f"The field `{name}`{place} must be there once, but is there {number} times")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    check_once([name for name, _ in pairs])
    return dict(pairs)
