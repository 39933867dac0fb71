"""What is told of translations is what the model says of them: scores, attention, n-best lists, prefixes."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from inference.test_translator import letters_model, random_texts
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator, output_limits, train_tokenizer
from hf_seq2seq.inference import Hypothesis


START = 1


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 3)


@pytest.fixture
def translator(letter_tokenizer: PreTrainedTokenizerFast) -> Translator:
    return Translator(letters_model(decoder_layers=2), letter_tokenizer)


def forward_alone(translator: Translator, text: str, hypothesis: Hypothesis) -> tuple[torch.Tensor, Any]:
    """The output's ids, and what the model predicts where it is given, without a batch and without padding."""
    ids = torch.tensor([translator.tokenizer.convert_tokens_to_ids(list(hypothesis.tokens))])
    decoder_input_ids = torch.cat([torch.tensor([[START]]), ids[:, :-1]], dim=1)
    inputs = translator.tokenizer(text, return_tensors="pt")
    translator.model.set_attn_implementation("eager")
    output = translator.model(
        input_ids=inputs["input_ids"], decoder_input_ids=decoder_input_ids, output_attentions=True
    )
    translator.model.set_attn_implementation("sdpa")
    return ids[0], output


def test_scores_are_those_of_the_output_given_to_the_model(translator: Translator) -> None:
    texts = random_texts(3, 8, 1, 5)
    for text, found in zip(texts, translator.hypotheses(texts, n_best=3, beam_size=4), strict=True):
        for hypothesis in found:
            ids, output = forward_alone(translator, text, hypothesis)
            expected = output.logits[0].log_softmax(-1)[range(len(ids)), ids].tolist()
            assert hypothesis.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert hypothesis.sum_log_prob == pytest.approx(sum(expected), abs=1e-4)
            assert hypothesis.score == pytest.approx(sum(expected) / len(ids) ** 0.6, abs=1e-4)


def test_outputs_are_scored_within_the_token_budget(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = random_texts(20, 1, 1, 2, 1)
    expected = translator.hypotheses(texts, n_best=2, beam_size=2)
    translator.batch_tokens = 24
    scored: list[tuple[int, int]] = []
    forward = translator.model.forward

    def recorded(**inputs: Any) -> Any:
        scored.append(tuple(inputs["decoder_input_ids"].shape))
        return forward(**inputs)

    search = translator._searcher.search

    def searched(*arguments: Any) -> Any:
        translator.model.forward = forward
        outputs = search(*arguments)
        monkeypatch.setattr(translator.model, "forward", recorded)
        return outputs

    monkeypatch.setattr(translator._searcher, "search", searched)
    found = translator.hypotheses(texts, n_best=2, beam_size=2)
    assert sum(rows for rows, _ in scored) == 10
    assert max(rows for rows, _ in scored) > 1
    assert all(rows == 1 or rows * max(width, 8) <= 24 for rows, width in scored)
    for few, many in zip(found, expected, strict=True):
        for one, other in zip(few, many, strict=True):
            assert one.tokens == other.tokens
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def test_attention_is_that_of_the_last_layer_but_one_and_sums_to_one(translator: Translator) -> None:
    """The end is in the attention and not in the alignment, as users expect.

    https://github.com/facebookresearch/fairseq/issues/1881 and https://github.com/marian-nmt/marian-dev/issues/145.
    """
    texts = random_texts(3, 8, 1, 5)
    for text, (hypothesis,) in zip(texts, translator.hypotheses(texts, attention=True), strict=True):
        _, output = forward_alone(translator, text, hypothesis)
        assert hypothesis.attention is not None
        torch.testing.assert_close(hypothesis.attention, output.cross_attentions[0][0].mean(dim=0))
        torch.testing.assert_close(hypothesis.attention.sum(dim=-1), torch.ones(len(hypothesis.tokens)))
        assert hypothesis.source_tokens == (*text.split(), "</s>")
        # Here each token but the end is a word.
        words = hypothesis.attention[: len(hypothesis.text.split()), :-1]
        best = words.argmax(dim=-1).tolist()
        assert hypothesis.alignment == sorted((source, target) for target, source in enumerate(best))
        weights = words.max(dim=-1).values.tolist()
        expected = list(zip(best, range(len(words)), weights, strict=True))
        assert hypothesis.token_alignment == expected
    assert translator.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("prefix", [None, "a b"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 2.0])
def test_hypotheses_come_in_the_order_of_their_scores(
    length_penalty: float, prefix: str | None, translator: Translator
) -> None:
    """https://github.com/OpenNMT/OpenNMT-py/issues/2173."""
    texts = random_texts(3, 8, 5, 2, 9, 4)
    options: Any = {"n_best": 4, "beam_size": 4, "length_penalty": length_penalty, "prefix": prefix}
    for found in translator.hypotheses(texts, **options):
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True, key=float)  # type: ignore[arg-type]
        assert len({hypothesis.tokens for hypothesis in found}) == 4
        written = [hypothesis.token_log_probs[2 if prefix else 0 :] for hypothesis in found]  # type: ignore[index]
        assert scores == pytest.approx([sum(row) / len(row) ** length_penalty for row in written])


