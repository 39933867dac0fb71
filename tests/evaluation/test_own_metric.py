"""A function of the user's own is a metric as those of the table are."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_seq2seq.evaluation import chosen_metrics, compare, comparison_lines, metrics_in, score, score_lines, scores_in


CODE = """
calls = []

def copied(hypotheses, references, sources):
    calls.append((hypotheses, references, sources))
    return [float(hypothesis == source) for hypothesis, source in zip(hypotheses, sources)]

def surplus(hypotheses, references, sources):
    return sum(map(len, hypotheses)) - sum(len(line[0]) for line in references)

surplus.higher_is_better = False

def bleu(hypotheses, references, sources):
    return 1.0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_scores.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_scores", raising=False)
    return "my_scores"


def test_a_function_gets_texts_and_its_value_stands_beside_others(module: str) -> None:
    hypotheses, references, sources = ["a", "x"], [["b"], ["x", "y"]], ["a", "b"]
    names = f"{module}:copied,exact_match, {module}:surplus"
    scores = score(hypotheses, references, names, sources=sources)
    assert sys.modules[module].calls == [(hypotheses, references, sources)]
    assert scores == {
        "exact_match": 50,
        "exact_match_signature": "nrefs:var",
        "copied": 0.5,
        "copied_signature": "nrefs:var|function:my_scores:copied",
        "surplus": 0,
        "surplus_signature": "nrefs:var|function:my_scores:surplus",
    }
    assert score_lines(scores)[1] == "copied       0.5  nrefs:var|function:my_scores:copied"
    chosen = chosen_metrics(names)
    assert (chosen["copied"].higher_is_better, chosen["surplus"].higher_is_better) == (True, False)


def test_results_tell_their_own_metrics_without_the_function() -> None:
    results = {"loss": 1.0, "copied": 0.5, "copied_signature": "nrefs:1|function:gone:copied", "bleu": 3.0}
    assert list(metrics_in(results)) == ["bleu", "copied"]
    assert scores_in(results) == {name: results[name] for name in ("bleu", "copied", "copied_signature")}


def test_two_systems_are_compared_by_a_number_for_each_line_alone(
    module: str, caplog: pytest.LogCaptureFixture
) -> None:
    sources = [str(number) for number in range(40)]
    with caplog.at_level(logging.WARNING):
        names = f"{module}:copied,{module}:surplus"
        found = compare(sources, ["x"] * 40, sources, names, sources=sources)
    assert list(found) == ["copied"]
    assert (found["copied"]["score"], found["copied"]["baseline"]) == (1, 0)
    assert float(found["copied"]["p_value"]) < 0.01
    assert "`my_scores:surplus` must return a number for each hypothesis" in caplog.text
    assert comparison_lines(found)[0].startswith("copied       1.0 ± 0.0 against 0.0 ± 0.0, p = 0.00")


@pytest.mark.parametrize("make", [np.array, torch.tensor, list, tuple])
def test_arrays_and_tensors_are_numbers_too(
    make: Callable[[list[float]], Any], module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    __import__(module)
    monkeypatch.setattr(sys.modules[module], "surplus", lambda *texts: make([0.25, 0.75]))
    assert score(["a", "b"], ["a", "b"], f"{module}:surplus")["surplus"] == 0.5


@pytest.mark.parametrize("returned", [None, "1", float("nan"), [1.0], [1.0, float("inf")], [[1.0], [2.0]]])
def test_what_is_no_number_is_an_error(returned: Any, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    __import__(module)
    monkeypatch.setattr(sys.modules[module], "surplus", lambda *texts: returned)
    with pytest.raises(ValueError, match=r"`my_scores:surplus` must return a finite number, or one for each of 2 hyp"):
        score(["a", "b"], ["a", "b"], f"{module}:surplus")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_such_module:f",
            r"'no_such_module:f' has a module that cannot be imported \(No module named .*PYTHONPATH",
        ),
        (":f", "cannot be imported"),
        ("my_scores:missing", r"`my_scores` \(.*my_scores.py\) has no function 'missing'"),
        ("my_scores:calls", "has no function 'calls'"),
        ("my_scores:bleu", "must name functions that are called unlike loss and bleu, chrf"),
    ],
)
def test_a_name_without_a_function_is_an_error(name: str, message: str, module: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen_metrics(name)
