"""`generate()` finds what plain search over the model's probabilities finds, in every mode and with every cache."""

import functools
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.brute_force_search import EarlyStopping, Hypothesis, Tokens, beam_search, exhaustive_search
from reference.tiny_models import pad, random_sentences, tiny_model
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.streamers import BaseStreamer

import hf_seq2seq  # noqa: F401  (registers the model with the Auto classes)
from hf_seq2seq import PAPER_SEARCH, Seq2SeqTransformerForConditionalGeneration


PAD, START, END = 0, 1, 2
SOURCES = random_sentences((7, 2, 5), seed=1)
GREEDY: dict[str, Any] = {"num_beams": 1, "max_new_tokens": 12}
BEAM: dict[str, Any] = PAPER_SEARCH | {"max_new_tokens": 10}
both_caches = pytest.mark.parametrize("cache_implementation", ["dynamic", "static"])


def ending_model(seed: int = 0, **overrides: Any) -> Seq2SeqTransformerForConditionalGeneration:
    """A random model whose outputs have many lengths.

    Random models repeat one token for ever or end at once. This one is likelier to end, and its next token depends
    more on the last one (less on attention, and not through a tied head), so that sentences move on.
    """
    model = tiny_model(seed, lm_head_bias=True, **({"tie_word_embeddings": False} | overrides))
    with torch.no_grad():
        model.lm_head.bias[END] += 2
        for name, parameter in model.named_parameters():
            if "out_proj" in name:
                parameter.mul_(0.3)
    return model


def endless(model: Seq2SeqTransformerForConditionalGeneration) -> Seq2SeqTransformerForConditionalGeneration:
    """The same model, never ending a sentence."""
    with torch.no_grad():
        model.lm_head.bias[END] = -1e4
    return model


def inputs_of(sources: Sequence[Sequence[int]] = SOURCES) -> dict[str, Tensor]:
    input_ids, attention_mask = pad(sources)
    return {"input_ids": input_ids, "attention_mask": attention_mask}


class NextLogProbs:
    """Next-token log-probabilities after a prefix, from a forward pass without a batch, a mask or a cache."""

    def __init__(
        self,
        model: Seq2SeqTransformerForConditionalGeneration,
        source: Sequence[int],
        suppressed: Sequence[int] = (PAD, START),
    ) -> None:
        self.model, self.suppressed = model, list(suppressed)
        with torch.no_grad():
            self.encoder_outputs = model.get_encoder()(torch.tensor([source]))
        self.known: dict[Tokens, Any] = {}

    @torch.no_grad()
    def __call__(self, prefix: Tokens) -> Any:
        if prefix not in self.known:
            target = torch.tensor([prefix])
            outputs = self.model(encoder_outputs=self.encoder_outputs, decoder_input_ids=target, use_cache=False)
            log_probs = outputs.logits[0, -1].double().log_softmax(-1)
            log_probs[self.suppressed] = -torch.inf
            self.known[prefix] = log_probs.numpy()
        return self.known[prefix]


def greedy(
    model: Seq2SeqTransformerForConditionalGeneration, source: Sequence[int], prefix: Tokens = (START,)
) -> Tokens:
    """The likeliest token at each step, at most 12 of them, without the prefix."""
    next_log_probs, tokens = NextLogProbs(model, source), prefix
    while len(tokens) < len(prefix) + 12 and tokens[-1] != END:
        tokens = (*tokens, int(np.argmax(next_log_probs(tokens))))
    return tokens[len(prefix) :]


def outputs_of(generated: Tensor, prefix_length: int = 1) -> list[Tokens]:
    """Rows as tuples, without the prefix, up to the first end token: what follows it is padding."""
    rows = [tuple(row[prefix_length:]) for row in generated.tolist()]
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


def assert_only_padding_follows_the_end(generated: Tensor) -> None:
    for row in generated.tolist():
        if END in row:
            assert set(row[row.index(END) + 1 :]) <= {PAD}


