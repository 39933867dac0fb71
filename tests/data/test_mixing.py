import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import datasets
import pytest

from hf_seq2seq.data import mix_corpora
from hf_seq2seq.data.mixing import tag_sources


def corpus(name: str, num_pairs: int, kind: str = "dataset") -> Any:
    texts = [f"{name}{number}" for number in range(num_pairs)]
    dataset = datasets.Dataset.from_dict({"source": texts, "target": texts})
    return dataset if kind == "dataset" else dataset.to_iterable_dataset()


def sources(mixture: Any) -> list[str]:
    return [row["source"] for row in mixture]


both_kinds = pytest.mark.parametrize("kind", ["dataset", "stream"])


@both_kinds
def test_one_corpus_comes_back_as_it_is(kind: str) -> None:
    only = corpus("a", 3, kind)
    assert mix_corpora([only]) is only
    assert mix_corpora([only], [0.2]) is only


@both_kinds
def test_without_weights_each_pair_comes_once(kind: str) -> None:
    mixture = mix_corpora([corpus("a", 3, kind), corpus("b", 2, kind)])
    assert sources(mixture) == ["a0", "a1", "a2", "b0", "b1"]


@both_kinds
def test_weights_are_the_shares_of_the_mixture(kind: str) -> None:
    mixture = sources(mix_corpora([corpus("a", 3000, kind), corpus("b", 50, kind)], [6, 2], seed=1))
    counts = Counter(text[0] for text in mixture)
    # Three standard deviations of a binomial distribution.
    assert abs(counts["a"] - 0.75 * len(mixture)) < 3 * (len(mixture) * 0.75 * 0.25) ** 0.5


@both_kinds
def test_a_mixture_ends_with_the_first_pass_of_the_corpus_that_takes_longest(kind: str) -> None:
    sizes = {"a": 400, "b": 30}
    mixture = sources(mix_corpora([corpus(name, size, kind) for name, size in sizes.items()], [0.5, 0.5]))
    assert mixture[-1] == "a399"
    for name, size in sizes.items():
        given = [text for text in mixture if text[0] == name]
        # In its order, and again from the start.
        assert given == [f"{name}{number % size}" for number in range(len(given))]
        assert len(given) >= size


@both_kinds
def test_a_mixture_follows_from_the_seed(kind: str) -> None:
    def mix(seed: int) -> Any:
        return mix_corpora([corpus("a", 200, kind), corpus("b", 200, kind)], [1, 2], seed=seed)

    first = mix(3)
    assert sources(first) == sources(first) == sources(mix(3))
    assert sources(mix(4)) != sources(first)


def test_a_stream_mixes_as_a_dataset_does() -> None:
    dataset, stream = (
        mix_corpora([corpus("a", 300, kind), corpus("b", 70, kind)], [1, 1], seed=5) for kind in ("dataset", "stream")
    )
    assert sources(dataset) == sources(stream)


def test_shares_and_passes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="hf_seq2seq")
    mixture = mix_corpora([corpus("a", 300), corpus("b", 10)], [3, 1])
    mix_corpora([corpus("a", 3, "stream"), corpus("b", 1, "stream")], [3, 1])
    passes = f"{0.75 * len(mixture) / 300:.1f} / {0.25 * len(mixture) / 10:.1f}"
    assert caplog.messages == [
        f"Mixed 2 corpora to {len(mixture)} pairs, of which they give about 75.0 / 25.0 %; each corpus is passed "
        f"through about {passes} times.",
        "Mixing 2 corpora, which give 75.0 / 25.0 % of the pairs.",
    ]


@pytest.mark.parametrize(
    ("corpora", "weights", "message"),
    [
        ([], None, "`corpora` must hold at least one corpus, but holds none"),
        (
            [corpus("a", 1), corpus("b", 1, "stream")],
            None,
            "must be all datasets or all streams, but 1 of 2 are streams",
        ),
        ([corpus("a", 1)] * 2, [1], "`weights` must hold one weight for each of the 2 corpora, but holds 1 instead"),
        ([corpus("a", 1)] * 2, [1, 0], "`weights` must be positive and finite, but one is 0 instead. Leave out"),
        ([corpus("a", 1)] * 2, [1, -2.5], r"but one is -2\.5 instead"),
        ([corpus("a", 1)] * 2, [float("inf"), 1], "but one is inf instead"),
        ([corpus("a", 1)] * 2, [float("nan"), 1], "but one is nan instead"),
        ([corpus("a", 1)], [0], "but one is 0 instead"),
    ],
)
def test_corpora_and_weights_that_do_not_fit_are_errors(
    corpora: Sequence[Any], weights: list[float] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mix_corpora(corpora, weights)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_tag_is_put_before_each_source(streaming: bool) -> None:
    pairs = corpus("text ", 2, "stream" if streaming else "dataset")
    tagged = tag_sources(pairs, "<t>")
    expected = [{"source": f"<t> text {number}", "target": f"text {number}"} for number in range(2)]
    assert list(tagged) == expected
    assert tag_sources(pairs, "") is pairs
