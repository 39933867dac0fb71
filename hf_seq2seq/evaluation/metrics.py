"""The table of metrics, and `score`, which computes them.

A new metric is a new row: `train`, `evaluate`, early stopping, model cards and `push` read it there. Then run
scripts/write_train_options.py, which writes the help of `--metrics`, and add a line to docs/evaluating.md. Two files
name metrics: inspection/training_curves.py those that it does not draw, training/arguments.py that of early stopping.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sacrebleu.metrics.base import Metric as SacrebleuMetric

from .line_metrics import LineMetric, characters, error_rate, is_right, is_wrong, rouge
from .own_metric import OwnMetric, import_function
from .references import References, Texts, alternatives, check_numbers, streams
from .translation_metrics import bleu, bleu_parts, chrf, ter


@dataclass(frozen=True)
class Metric:
    """A row of the table of metrics.

    Attributes:
        name: Its name in results, in options and in a card's facts.
        title: Its name for people.
        hub_name: Its name in the metadata of a card, where the Hub lists models by it.
        make: Makes the metric, which is one of sacreBLEU's kind, for given references, several for each line.
        higher_is_better: Whether the better of two systems has the higher value.
        unit: What is written after the value.
        parts: Returns what a score of the metric is made of, where that is shown.
        package: The package that computes it, where that is one of the extra `metrics`.
    """

    name: str
    title: str
    hub_name: str
    make: Callable[[Sequence[Sequence[str]]], SacrebleuMetric]
    higher_is_better: bool = True
    unit: str = ""
    parts: Callable[[Any], dict[str, Any]] | None = None
    package: str | None = None

    @property
    def signature_name(self) -> str:
        """The name of its signature in results and in a card's facts."""
        return f"{self.name}_signature"

    @property
    def parts_name(self) -> str:
        """The name of its parts in results."""
        return f"{self.name}_parts"

    def format(self, value: float) -> str:
        """Returns a value as people read it, such as "33.1" or "50.0 %"."""
        return f"{value:.1f}{self.unit}"


def chosen_metrics(names: str | Iterable[str] | None, sources: Texts | None = None) -> dict[str, Metric]:
    """Returns the metrics of these names: those of the table in its order, then those of the user's own.

    Args:
        names: Their names, or one text with commas between them; None is `DEFAULT_METRICS`. A name with a colon,
            `module:function`, is a metric of the user's own. docs/evaluating.md says what its function gets and
            returns.
        sources: What was translated, for metrics of the user's own.

    Raises:
        ValueError: If a name is not in the table, there is none, a function cannot be imported, or a package is not
            installed.
    """
    names = DEFAULT_METRICS if names is None else names
    wanted = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    unknown = [name for name in wanted if name not in METRICS and ":" not in name]
    if unknown or not wanted:
        raise ValueError(
            f"`metrics` must be names among {', '.join(METRICS)}, or functions of your own as module:function, with "
            f"commas between them, but has {repr(unknown[0]) if unknown else 'none'} instead."
        )
    chosen = {name: metric for name, metric in METRICS.items() if name in wanted}
    for metric in chosen.values():
        if metric.package is not None and find_spec(metric.package) is None:
            raise ValueError(
                f"`metrics` must be names of metrics whose package is installed, but {metric.name} needs "
                f"{metric.package}. Run `pip install 'hf-seq2seq[metrics]'`."
            )
    return chosen | {own.name: own for name in wanted if ":" in name for own in [_own_metric(name, sources)]}


def _own_metric(name: str, sources: Texts | None) -> Metric:
    function = import_function(name)
    own_name = name.rpartition(":")[2]
    if own_name in METRICS or own_name == "loss":
        raise ValueError(f"`metrics` must name functions that are called unlike loss and {', '.join(METRICS)}.")
    return _own_row(
        own_name,
        make=lambda references: OwnMetric(name, function, sources),
        higher_is_better=bool(getattr(function, "higher_is_better", True)),
    )


