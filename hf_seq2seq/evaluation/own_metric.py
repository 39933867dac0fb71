"""A metric of the user's own: a function that `--metrics module:function` names."""

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from numbers import Real
from typing import Any

from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.base import Score, Signature

from .references import Texts


OwnFunction = Callable[[list[str], list[list[str]], list[str] | None], float | Sequence[float]]


def import_function(name: str) -> OwnFunction:
    """Returns the function that is called `module:function`.

    Raises:
        ValueError: If the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"`metrics` must name functions as module:function, but {name!r} has a module that cannot be imported "
            f"({error}). Install it, or name its folder in the environment variable PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(
            f"`metrics` must name functions as module:function, but `{module_name}` ({module.__file__}) has no "
            f"function {function_name!r}."
        )
    return function  # type: ignore[no-any-return]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


class OneNumberError(ValueError):
    """Raised where a number for each hypothesis is needed, and a function returned one for all of them."""


class OwnMetric(SacrebleuMetric):
    """A metric of sacreBLEU's kind whose value is what a function returns, or the mean of that.

    Args:
        name: `module:function`.
        function: Gets the hypotheses, a list of references for each, and the sources (None if they are not known).
            Returns a number, or a number for each hypothesis. Only the latter can be compared between two systems.
        sources: What was translated.
    """

    def __init__(self, name: str, function: OwnFunction, sources: Texts | None) -> None:
        super().__init__()
        self.name, self.function, self.sources = name, function, sources

    def _computed(self, hypotheses: Texts, references: Any) -> float | list[float]:
        lines = [[text for text in line if text is not None] for line in zip(*references, strict=True)]
        numbers = set(map(len, lines))
        self.num_refs = numbers.pop() if len(numbers) == 1 else -1  # which the signature tells
        found: Any = self.function(list(hypotheses), lines, None if self.sources is None else list(self.sources))
        values = found.tolist() if hasattr(found, "tolist") else found  # arrays and tensors
        if isinstance(values, Sequence) and len(values) == len(hypotheses) and all(map(_is_number, values)):
            return [float(value) for value in values]
        if _is_number(values):
            return float(values)
        raise ValueError(
            f"`{self.name}` must return a finite number, or one for each of {len(hypotheses)} hypotheses, but "
            f"returned {found!r:.100} instead."
        )

    def corpus_score(self, hypotheses: Texts, references: Any, n_bootstrap: int = 1) -> Score:
        """Returns the score of all hypotheses."""
        values = self._computed(hypotheses, references)
        return Score(self.name, values if isinstance(values, float) else sum(values) / len(values))

    def _extract_corpus_statistics(self, hypotheses: Texts, references: Any) -> list[list[float]]:
        values = self._computed(hypotheses, references)
        if isinstance(values, float):
            raise OneNumberError(f"`{self.name}` must return a number for each hypothesis, but returned one for all.")
        return [[value, 1.0] for value in values]

    def _aggregate_and_compute(self, stats: list[list[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Any) -> Score:
        total, number = (float(value) for value in stats)
        return Score(self.name, total / number)

    def get_signature(self) -> Signature:
        """Returns the number of references, and the function."""
        signature = super().get_signature()
        signature.update("function", self.name)
        signature.update("version", None)
        return signature

    def _preprocess_segment(self, sent: str) -> str:
        raise NotImplementedError

    def _extract_reference_info(self, refs: Texts) -> dict[str, Any]:
        raise NotImplementedError

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        raise NotImplementedError