# Greedy search


@both_caches
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_takes_the_likeliest_token_at_each_step(use_cache: bool, cache_implementation: str) -> None:
    model = ending_model()
    mode = {"use_cache": use_cache} | ({"cache_implementation": cache_implementation} if use_cache else {})
    generated = model.generate(**inputs_of(), **GREEDY, **mode)
    assert outputs_of(generated) == [greedy(model, source) for source in SOURCES]
    assert_only_padding_follows_the_end(generated)


@pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_a_sentence_is_translated_alike_alone_and_in_a_batch(norm_position: str, mode: dict[str, Any]) -> None:
    """https://github.com/huggingface/transformers/issues/22707 and https://github.com/pytorch/text/pull/2096."""
    model = ending_model(norm_position=norm_position)
    sources = random_sentences((2, 7, 15))
    together = outputs_of(model.generate(**inputs_of(sources), **mode))
    input_ids, attention_mask = pad(sources, side="left", extra=4)
    padded_more = outputs_of(model.generate(input_ids=input_ids, attention_mask=attention_mask, **mode))
    alone = [outputs_of(model.generate(**inputs_of([source]), **mode))[0] for source in sources]
    assert together == alone
    assert padded_more == alone


@both_caches
@pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("depths", [(3, 1), (1, 3)], ids=str)
def test_unequal_depths_decode_with_a_cache_as_without(
    depths: tuple[int, int], mode: dict[str, Any], cache_implementation: str
) -> None:
    """https://github.com/huggingface/transformers/pull/40277: the cache has as many layers as the decoder."""
    model = ending_model(encoder_layers=depths[0], decoder_layers=depths[1])
    with_cache = model.generate(**inputs_of(), **mode, cache_implementation=cache_implementation)
    assert torch.equal(with_cache, model.generate(**inputs_of(), **mode, use_cache=False))


# Beam search


@pytest.mark.parametrize("seed", range(5))
def test_beam_search_equals_a_hand_written_one_with_and_without_a_cache(seed: int) -> None:
    """https://github.com/huggingface/transformers/issues/46612: cache rows follow the beams that survive."""
    model = ending_model(seed)
    next_log_probs = [NextLogProbs(model, source) for source in SOURCES]
    early_stopping: EarlyStopping
    for early_stopping in (True, False, "never"):
        settings = {**BEAM, "length_penalty": 1.0, "early_stopping": early_stopping}
        expected = [beam_search(scorer, prefix=(START,), eos_token_id=END, **settings)[0] for scorer in next_log_probs]
        for cache in ({"use_cache": False}, {"use_cache": True}, {"cache_implementation": "static"}):
            outputs = model.generate(
                **inputs_of(), **settings, **cache, return_dict_in_generate=True, output_scores=True
            )
            assert outputs_of(outputs.sequences) == [hypothesis.tokens for hypothesis in expected]
            assert_only_padding_follows_the_end(outputs.sequences)
            np.testing.assert_allclose(outputs.sequences_scores, [h.score for h in expected], atol=1e-4)


@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.6, 1.0, 2.0])
def test_beam_search_with_enough_beams_finds_the_best_of_all_outputs(length_penalty: float) -> None:
    """Four content tokens and the end, at most four of them: 64 live hypotheses, 341 outputs."""
    found_lengths = set()
    for seed in range(3):
        model = ending_model(seed, vocab_size=7)
        source = random_sentences((5,), vocab_size=7, seed=seed)[0]
        settings: dict[str, Any] = {"max_new_tokens": 4, "length_penalty": length_penalty}
        best = exhaustive_search(NextLogProbs(model, source), prefix=(START,), eos_token_id=END, **settings)[0]
        outputs = model.generate(
            **inputs_of([source]),
            **settings,
            num_beams=341,
            early_stopping="never",
            return_dict_in_generate=True,
            output_scores=True,
        )
        assert outputs_of(outputs.sequences) == [best.tokens]
        assert outputs.sequences_scores.item() == pytest.approx(best.score, abs=1e-4)
        found_lengths.add(len(best.tokens))
    assert length_penalty not in (0.6, 1.0) or len(found_lengths) > 1  # else the penalty would decide nothing