def _own_row(name: str, **fields: Any) -> Metric:
    return Metric(name, title=name, hub_name=name, **{"make": _no_function} | fields)


def _no_function(references: Sequence[Sequence[str]]) -> SacrebleuMetric:
    raise NotImplementedError("A metric that was read from results has no function.")


def score(
    hypotheses: Texts,
    references: References,
    metrics: str | Iterable[str] | None = None,
    *,
    sources: Texts | None = None,
) -> dict[str, Any]:
    """Scores hypotheses against their references.

    Args:
        hypotheses: The texts to score.
        references: What each should have been, in the same order: a text, or a list of texts that are all right.
        metrics: The names of the metrics, such as "bleu,chrf"; None is `DEFAULT_METRICS`. `module:function` is one of
            your own.
        sources: What was translated, for metrics of your own.

    Returns:
        The value of each metric for the whole, under its name; under NAME_signature how it was computed, unless there
        is only one way; and under `bleu_parts` what BLEU is made of. docs/evaluating.md says what each metric is.

    Raises:
        ValueError: If there is nothing to score, the numbers differ, or a metric is not known.
    """
    check_numbers(references, hypotheses=hypotheses)
    lines = alternatives(references)
    scores: dict[str, Any] = {}
    for row in chosen_metrics(metrics, sources).values():
        metric = row.make(lines)
        found = metric.corpus_score(hypotheses, streams(lines))
        scores[row.name] = float(found.score)
        signature = str(metric.get_signature())
        if signature != "nrefs:1":
            scores[row.signature_name] = signature
        if row.parts is not None:
            scores[row.parts_name] = row.parts(found)
    return scores


def metrics_in(results: Mapping[str, Any]) -> dict[str, Metric]:
    """Returns the metrics of which the results hold a value: those of the table in its order, then users' own.

    A value and a signature that names a function are taken for a metric of the user's own. The function is not needed.
    """
    own = [
        name.removesuffix("_signature")
        for name, value in results.items()
        if name.endswith("_signature") and "|function:" in str(value)
    ]
    found = {name: metric for name, metric in METRICS.items() if name in results}
    return found | {name: _own_row(name) for name in own if name in results and name not in METRICS}


def scores_in(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the results that are a metric's value or signature, in the order of `metrics_in`."""
    names = [name for metric in metrics_in(results).values() for name in (metric.name, metric.signature_name)]
    return {name: results[name] for name in names if name in results}


def _error_rate(name: str, title: str, cut: Callable[[str], Any], unit: str) -> Metric:
    return Metric(name, title, name, lambda references: error_rate(name, cut, unit), higher_is_better=False, unit=" %")


def _rouge(name: str, title: str) -> Metric:
    return Metric(name, title, "rouge", lambda references: rouge(name), package="rouge_score")


METRICS = {
    metric.name: metric
    for metric in (
        Metric("bleu", "BLEU", "bleu", bleu, parts=bleu_parts),
        Metric("chrf", "chrF", "chrf", chrf),
        Metric("ter", "TER", "ter", ter, higher_is_better=False),
        _rouge("rouge1", "ROUGE-1"),
        _rouge("rouge2", "ROUGE-2"),
        _rouge("rougeL", "ROUGE-L"),
        _error_rate("wer", "WER", str.split, "word"),
        _error_rate("cer", "CER", characters, "character"),
        _error_rate("per", "PER", str.split, "phoneme"),
        Metric(
            *("g2p_wer", "words wrong", "wer"),
            lambda references: LineMetric("g2p_wer", str.split, is_wrong, unit="line"),
            higher_is_better=False,
            unit=" %",
        ),
        Metric(
            *("exact_match", "exact match", "exact_match"),
            lambda references: LineMetric("exact_match", str, is_right),
            unit=" %",
        ),
    )
}
"""The metrics by name, in the order in which reports and cards show them."""

DEFAULT_METRICS = ("bleu", "chrf", "ter", "exact_match")
"""The metrics where none are chosen: those of translation."""
