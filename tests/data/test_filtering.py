import pickle
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest

from hf_seq2seq.data import filter_pairs
from hf_seq2seq.data.filtering import STREAM_BATCH_SIZE


Pairs = list[tuple[str, str]]


def make_dataset(pairs: Pairs) -> datasets.Dataset:
    sources, targets = zip(*pairs, strict=True)
    return datasets.Dataset.from_dict({"source": sources, "target": targets})


def make(pairs: Pairs, kind: str) -> Any:
    dataset = make_dataset(pairs)
    return dataset if kind == "dataset" else dataset.to_iterable_dataset()


def pairs_of(dataset: Any) -> Pairs:
    return [(row["source"], row["target"]) for row in dataset]


def random_pairs(num_pairs: int) -> Pairs:
    generator = np.random.default_rng(0)

    def text() -> str:
        return "".join(generator.choice(list("aäß𝒳 "), generator.integers(1, 9))) + "."

    return [(text(), text()) for _ in range(num_pairs)]


both_kinds = pytest.mark.parametrize("kind", ["dataset", "stream"])


@both_kinds
def test_without_rules_all_pairs_stay(kind: str) -> None:
    pairs = [("a", "a"), ("a", "a"), ("b", "c" * 99)]
    assert pairs_of(filter_pairs(make(pairs, kind))) == pairs