def test_n_best_hypotheses_come_in_order_with_their_scores() -> None:
    model = ending_model()
    settings = {**BEAM, "early_stopping": False, "length_penalty": 0.6}
    outputs = model.generate(
        **inputs_of(), **settings, num_return_sequences=3, return_dict_in_generate=True, output_scores=True
    )
    expected: list[Hypothesis] = []
    for source in SOURCES:
        expected += beam_search(NextLogProbs(model, source), prefix=(START,), eos_token_id=END, **settings)[:3]
    assert outputs_of(outputs.sequences) == [hypothesis.tokens for hypothesis in expected]
    np.testing.assert_allclose(outputs.sequences_scores, [h.score for h in expected], atol=1e-4)


def sum_of_log_probs(
    model: Seq2SeqTransformerForConditionalGeneration, source: Sequence[int], tokens: Tokens
) -> float:
    next_log_probs = NextLogProbs(model, source)
    return float(sum(next_log_probs((START, *tokens[:step]))[token] for step, token in enumerate(tokens)))


@pytest.mark.parametrize("do_sample", [False, True], ids=["beam", "beam-sample"])
def test_transition_scores_of_beams_are_the_log_probabilities_of_their_tokens(do_sample: bool) -> None:
    model: Any = ending_model()
    torch.manual_seed(0)
    outputs = model.generate(
        **inputs_of(), **BEAM, do_sample=do_sample, top_k=0, return_dict_in_generate=True, output_scores=True
    )
    scores = model.compute_transition_scores(outputs.sequences, outputs.scores, outputs.beam_indices)
    for row, tokens in enumerate(outputs_of(outputs.sequences)):
        total = sum_of_log_probs(model, SOURCES[row], tokens)
        assert scores[row, : len(tokens)].sum().item() == pytest.approx(total, abs=1e-4)
        assert outputs.sequences_scores[row].item() == pytest.approx(total / len(tokens) ** 0.6, abs=1e-4)


# Sampling


def test_samples_follow_the_models_distribution() -> None:
    model = ending_model(vocab_size=9)
    source = random_sentences((5,), vocab_size=9)[0]
    torch.manual_seed(0)
    draws = 4000
    samples = model.generate(
        **inputs_of([source]), num_beams=1, do_sample=True, top_k=0, num_return_sequences=draws, max_new_tokens=1
    )[:, 1]
    expected = np.exp(NextLogProbs(model, source)((START,)))
    expected /= expected.sum()
    frequencies = np.bincount(samples.numpy(), minlength=9) / draws
    assert frequencies[[PAD, START]].sum() == 0
    assert np.abs(frequencies - expected).max() < 4 * np.sqrt(0.25 / draws)


