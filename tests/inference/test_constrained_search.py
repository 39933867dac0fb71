"""Outputs hold the phrases that are required, and are the best of those that do: against exhaustive search."""

import math
from typing import Any

import pytest
from model.test_generation import END, START, NextLogProbs, ending_model, inputs_of, outputs_of
from reference.brute_force_search import exhaustive_search
from reference.tiny_models import random_sentences

from hf_seq2seq.inference.constrained_search import ConstrainedSearch, Phrase, RequiredPhrases


VOCAB_SIZE = 7  # four content tokens: 3, 4, 5, 6
Ids = tuple[int, ...]


def holds(tokens: Ids, phrase: Ids, continuing: Ids = ()) -> bool:
    """Whether the phrase stands somewhere in an output, and what follows does not go on with its last word."""
    places = [at for at in range(len(tokens)) if tokens[at : at + len(phrase)] == phrase]
    return any(tokens[at + len(phrase) :][:1] not in [(token,) for token in continuing] for at in places)


def required(*phrases: Ids, continuing: Ids = ()) -> RequiredPhrases:
    return RequiredPhrases([Phrase(ids, ids) for ids in phrases], continuing)


@pytest.mark.parametrize(
    ("phrases", "continuing"),
    [
        ([(4,)], ()),
        ([(4, 5)], ()),
        ([(4, 4, 5)], ()),
        ([(4, 5), (6,)], ()),
        ([(3, 4), (4, 5)], ()),  # which may share a token
        ([(4,)], (3, 5)),
        ([(4, 5), (5,)], (4, 6)),
        ([], ()),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(2))
def test_with_enough_beams_the_best_output_with_the_phrases_is_found(
    seed: int, phrases: list[Ids], continuing: Ids
) -> None:
    """At most four new tokens: 341 outputs."""
    model = ending_model(seed, vocab_size=VOCAB_SIZE)
    source = random_sentences((5,), vocab_size=VOCAB_SIZE, seed=seed)[0]
    settings: dict[str, Any] = {"max_new_tokens": 4, "length_penalty": 0.6}
    every = exhaustive_search(NextLogProbs(model, source), prefix=(START,), eos_token_id=END, **settings)
    best = next(one for one in every if all(holds(one.tokens, phrase, continuing) for phrase in phrases))
    outputs = model.generate(
        **inputs_of([source]),
        **settings,
        num_beams=120,
        early_stopping="never",
        custom_generate=ConstrainedSearch([required(*phrases, continuing=continuing)]),
        return_dict_in_generate=True,
        output_scores=True,
    )
    assert outputs_of(outputs.sequences) == [best.tokens]
    assert outputs.sequences_scores.item() == pytest.approx(best.score, abs=1e-4)


@pytest.mark.parametrize("num_beams", [1, 2, 4])
@pytest.mark.parametrize("early_stopping", [True, False])
def test_few_beams_are_enough_to_write_all_phrases_of_each_sentence_of_a_batch(
    num_beams: int, early_stopping: bool
) -> None:
    phrases: list[list[Ids]] = [[(9, 8, 7), (11,), (12, 13)], [], [(20, 21)], [(30,), (31,), (32,), (33,), (34,)]]
    sources = random_sentences((7, 2, 5, 4), seed=1)
    for seed in range(3):
        model = ending_model(seed)
        options: dict[str, Any] = {"num_beams": num_beams, "max_new_tokens": 7}
        options |= {"early_stopping": early_stopping, "num_return_sequences": num_beams} if num_beams > 1 else {}
        search = ConstrainedSearch([required(*each) for each in phrases])
        found = outputs_of(model.generate(**inputs_of(sources), **options, custom_generate=search))
        for row, tokens in enumerate(found):
            assert all(holds(tokens, phrase) for phrase in phrases[row // num_beams])
        plain = outputs_of(model.generate(**inputs_of(sources), **options))
        assert found[num_beams : 2 * num_beams] == plain[num_beams : 2 * num_beams]


def test_a_phrase_may_stand_first_in_a_form_of_its_own() -> None:
    one = RequiredPhrases([Phrase((5, 6), (7, 8, 9))])
    assert one.num_missing(()) == 2
    assert one.num_missing((7, 8)) == 1
    assert one.num_missing((7, 8, 9)) == 0
    assert one.num_missing((4, 7, 8, 9)) == 2
    assert one.next_tokens(()) == {5, 7}
    assert one.next_tokens((7,)) == {5, 8}
    assert one.next_tokens((4, 5)) == {5, 6}


def test_a_limit_that_the_phrases_just_fit_in_is_kept() -> None:
    model = ending_model()
    phrases = [(9, 8, 7), (11,), (12, 13)]
    for limit in (6, 7, 12):
        search = ConstrainedSearch([required(*phrases)], limits=[limit])
        found = outputs_of(
            model.generate(**inputs_of([[5, 6]]), num_beams=3, max_new_tokens=limit, custom_generate=search)
        )
        assert len(found[0]) <= limit
        assert all(holds(found[0], phrase) for phrase in phrases)
        assert math.prod(map(len, found)) > 0