@both_kinds
def test_lengths_are_counted_in_unicode_characters_on_each_side(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [("ab", "ab"), ("𝒳ß", "äöü"), ("a", "abc"), ("abc", "a"), ("abcd", "ab"), ("ab", "abcd")]
    assert pairs_of(filter_pairs(make(pairs, kind), min_characters=2, max_characters=3)) == pairs[:2]
    assert pairs_of(filter_pairs(make(pairs, kind), min_characters=2)) == pairs[:2] + pairs[4:]
    assert pairs_of(filter_pairs(make(pairs, kind), max_characters=3)) == pairs[:4]
    assert caplog.messages == [
        "Dropped 4 of 6 pairs, since a side has fewer than 2 or more than 3 characters.",
        "Dropped 2 of 6 pairs, since a side has fewer than 2 characters.",
        "Dropped 2 of 6 pairs, since a side has more than 3 characters.",
    ]


@both_kinds
def test_the_ratio_is_that_of_the_longer_to_the_shorter_side(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [("aa", "aaa"), ("äää", "aa"), ("aa", "aaaa"), ("aaaa", "aa"), ("a", "b")]
    kept = pairs_of(filter_pairs(make(pairs, kind), max_length_ratio=1.5))
    assert kept == [pairs[0], pairs[1], pairs[4]]
    assert caplog.messages == [
        "Dropped 2 of 5 pairs, since one side has more than 1.5 times as many characters as the other."
    ]


@both_kinds
def test_identical_sides_are_compared_without_white_space_around_them(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [("a b", " a b\u2003"), ("a b", "a  b"), ("a", "A"), ("x", "x")]
    assert pairs_of(filter_pairs(make(pairs, kind), drop_identical=True)) == pairs[1:3]
    assert caplog.messages == ["Dropped 2 of 4 pairs, since both sides are the same."]


def test_a_pair_is_a_duplicate_if_both_sides_came_before_together(caplog: pytest.LogCaptureFixture) -> None:
    pairs = [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("c", "b"),
        ("a", "b"),
        ("ab", ""),
        ("", "ab"),
        ("a", "c"),
        ("a", "b"),
    ]
    assert pairs_of(filter_pairs(make_dataset(pairs), drop_duplicates=True)) == [*pairs[:4], *pairs[5:7]]
    assert caplog.messages == ["Dropped 3 of 9 pairs, since the same pair came before."]


@both_kinds
def test_a_pair_counts_for_the_first_rule_that_drops_it(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [("a", "aaa"), ("aaaaaaa", "aaaaaaa"), ("a", "a"), ("a", "a"), ("a", "b"), ("b", "b"), ("b", "c")]
    rules: dict[str, Any] = {"max_characters": 5, "max_length_ratio": 2, "drop_identical": True}
    assert pairs_of(filter_pairs(make([*pairs, ("a", "z" * 9)], kind), **rules)) == [("a", "b"), ("b", "c")]
    assert caplog.messages == [
        "Dropped 2 of 8 pairs, since a side has more than 5 characters.",
        "Dropped 1 of 8 pairs, since one side has more than 2 times as many characters as the other.",
        "Dropped 3 of 8 pairs, since both sides are the same.",
    ]


def test_all_rules_together_keep_what_a_plain_loop_keeps() -> None:
    pairs = random_pairs(5_000)
    pairs += pairs[:50]
    dataset = make_dataset(pairs)
    # Rows that are picked by a list of indices, and more than one batch.
    dataset = datasets.concatenate_datasets([dataset] * 25).select(range(0, len(pairs) * 25, 2))
    rules: dict[str, Any] = {"min_characters": 3, "max_characters": 8, "max_length_ratio": 1.4, "drop_identical": True}
    seen, expected = set(), []
    for source, target in pairs_of(dataset):
        shorter, longer = sorted([len(source), len(target)])
        if shorter >= 3 and longer <= 8 and longer / shorter <= 1.4 and source.strip() != target.strip():
            if (source, target) not in seen:
                expected.append((source, target))
            seen.add((source, target))
    assert len(dataset) > 10 * len(expected) > 0
    assert pairs_of(filter_pairs(dataset, **rules, drop_duplicates=True)) == expected


def test_rules_that_drop_nothing_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    dataset = make_dataset([("a", "b"), ("c", "d")])
    rules: dict[str, Any] = {"max_characters": 5, "max_length_ratio": 2, "drop_identical": True}
    assert pairs_of(filter_pairs(dataset, **rules, drop_duplicates=True)) == [("a", "b"), ("c", "d")]
    assert caplog.messages == []


@both_kinds
def test_no_pair_left_is_an_error(kind: str) -> None:
    with pytest.raises(ValueError, match=r"The filters must leave at least one pair, but leave none\. Make them less"):
        pairs_of(filter_pairs(make([("a", "b")], kind), min_characters=2))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_characters": -1}, "`min_characters` must be at least 0, but is -1 instead"),
        ({"max_characters": 0}, r"`max_characters` must be at least 1 and `min_characters` \(0\), but is 0 instead"),
        ({"min_characters": 5, "max_characters": 4}, r"at least 1 and `min_characters` \(5\), but is 4 instead"),
        ({"max_length_ratio": 0.9}, r"`max_length_ratio` .* must be at least 1, but is 0\.9 instead"),
        ({"max_length_ratio": float("nan")}, r"`max_length_ratio` .* must be at least 1, but is nan instead"),
    ],
)
def test_rules_that_make_no_sense_are_errors(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filter_pairs(make_dataset([("a", "b")]), **rules)


def test_duplicates_cannot_be_dropped_from_a_stream() -> None:
    with pytest.raises(ValueError, match=r"`drop_duplicates` must be False for a stream, but is True .* in memory"):
        filter_pairs(make([("a", "b")], "stream"), drop_duplicates=True)


def numbers(num_pairs: int) -> Iterator[dict[str, str]]:
    for number in range(num_pairs):
        yield {"source": str(number % 10), "target": "0"}


def number_stream(num_pairs: int) -> datasets.IterableDataset:
    texts = datasets.Features({"source": datasets.Value("string"), "target": datasets.Value("string")})
    return datasets.IterableDataset.from_generator(numbers, features=texts, gen_kwargs={"num_pairs": num_pairs})


def test_a_stream_tells_its_counts_at_powers_of_ten_and_at_its_end_in_its_first_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = filter_pairs(number_stream(20_000), drop_identical=True)
    at_10_000 = -(-10_000 // STREAM_BATCH_SIZE) * STREAM_BATCH_SIZE
    for _ in range(2):
        assert sum(1 for _ in stream) == 18_000
        assert caplog.messages == [
            f"Dropped {-(-at_10_000 // 10)} of {at_10_000} pairs, since both sides are the same.",
            "Dropped 2000 of 20000 pairs, since both sides are the same.",
        ]


def test_a_stream_reads_no_further_than_it_is_asked() -> None:
    read = []

    def rows() -> Iterator[dict[str, str]]:
        for row in numbers(1_000_000):
            read.append(row)
            yield row

    texts = number_stream(1).features
    stream = filter_pairs(datasets.IterableDataset.from_generator(rows, features=texts), min_characters=1)
    assert read == []
    assert next(iter(stream)) == {"source": "0", "target": "0"}
    assert len(read) == STREAM_BATCH_SIZE


def test_a_filtered_stream_can_be_sent_to_another_process() -> None:
    stream = filter_pairs(number_stream(20), drop_identical=True)
    assert pairs_of(pickle.loads(pickle.dumps(stream))) == pairs_of(stream)