@pytest.mark.parametrize("num_beams", [1, 4], ids=["sampling", "beam-sample"])
def test_sampling_depends_on_the_seed_alone(num_beams: int) -> None:
    model = ending_model()

    def sample(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        generated = model.generate(**inputs_of(), do_sample=True, num_beams=num_beams, max_new_tokens=10)
        return [list(row) for row in outputs_of(generated)]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_sampling_from_the_likeliest_token_alone_is_greedy_search() -> None:
    model = ending_model()
    assert torch.equal(
        model.generate(**inputs_of(), **GREEDY, do_sample=True, top_k=1), model.generate(**inputs_of(), **GREEDY)
    )


# Prefixes, lengths, processors, streams


@both_caches
def test_forced_prefixes_of_unequal_length_go_on_as_each_would_alone(cache_implementation: str) -> None:
    model = ending_model()
    prefixes = [(START, 9), (START, 8, 7, 6), (START,)]
    decoder_input_ids, decoder_attention_mask = pad(prefixes, side="left")
    generated = model.generate(
        **inputs_of(),
        **GREEDY,
        decoder_input_ids=decoder_input_ids,
        decoder_attention_mask=decoder_attention_mask,
        cache_implementation=cache_implementation,
    )
    assert torch.equal(generated[:, :4], decoder_input_ids)
    expected = [greedy(model, source, prefix) for source, prefix in zip(SOURCES, prefixes, strict=True)]
    assert outputs_of(generated, prefix_length=4) == expected


@pytest.mark.parametrize("use_cache", [True, False])
def test_beam_search_goes_on_from_a_forced_prefix_and_does_not_score_it(use_cache: bool) -> None:
    model = ending_model()
    prefix = (START, 9, 8)
    settings = {**BEAM, "early_stopping": True, "length_penalty": 0.6}
    outputs = model.generate(
        **inputs_of(),
        **settings,
        decoder_input_ids=torch.tensor([prefix] * 3),
        use_cache=use_cache,
        return_dict_in_generate=True,
        output_scores=True,
    )
    expected = [
        beam_search(NextLogProbs(model, source), prefix=prefix, eos_token_id=END, **settings)[0] for source in SOURCES
    ]
    assert outputs_of(outputs.sequences, prefix_length=3) == [hypothesis.tokens for hypothesis in expected]
    np.testing.assert_allclose(outputs.sequences_scores, [h.score for h in expected], atol=1e-4)


@pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_lengths_stay_between_minimum_and_maximum(mode: dict[str, Any]) -> None:
    model = ending_model()
    with torch.no_grad():
        model.lm_head.bias[END] += 20
    assert {len(tokens) for tokens in outputs_of(model.generate(**inputs_of(), **mode))} == {1}
    at_least_six = model.generate(**inputs_of(), **(mode | {"min_new_tokens": 6}))
    assert {len(tokens) for tokens in outputs_of(at_least_six)} == {7}  # six without the end, then the end
    at_most_three = endless(model).generate(**inputs_of(), **(mode | {"max_new_tokens": 3}))
    assert at_most_three.shape == (3, 4)


@pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_logits_processor_of_the_users_own_is_obeyed(mode: dict[str, Any]) -> None:
    model = endless(ending_model())
    banned = {token for tokens in outputs_of(model.generate(**inputs_of(), **mode)) for token in tokens} - {END}

    class Ban(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return scores.index_fill(-1, torch.tensor(sorted(banned)), -torch.inf)

    generated = model.generate(**inputs_of(), **mode, logits_processor=LogitsProcessorList([Ban()]))
    tokens = {token for row in outputs_of(generated) for token in row} - {END}
    assert banned
    assert tokens
    assert not tokens & banned


def test_a_streamer_gets_every_token_as_it_comes() -> None:
    class Recorder(BaseStreamer):
        def __init__(self) -> None:
            self.tokens: list[int] = []
            self.ended = False

        def put(self, value: Tensor) -> None:
            self.tokens += value.flatten().tolist()

        def end(self) -> None:
            self.ended = True

    recorder = Recorder()
    generated = ending_model().generate(**inputs_of(SOURCES[:1]), **GREEDY, streamer=recorder)
    assert recorder.tokens == generated[0].tolist()
    assert recorder.ended


def test_assisted_decoding_gives_what_the_model_alone_gives() -> None:
    for seed in range(3):
        model = ending_model(seed)
        for assistant in (model, ending_model(seed + 10, encoder_layers=1, decoder_layers=1)):
            for source in SOURCES[:2]:
                generated = model.generate(**inputs_of([source]), **GREEDY, assistant_model=assistant)
                assert outputs_of(generated) == [greedy(model, source)]


# What else can be returned


@both_caches
def test_scores_hidden_states_and_attentions_are_those_of_one_whole_forward(cache_implementation: str) -> None:
    model = endless(ending_model(attention="eager"))
    settings = GREEDY | {"max_new_tokens": 4, "cache_implementation": cache_implementation}
    outputs = model.generate(
        **inputs_of(),
        **settings,
        return_dict_in_generate=True,
        output_logits=True,
        output_hidden_states=True,
        output_attentions=True,
    )
    with torch.no_grad():
        whole = model(
            **inputs_of(),
            decoder_input_ids=outputs.sequences[:, :-1],
            output_hidden_states=True,
            output_attentions=True,
        )
    close = functools.partial(torch.testing.assert_close, atol=1e-5, rtol=0)
    close(torch.stack(outputs.logits, dim=1), whole.logits)
    for layer in range(3):
        close(outputs.encoder_hidden_states[layer], whole.encoder_hidden_states[layer])
        steps = [step[layer] for step in outputs.decoder_hidden_states]
        close(torch.cat(steps, dim=1), whole.decoder_hidden_states[layer])
    for layer in range(2):
        close(outputs.encoder_attentions[layer], whole.encoder_attentions[layer])
        steps = [step[layer] for step in outputs.cross_attentions]
        close(torch.cat(steps, dim=2), whole.cross_attentions[layer])
        for position, step in enumerate(outputs.decoder_attentions):
            seen = position + 1
            close(step[layer][:, :, 0, :seen], whole.decoder_attentions[layer][:, :, position, :seen])


@pytest.mark.slow
def test_a_compiled_decoding_step_equals_the_plain_one() -> None:
    model = ending_model(encoder_layers=1, decoder_layers=1)
    settings = GREEDY | {"cache_implementation": "static"}
    plain = model.generate(**inputs_of(), **settings)
    model.forward = torch.compile(model.forward, fullgraph=True, dynamic=False)
    assert torch.equal(model.generate(**inputs_of(), **settings), plain)


# Limits and settings


def test_a_sequence_as_long_as_the_position_table_is_fine_and_one_longer_is_an_error() -> None:
    """https://github.com/huggingface/transformers/issues/11958 and https://github.com/facebookresearch/fairseq/issues/119."""
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8)
    full, longer = torch.tensor(random_sentences((8,))), torch.tensor(random_sentences((9,)))
    assert model(input_ids=full, decoder_input_ids=full).logits.isfinite().all()
    with pytest.raises(ValueError, match=r"`max_position_embeddings` \(8\).* 9 "):
        model(input_ids=longer, decoder_input_ids=full)
    with pytest.raises(ValueError, match=r"`max_position_embeddings` \(8\).* 9 "):
        model(input_ids=full, decoder_input_ids=longer)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_generation_stops_at_the_end_of_the_position_table(num_beams: int) -> None:
    """https://github.com/huggingface/transformers/pull/29600."""
    model = endless(ending_model(position_embedding_type="learned", max_position_embeddings=8))
    assert model.generate(**inputs_of(), num_beams=num_beams).shape[1] == 1 + 8  # the start token, then 8 of output


@both_caches
@pytest.mark.parametrize("with_mask", [False, True])
def test_an_output_longer_than_the_position_table_is_an_error(with_mask: bool, cache_implementation: str) -> None:
    """https://github.com/huggingface/transformers/issues/11958: not a bare IndexError."""
    model = endless(ending_model(position_embedding_type="learned", max_position_embeddings=8))
    settings = GREEDY | {"cache_implementation": cache_implementation}
    if with_mask:
        settings["decoder_input_ids"] = torch.full((3, 1), START)
        settings["decoder_attention_mask"] = torch.ones(3, 1, dtype=torch.long)
    with pytest.raises(ValueError, match=r"`max_position_embeddings` \(8\).* 9 "):
        model.generate(**inputs_of(), **settings)


def test_the_start_token_survives_saving_and_the_auto_class(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/7063."""
    ending_model().save_pretrained(tmp_path)
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert reloaded.generation_config.decoder_start_token_id == START
    generated = reloaded.generate(**inputs_of())
    assert (generated[:, 0] == START).all()


def test_without_a_start_token_the_error_says_what_is_missing() -> None:
    """https://github.com/huggingface/transformers/issues/7063."""
    model = ending_model()
    for settings in (model.config, model.generation_config):
        settings.decoder_start_token_id = settings.bos_token_id = None
    with pytest.raises(ValueError, match="`decoder_start_token_id` or `bos_token_id` has to be defined"):
        model.generate(**inputs_of())


def test_default_settings_leave_the_search_open_as_those_of_stock_models_do_and_survive_saving(tmp_path: Path) -> None:
    ending_model().save_pretrained(tmp_path)
    settings = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).generation_config
    assert {getattr(settings, name) for name in PAPER_SEARCH} == {None}
    assert settings.max_length == 256
    assert settings.suppress_tokens == [PAD, START]


def test_a_model_that_never_ends_a_sentence_writes_up_to_the_default_limit() -> None:
    """https://github.com/huggingface/transformers/issues/16664: the library's own default stops at 20 tokens."""
    generated = endless(ending_model()).generate(**inputs_of(SOURCES[:1]))
    assert generated.shape == (1, 256)


def test_greedy_search_can_be_chosen_for_a_model_of_beams_and_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/huggingface/transformers/issues/29665."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = ending_model()
    model.generation_config.update(**PAPER_SEARCH)
    model.generation_config.num_beams = 1
    expected = model.generate(**inputs_of(), **GREEDY)
    model.save_pretrained(tmp_path)
    assert model.generation_config.length_penalty == 0.6
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert reloaded.generation_config.num_beams == 1
    assert reloaded.generate(**inputs_of(), max_new_tokens=12).equal(expected)
    assert not caplog.records


def test_the_papers_search_is_one_word_away() -> None:
    model = ending_model()
    chosen = model.generate(**inputs_of(), **PAPER_SEARCH)
    assert chosen.equal(model.generate(**inputs_of(), num_beams=4, length_penalty=0.6))
    assert not chosen.equal(model.generate(**inputs_of()))


@pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("is_own", [False, True])
def test_a_limit_of_new_tokens_stands_beside_the_default_limit_without_a_warning(
    mode: dict[str, Any], is_own: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/huggingface/transformers/pull/25030."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = endless(ending_model())
    options = dict(mode)
    if is_own:
        model.generation_config.max_new_tokens = options.pop("max_new_tokens")
    assert model.generate(**inputs_of(), **options).shape[1] == 1 + mode["max_new_tokens"]
    assert not caplog.records
    model.generate(**inputs_of(), **mode, max_length=9)  # two wishes
    assert "`max_new_tokens` will take precedence" in caplog.text


@pytest.mark.parametrize("is_own", [False, True])
def test_settings_of_a_user_get_the_models_special_tokens(is_own: bool) -> None:
    """https://github.com/huggingface/transformers/issues/8218."""
    model = ending_model()
    given: dict[str, Any] = {}
    settings = GenerationConfig(**GREEDY)
    if is_own:
        expected = model.generate(**inputs_of(), **GREEDY, suppress_tokens=None)
        model.generation_config = settings
    else:
        expected = model.generate(**inputs_of(), **GREEDY)
        given["generation_config"] = settings
    assert model.generate(**inputs_of(), **given).equal(expected)
    assert settings.decoder_start_token_id is None  # it is the user's


def test_a_start_token_that_ends_and_pads_too_is_not_banned() -> None:
    model = tiny_model(pad_token_id=END, bos_token_id=END, eos_token_id=END, decoder_start_token_id=END)
    for mode in (GREEDY, BEAM):
        assert model.generate(**inputs_of(), **mode)[:, 0].tolist() == [END] * 3
        assert model.generate(**inputs_of(), **mode, suppress_tokens=[])[:, 0].tolist() == [END] * 3


@pytest.mark.parametrize("shape", [(1, 0), (0, 5), (0, 0)])
def test_an_empty_batch_is_one_line(shape: tuple[int, int]) -> None:
    ids = torch.zeros(shape, dtype=torch.long)
    model = ending_model()
    message = (
        "A batch must have at least one row and one token, but that of the Seq2SeqTransformerEncoder has the shape"
    )
    for mode in (GREEDY, BEAM):
        with pytest.raises(ValueError, match=f"^{message} {re.escape(str(shape))}"):
            model.generate(ids, **mode)
    with pytest.raises(ValueError, match="Leave empty batches out"):
        model(ids, labels=ids)


@pytest.mark.parametrize("length", [5, 12])
@both_caches
def test_decoding_goes_on_from_a_returned_cache(length: int, cache_implementation: str) -> None:
    model = endless(ending_model())
    model.generation_config.max_length = 21
    whole = model.generate(**inputs_of())
    options = {"cache_implementation": cache_implementation, "return_dict_in_generate": True}
    stop = [lambda ids, scores: torch.full((len(ids),), ids.shape[1] == length)]
    first = model.generate(**inputs_of(), **options, stopping_criteria=stop)
    assert first.sequences.shape[1] == length
    going_on = model.generate(**inputs_of(), decoder_input_ids=first.sequences, cache=first.cache)
    assert going_on.equal(whole)


def test_going_on_from_a_cache_is_refused_where_it_would_go_wrong() -> None:
    model = endless(ending_model())
    first = model.generate(**inputs_of(), **GREEDY, return_dict_in_generate=True)
    options: dict[str, Any] = {**inputs_of(), "max_new_tokens": 5, "cache": first.cache}
    message = "`decoder_input_ids` must be all tokens so far, more than the 12 that the cache holds, but are"
    with pytest.raises(ValueError, match=f"{message} 2"):
        model.generate(decoder_input_ids=first.sequences[:, -1:], **options)
    with pytest.raises(ValueError, match=f"{message} 1"):
        model.generate(**options)
    with pytest.raises(ValueError, match="`num_beams` must be 1 to go on from a cache, but is 3 instead"):
        model.generate(decoder_input_ids=first.sequences, num_beams=3, **options)


def test_pad_and_start_never_come_even_where_they_are_likeliest() -> None:
    model = ending_model()
    with torch.no_grad():
        model.lm_head.bias[[PAD, START]] += 50
    for mode in (GREEDY, BEAM):
        tokens = {token for row in outputs_of(model.generate(**inputs_of(), **mode)) for token in row}
        assert not tokens & {PAD, START}


def trainer_evaluation(
    tmp_path: Path, **settings: Any
) -> tuple[Seq2SeqTransformerForConditionalGeneration, list[int]]:
    """Evaluates a model that never ends on two batches with the stock trainer, which then saves it."""
    from transformers import EvalPrediction, Seq2SeqTrainer, Seq2SeqTrainingArguments

    lengths: list[int] = []

    def measure(prediction: EvalPrediction) -> dict[str, float]:
        lengths.extend(len(row) - np.isin(row, (PAD, -100)).sum() for row in np.asarray(prediction.predictions))
        return {}

    def collate(sources: list[list[int]]) -> dict[str, Tensor]:
        return {**inputs_of(sources), "labels": torch.tensor([[5, 6, END]] * len(sources))}

    model = endless(ending_model())
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path),
        per_device_eval_batch_size=2,
        predict_with_generate=True,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **settings,
    )
    sources: Any = [*SOURCES, SOURCES[0]]
    trainer = Seq2SeqTrainer(model, arguments, collate, eval_dataset=sources, compute_metrics=measure)
    trainer.evaluate()
    trainer.save_model(str(tmp_path / "saved"))
    return AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved"), lengths