def test_a_model_by_words_writes_no_unknown_word(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/OpenNMT/OpenNMT/issues/56 and https://github.com/OpenNMT/OpenNMT-py/issues/60."""
    model = letters_model(decoder_layers=2)
    with torch.no_grad():
        model.lm_head.bias[3] = 5.0
    translator = Translator(model, letter_tokenizer)
    for found in translator.hypotheses(random_texts(3, 8, 5), n_best=4, beam_size=4):
        assert len({hypothesis.text for hypothesis in found}) == 4
        assert not any("<unk>" in hypothesis.tokens for hypothesis in found)
    several: list[Any] = [{"beam_size": 1}, {"do_sample": True, "n_best": 3}]
    for options in several:
        found = [every for row in translator.hypotheses(random_texts(3, 8), **options) for every in row]
        assert not any("<unk>" in hypothesis.tokens for hypothesis in found)


def test_the_first_hypothesis_is_the_translation(translator: Translator) -> None:
    texts = ["", *random_texts(3, 8, 5), " "]
    found = translator.hypotheses(texts, n_best=2, beam_size=4)
    assert [hypotheses[0].text for hypotheses in found] == translator(texts, beam_size=4)
    assert found[0] == found[-1] == [Hypothesis(""), Hypothesis("")]


def test_prefixes_of_unequal_length_go_on_as_each_would_alone(translator: Translator) -> None:
    texts = random_texts(3, 8, 1, 5)
    prefixes = ["a b c", "", "d", "e f"]
    for beam_size in (1, 4):
        together = translator(texts, prefix=prefixes, beam_size=beam_size)
        alone = [
            translator(text, prefix=prefix, beam_size=beam_size) for text, prefix in zip(texts, prefixes, strict=True)
        ]
        assert together == alone
        assert all(text.startswith(prefix) for text, prefix in zip(together, prefixes, strict=True))
        assert together[1] == translator(texts[1], beam_size=beam_size)


def test_one_prefix_is_that_of_every_text_and_counts_towards_the_limit(
    letter_tokenizer: PreTrainedTokenizerFast,
) -> None:
    translator = Translator(letters_model(end_bias=-1e4), letter_tokenizer)
    for text in translator(random_texts(3, 8), prefix="x"):
        assert text.split()[0] == "x"
    found = translator.hypotheses(random_texts(3, 8), prefix="x y")
    assert [len(hypothesis.tokens) for (hypothesis,) in found] == [3 + 1 + 3, 8 + 1 + 3]  # source, </s> and 3 more


def test_prefixes_must_be_as_many_as_texts(translator: Translator) -> None:
    with pytest.raises(
        ValueError, match="`prefix` must be one text, or one for each of the 3 texts, but are 2 instead"
    ):
        translator(random_texts(1, 2, 3), prefix=["a", "b"])


def test_samples_depend_on_the_seed_alone(translator: Translator) -> None:
    texts = random_texts(5, 7)

    def sample(seed: int, **options: Any) -> list[list[str]]:
        torch.manual_seed(seed)
        found = translator.hypotheses(texts, do_sample=True, n_best=3, **options)
        return [[hypothesis.text for hypothesis in hypotheses] for hypotheses in found]

    assert sample(1) == sample(1) != sample(2)
    greedy = translator(texts, beam_size=1)
    assert sample(1, top_k=1) == [[text] * 3 for text in greedy]
    assert sample(1, temperature=1e-4) == [[text] * 3 for text in greedy]
    assert sample(1, top_p=1e-6) == [[text] * 3 for text in greedy]


def test_paragraphs_are_translated_sentence_by_sentence(
    letter_tokenizer: PreTrainedTokenizerFast,
) -> None:
    translator = Translator(letters_model(), letter_tokenizer)
    paragraphs = ["Dr. Smith went home. The dog slept!  Did it?", "", "a b c d"]
    parts = [["Dr. Smith went home.", "The dog slept!", "Did it?"], [""], ["a b c d"]]
    expected = [" ".join(translator(sentences)) for sentences in parts]
    assert translator(paragraphs, split_language="en") == expected
    (joined,), *_ = translator.hypotheses(paragraphs, split_language="en")
    scores = [hypothesis.score or 0 for (hypothesis,) in translator.hypotheses(parts[0])]
    assert joined.score == pytest.approx(sum(scores))
    assert joined.sum_log_prob == pytest.approx(sum(joined.token_log_probs or ()))
    assert list(translator.stream(paragraphs, split_language="en")) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 0}, "`n_best` must be a whole number from 1 to 1,000, but is 0 instead"),
        ({"beam_size": 2.5}, "`beam_size` must be a whole number from 1 to 1,000, but is 2.5 instead"),
        ({"beam_size": 100_000_000}, "`beam_size` must be a whole number from 1 to 1,000, but is 100000000 instead"),
        ({"beam_size": "4"}, "`beam_size` must be a whole number from 1 to 1,000, but is '4' instead"),
        ({"length_penalty": 1000}, "`length_penalty` must be a number from -10 to 10, but is 1000 instead"),
        ({"length_penalty": float("nan")}, "`length_penalty` must be a number from -10 to 10, but is nan instead"),
        ({"do_sample": True, "temperature": 0.0}, "`temperature` must be a number from 1e-06 to 1,000,000.0, but is"),
        ({"do_sample": True, "top_p": 1.1}, "`top_p` must be a number from 0 to 1, but is 1.1 instead"),
        ({"max_source_tokens": 1}, "`max_source_tokens` must be a whole number of at least 2, but is 1 instead"),
        ({"over_long": "shrink"}, "`over_long` must be one of cut, split, skip, but is 'shrink' instead"),
        ({"over_long": "split", "n_best": 2}, "`over_long` must be left out with several hypotheses or `attention`"),
        ({"n_best": 3, "beam_size": 2}, r"`n_best` must be at most `beam_size` \(2\), but is 3 instead"),
        ({"beam_size": 0}, "`beam_size` must be a whole number from 1 to 1,000, but is 0 instead"),
        ({"top_k": 3}, "`top_k` must be given together with `do_sample`"),
        ({"split_language": "en", "n_best": 2}, "`split_language` must be left out with several hypotheses"),
        ({"split_language": "en", "attention": True}, "`split_language` must be left out with several hypotheses"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, Any], message: str, translator: Translator) -> None:
    with pytest.raises(ValueError, match=message):
        translator.hypotheses(["a"], **options)


