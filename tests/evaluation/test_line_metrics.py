"""Error rates, ROUGE and exact matches are those of brute force and of rouge-score, and long lines cost little."""

import random
from collections.abc import Iterator
from functools import cache
from importlib import metadata

import pytest
from rouge_score.rouge_scorer import RougeScorer

from hf_seq2seq.evaluation import compare, score
from hf_seq2seq.evaluation import metrics as table


@cache
def fewest_edits(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    if not first or not second:
        return len(first) + len(second)
    return min(
        fewest_edits(first[1:], second) + 1,
        fewest_edits(first, second[1:]) + 1,
        fewest_edits(first[1:], second[1:]) + (first[0] != second[0]),
    )


def random_texts(generator: random.Random, separator: str) -> Iterator[str]:
    while True:
        yield separator.join(generator.choices(["AH", "K", "T"], k=generator.randrange(6)))


@pytest.mark.parametrize(("name", "separator"), [("wer", "  "), ("per", " "), ("cer", "")])
def test_error_rates_are_the_fewest_edits_to_the_nearest_reference(name: str, separator: str) -> None:
    generator = random.Random(0)
    texts = random_texts(generator, separator)
    hypotheses = [next(texts) for _ in range(60)]
    references = [[next(texts) for _ in range(generator.randrange(1, 4))] for _ in range(60)]
    edits = length = 0
    for hypothesis, alternatives in zip(hypotheses, references, strict=True):
        cut = [tuple(text if name == "cer" else text.split()) for text in (hypothesis, *alternatives)]
        distances = [fewest_edits(cut[0], one) for one in cut[1:]]
        edits += min(distances)
        length += max(len(one) for one, found in zip(cut[1:], distances, strict=True) if found == min(distances))
    assert score(hypotheses, references, name)[name] == pytest.approx(100 * edits / length)


def test_one_wrong_phoneme_of_four_is_a_wrong_word_and_a_quarter_of_its_phonemes() -> None:
    scores = score(["K AE T S", "T UW"], [["K AA T S", "K AH T S"], ["T UW", "T AH"]], "g2p_wer,per,exact_match")
    assert (scores["g2p_wer"], scores["per"], scores["exact_match"]) == (50, pytest.approx(100 / 6), 50)
    assert scores["per_signature"].startswith("nrefs:2|unit:phoneme|case:mixed|rapidfuzz:")


@pytest.mark.parametrize(("hypothesis", "value"), [("", 0), ("a", 100)])
def test_an_empty_reference_gives_a_number(hypothesis: str, value: float) -> None:
    assert score([hypothesis], [""], "wer,cer,rouge1")["wer"] == value


SUMMARIES = [
    "Networks learned to generalize: 3 training tasks, U.S.-made_data.",
    "We propose a method that improves the learning of representations",
    "",
    "the the the cat",
]
GOLD = [
    ["Training generalizes networks in 3 tasks", "Learning networks; U.S. made data"],
    ["A method for improved representation learning is proposed."],
    ["Something", ""],
    ["the cat the", "a dog"],
]


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
def test_rouge_is_that_of_rouge_score_with_the_best_reference(name: str) -> None:
    scorer = RougeScorer([name], use_stemmer=True)
    expected = [
        scorer.score_multi(references, text)[name].fmeasure for text, references in zip(SUMMARIES, GOLD, strict=True)
    ]
    scores = score(SUMMARIES, GOLD, name)
    assert scores[name] == pytest.approx(100 * sum(expected) / len(expected))
    version = metadata.version("rouge-score")
    assert scores[f"{name}_signature"] == f"nrefs:var|case:lc|stem:porter|average:f1|rouge-score:{version}"


def test_letters_beyond_a_to_z_are_kept_by_rouge() -> None:
    """rouge-score by itself drops them: https://github.com/google-research/google-research/issues/654"""
    assert score(["für Größe"], ["fur Grobe"], "rouge1")["rouge1"] == 0
    assert score(["हिन्दी भाषा"], ["हिन्दू भाषा"], "rouge1")["rouge1"] == pytest.approx(50)
    assert score(["我有一条狗。"], ["我有一只狗"], "rouge1")["rouge1"] == pytest.approx(80)


def test_lines_of_many_thousands_of_words_are_compared_in_seconds() -> None:
    """Tables of all pairs of words would have a thousand million cells."""
    words = [f"w{number}" for number in range(30_000)]
    changed = [*words[:100], *words[101:20_000], "x", *words[20_001:]]  # one less, and another one
    scores = score([" ".join(changed)], [" ".join(words)], "rougeL,wer")
    assert scores["wer"] == pytest.approx(100 * 2 / 30_000)
    assert scores["rougeL"] == pytest.approx(100 * 2 * 29_998 / (29_999 + 30_000))


def test_two_systems_are_compared_by_each_metric_in_its_own_direction() -> None:
    references = [[f"K AE T {number}", "unused"] for number in range(40)]
    better = [f"K AE D {number}" if number % 4 == 0 else f"K AE T {number}" for number in range(40)]
    worse = [f"G AE D {number}" for number in range(40)]
    found = compare(better, worse, references, "per,g2p_wer,rougeL,exact_match")
    assert list(found) == ["rougeL", "per", "g2p_wer", "exact_match"]
    assert (found["per"]["score"], found["per"]["baseline"]) == (100 * 10 / 160, 50)
    assert (found["g2p_wer"]["score"], found["g2p_wer"]["baseline"]) == (25, 100)
    for name, values in found.items():
        assert float(values["p_value"]) < 0.01, name
        assert values["score"] == score(better, references, name)[name]
        assert 0 < float(values["interval"]) < 20


def test_a_metric_whose_package_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"rougeL needs rouge_score. Run `pip install 'hf-seq2seq\[metrics\]'`"):
        score(["a"], ["a"], "bleu,rougeL")
    assert score(["a"], ["a"], "wer")["wer"] == 0