def test_the_default_limit_survives_the_stock_trainers_evaluation(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/24427: an unset limit becomes 20 at the first batch."""
    saved, lengths = trainer_evaluation(tmp_path)
    assert lengths == [256] * 4
    assert saved.generation_config.max_length == 256


def test_the_stock_trainers_evaluation_leaves_the_search_open(tmp_path: Path) -> None:
    """It writes all defaults into the model's settings, so that greedy search would seem to be chosen."""
    saved, _ = trainer_evaluation(tmp_path, generation_max_length=5)
    assert saved.generation_config.num_beams is None
    saved.generation_config.update(**saved.generation_config._get_default_generation_params(), defaults_only=True)
    assert saved.generation_config.num_beams is None


def test_the_stock_trainers_own_limit_is_obeyed_and_not_saved(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/13424."""
    saved, lengths = trainer_evaluation(tmp_path, generation_max_length=30, generation_num_beams=2)
    assert lengths == [30] * 4
    assert (saved.generation_config.max_length, saved.generation_config.num_beams) == (256, None)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [1, 3])
def test_rows_that_share_a_source_give_what_they_give_with_copies_of_it(attention: str, length: int) -> None:
    model = tiny_model(attention=attention)
    encoded = model.model.encoder(**inputs_of()).last_hidden_state
    mask = inputs_of()["attention_mask"]
    targets = torch.tensor(random_sentences([length] * 4 * len(SOURCES), seed=3))
    options: dict[str, Any] = {"decoder_input_ids": targets, "output_attentions": attention == "eager"}
    shared = model(encoder_outputs=(encoded,), attention_mask=mask, **options)
    copied = model(
        encoder_outputs=(encoded.repeat_interleave(4, dim=0),),
        attention_mask=mask.repeat_interleave(4, dim=0),
        **options,
    )
    torch.testing.assert_close(shared.logits, copied.logits, atol=1e-5, rtol=1e-5)
    for one, other in zip(shared.cross_attentions or (), copied.cross_attentions or (), strict=True):
        assert one.shape == (len(targets), 2, length, mask.shape[1])
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_beams_share_the_keys_and_values_of_their_source() -> None:
    output = ending_model().generate(**inputs_of(), **BEAM, return_dict_in_generate=True)
    cache = output.cache
    assert {layer.keys.shape[0] for layer in cache.cross_attention_cache.layers} == {len(SOURCES)}
    assert {layer.keys.shape[0] for layer in cache.self_attention_cache.layers} == {4 * len(SOURCES)}


def test_the_attention_of_beams_to_their_source_has_its_documented_shape() -> None:
    model = tiny_model(attention="eager")
    output = model.generate(**inputs_of(), **BEAM, return_dict_in_generate=True, output_attentions=True)
    width = inputs_of()["input_ids"].shape[1]
    for step in output.cross_attentions:
        assert all(weights.shape == (4 * len(SOURCES), 2, 1, width) for weights in step)


@pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_raw_logits_are_those_before_tokens_are_banned(mode: dict[str, Any]) -> None:
    model = ending_model()
    output = model.generate(
        **inputs_of(), **mode, return_dict_in_generate=True, output_logits=True, output_scores=True
    )
    assert all(logits.isfinite().all() for logits in output.logits)
    assert all(scores[:, [PAD, START]].isneginf().all() for scores in output.scores)
    assert output.sequences.equal(model.generate(**inputs_of(), **mode))


def test_target_rows_that_do_not_belong_to_source_rows_are_refused() -> None:
    model = tiny_model()
    message = r"number of target rows must be that of source rows \(3\), or a multiple of it, but is 2 instead"
    with pytest.raises(ValueError, match=message):
        model(**inputs_of(), decoder_input_ids=torch.ones(2, 3, dtype=torch.long))