def test_an_unknown_backend_is_named(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="`backend` must be one of torch, ctranslate2, but is 'jax' instead"):
        Translator.from_pretrained(tmp_path, backend="jax")  # type: ignore[arg-type]


def test_an_output_without_an_end_has_no_end_token(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    endless = Translator(letters_model(end_bias=-1e4), letter_tokenizer).hypotheses(["a b"])[0][0]
    assert len(endless.tokens) == 2 + 1 + 3
    assert "</s>" not in endless.tokens
    ended = Translator(letters_model(end_bias=1e4), letter_tokenizer).hypotheses(["a b"])[0][0]
    assert ended.tokens == ("</s>",)
    assert ended.token_log_probs is not None
    assert math.isclose(ended.token_log_probs[0], 0, abs_tol=1e-6)


def test_more_hypotheses_leave_the_beam_as_it_is_or_widen_it(translator: Translator) -> None:
    texts = random_texts(3, 8, 5)
    four = [hypotheses[:2] for hypotheses in translator.hypotheses(texts, n_best=4)]
    assert translator.hypotheses(texts, n_best=2) == four
    assert translator.hypotheses(texts, n_best=6) == translator.hypotheses(texts, n_best=6, beam_size=6)


def test_a_prefix_longer_than_any_output_is_named(translator: Translator) -> None:
    message = r"shorter than the longest output of its text \(6 tokens\), but that of line 2 has 7 tokens"
    with pytest.raises(ValueError, match=message):
        translator(["a", "b c"], prefix=["a", "a b c d e f g"])


def test_limits_of_the_generation_config_do_not_cut_translations(translator: Translator) -> None:
    texts = random_texts(8, 9)
    expected = translator(texts)
    translator.model.generation_config.update(max_new_tokens=1, return_dict_in_generate=True)
    assert translator(texts) == expected


def test_attention_is_asked_for_by_several_threads_at_once(translator: Translator) -> None:
    texts = random_texts(3, 8, 5)
    (expected,) = {tuple(map(str, translator.hypotheses(texts, attention=True)))}
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: tuple(map(str, translator.hypotheses(texts, attention=True))), range(12)))
    assert set(found) == {expected}
    assert translator.model.config._attn_implementation == "sdpa"


def test_what_the_model_does_not_know_is_told(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    translator(["a", "a 1", "b 2"], prefix=["", "c 3", "c 3"])
    translator(["a b"], prefix="c")
    assert caplog.messages == [
        "Lines 2 and 3: the model does not know all that is written there; it reads `<unk>` in its place.",
        "The model does not know all of the prefix 'c 3'; translations begin with `<unk>` in place of the rest, which "
        "their text does not show.",
    ]


def test_white_space_at_the_end_of_a_prefix_changes_nothing() -> None:
    """https://github.com/google/sentencepiece/issues/898."""
    tokenizer = train_tokenizer(iter(["ich muss", "du musst"]), vocab_size=270)
    translator = Translator(tiny_model(vocab_size=len(tokenizer)), tokenizer)
    assert tokenizer.tokenize("ich ") != tokenizer.tokenize("ich")
    found = translator.hypotheses(["ich muss"] * 3, prefix=["ich", "ich ", "ich \t"])
    assert found == [found[0]] * 3
