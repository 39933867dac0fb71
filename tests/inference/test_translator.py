"""The translator gives each text its own translation, in order, whatever else is in the batch or in the text."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import random_sentences, tiny_model
from transformers import PreTrainedTokenizerFast

import hf_seq2seq
from hf_seq2seq import PAPER_SEARCH, Seq2SeqTransformerForConditionalGeneration, Translator, output_limits


START, END, UNKNOWN = 1, 2, 3
NUM_LETTERS_TOKENS = 30  # of the fixture `letter_tokenizer`

GREEDY: dict[str, Any] = {"num_beams": 1}


@pytest.fixture(autouse=True)
def shorter_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random models rarely end a sentence: the paper's limit would make every test slow."""
    monkeypatch.setattr(output_limits, "EXTRA_TOKENS", 3)


def letters_model(end_bias: float = 2.0, **overrides: Any) -> Seq2SeqTransformerForConditionalGeneration:
    """A random model of letters whose outputs are of many lengths, some without an end."""
    defaults: dict[str, Any] = {"seed": 2, "norm_position": "pre", "encoder_layers": 1, "decoder_layers": 1}
    model = tiny_model(**(defaults | overrides), vocab_size=NUM_LETTERS_TOKENS, lm_head_bias=True)
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            for parameter in layer.parameters():
                parameter *= 2  # the source and the tokens before weigh more than the head's bias
        model.lm_head.bias[END] = end_bias
        model.lm_head.bias[UNKNOWN] = -1e4  # decoding would leave it out
    return model


def random_texts(*lengths: int) -> list[str]:
    sentences = random_sentences(lengths, vocab_size=NUM_LETTERS_TOKENS, seed=3)
    return [" ".join("abcdefghijklmnopqrstuvwxyz"[token - 4] for token in sentence) for sentence in sentences]


def generated_alone(translator: Translator, text: str, **settings: Any) -> str:
    """What `generate` makes of one text, with its limit as the only one and by default with the paper's search."""
    inputs = translator.tokenizer(text, return_tensors="pt")
    limit = inputs["input_ids"].shape[1] + output_limits.EXTRA_TOKENS
    if translator.model.generation_config.num_beams is None and settings != GREEDY:
        settings = PAPER_SEARCH | settings
    tokens = translator.model.generate(**inputs, max_length=1 + limit, **settings)[0, 1:].tolist()
    tokens = tokens[: tokens.index(END)] if END in tokens else tokens
    return str(translator.tokenizer.decode(tokens, skip_special_tokens=True))


@pytest.fixture
def translator(letter_tokenizer: PreTrainedTokenizerFast) -> Translator:
    return Translator(letters_model(), letter_tokenizer)


@pytest.mark.parametrize(
    ("model", "folder"), [("out/", "out/"), (Path("out"), "out"), (None, "FOLDER")], ids=["text", "path", "nothing"]
)
def test_what_is_no_model_names_the_way_to_load_one(
    model: Any, folder: str, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    for more in ((), (None,), (letter_tokenizer,)):
        with pytest.raises(TypeError, match=rf"must be given a model .*`Translator\.from_pretrained\('{folder}'\)`"):
            Translator(model, *more)


def test_a_model_without_its_tokenizer_names_the_way_to_load_both() -> None:
    with pytest.raises(TypeError, match=r"`Translator\.from_pretrained\('FOLDER'\)`"):
        Translator(letters_model())


def spy_on_batches(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The attention mask of every batch that is generated from now on."""
    masks: list[torch.Tensor] = []
    generate = translator.model.generate

    def recorded(**inputs: Any) -> Any:
        masks.append(inputs["attention_mask"])
        return generate(**inputs)

    monkeypatch.setattr(translator.model, "generate", recorded)
    return masks


# One text, several, many


def test_a_text_gives_a_text_and_several_give_a_list_in_their_order(translator: Translator) -> None:
    texts = random_texts(3, 9, 1, 6)
    translations = translator(texts)
    assert isinstance(translations, list)
    assert translations == [translator(text) for text in texts]
    assert len(set(translations)) > 1
    assert translator(iter(texts)) == translations
    assert translator([]) == []


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4}], ids=str)
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_a_text_is_translated_alike_alone_and_in_a_batch(
    norm_position: str, options: Any, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    """https://github.com/huggingface/transformers/issues/22707 and https://github.com/pytorch/text/pull/2096."""
    translator = Translator(letters_model(norm_position=norm_position), letter_tokenizer)
    texts = random_texts(2, 7, 15, 7, 3)
    assert translator(texts, **options) == [translator(text, **options) for text in texts]


def test_batches_hold_the_texts_by_length_within_the_token_budget(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator.batch_tokens = 20
    masks = spy_on_batches(translator, monkeypatch)
    translator(random_texts(2, 30, 4, 2, 9, 3, 8, 2))
    assert [mask.sum(-1).tolist() for mask in masks] == [[31], [10, 9], [5, 4], [3, 3], [3]]


def test_short_texts_count_as_longer_ones_since_their_outputs_may_be(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator.batch_tokens = 24
    masks = spy_on_batches(translator, monkeypatch)
    translator(["a"] * 7)
    assert [len(mask) for mask in masks] == [3, 3, 1]


@pytest.mark.parametrize("batch_tokens", [1, 6, 1024])
def test_blank_texts_stay_blank_and_in_place(batch_tokens: int, translator: Translator) -> None:
    """https://github.com/joeynmt/joeynmt/issues/183, https://github.com/OpenNMT/OpenNMT-py/issues/252,
    https://github.com/awslabs/sockeye/issues/477 and https://github.com/sillsdev/silnlp/issues/136."""
    translator.batch_tokens = batch_tokens
    first, last = translator("a"), translator("b")
    assert first != last
    assert first
    assert last
    assert translator(["a", "", "  ", "b"]) == [first, "", "", last]
    assert list(translator.stream(["a", "", "  ", "b"])) == [first, "", "", last]
    assert translator(["", "\t", "\u00a0"]) == ["", "", ""]
    assert translator("") == ""


@pytest.mark.parametrize("text", ["\u200b", "\ufeff", "\u200e", "\u00ad", "\u2060", " \u200b\u00ad \ufeff"])
def test_a_text_of_invisible_characters_is_blank(text: str, translator: Translator) -> None:
    """https://github.com/ufal/lindat-translation/issues/61"""
    assert translator([text, "a", f"{text}a"]) == ["", translator("a"), translator(f"{text}a")]
    assert translator("a")


# The length limit


@pytest.mark.parametrize("beam_size", [1, 4])
def test_each_output_ends_50_tokens_after_its_own_source_s_length(
    beam_size: int, letter_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    translator = Translator(letters_model(end_bias=-1e4), letter_tokenizer)
    translations = translator(random_texts(2, 7, 15), beam_size=beam_size)
    assert [len(text.split()) for text in translations] == [3 + 50, 8 + 50, 16 + 50]  # sources count their end token


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_beam_search_in_a_batch_of_unequal_limits_equals_that_of_each_text_alone(
    early_stopping: bool | str, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    """Some outputs end by themselves, some at their limit while the others go on."""
    texts = random_texts(1, 3, 5, 8, 12)
    limits = [len(text.split()) + 1 + output_limits.EXTRA_TOKENS for text in texts]
    num_at_limit = 0
    for seed in range(3):
        translator = Translator(letters_model(end_bias=1.0 + seed / 2, seed=seed), letter_tokenizer)
        translator.model.generation_config.update(**PAPER_SEARCH | {"early_stopping": early_stopping})
        translations = translator(texts)
        assert translations == [generated_alone(translator, text) for text in texts]
        num_at_limit += sum(len(text.split()) == limit for text, limit in zip(translations, limits, strict=True))
    assert 5 <= num_at_limit <= 10


@pytest.mark.parametrize(
    ("generated", "translation"), [([5, 6, END, END, 7], "b c"), ([5, 6, 7, 8, 9, 10], "b c d e f"), ([END], "")]
)
def test_what_follows_the_end_or_the_limit_is_filling(
    generated: list[int], translation: str, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam search fills finished rows up with end tokens, or with the padding of other models."""
    monkeypatch.setattr(translator.model, "generate", lambda **_: torch.tensor([[START, *generated]]))
    assert translator("a") == translation  # its limit: two tokens and three more


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_tokens_that_the_model_s_settings_suppress_are_never_written(
    beam_size: int, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    translator = Translator(letters_model(), letter_tokenizer)
    letter = translator("a b c", beam_size=beam_size).split()[0]
    suppressed = [0, 1, letter_tokenizer.convert_tokens_to_ids(letter)]
    translator.model.generation_config.suppress_tokens = suppressed
    translation = translator("a b c", beam_size=beam_size)
    assert translation == generated_alone(translator, "a b c", **(GREEDY if beam_size == 1 else {}))
    assert letter not in translation
    translator.model.generation_config.suppress_tokens = None
    assert letter in translator("a b c", beam_size=beam_size)


# Streams


def test_a_stream_gives_what_a_call_gives(translator: Translator) -> None:
    texts = random_texts(*range(1, 13))
    assert list(translator.stream(texts)) == translator(texts)
    assert list(translator.stream(texts, window=1, beam_size=1)) == translator(texts, beam_size=1)
    assert [len(window) for window in translator.windows(texts)] == [1, 8, 3]
    assert [len(window) for window in translator.windows(texts, window=5)] == [1, 5, 5, 1]
    assert list(translator.stream([])) == []


def test_a_stream_reads_no_more_than_a_window_ahead(translator: Translator) -> None:
    num_read = 0

    def endless_texts() -> Iterator[str]:
        nonlocal num_read
        while True:
            num_read += 1
            yield "a b c"

    stream = translator.stream(endless_texts(), window=10, beam_size=1)
    assert num_read == 0
    next(stream)
    assert num_read == 1
    assert len(list(islice(stream, 19))) == 19
    assert num_read == 1 + 8 + 10 + 10


def test_where_the_texts_raise_those_before_are_translated_first(translator: Translator) -> None:
    def texts() -> Iterator[str]:
        yield from ("a", "b", "c")
        raise OSError("the disk is gone")

    stream = translator.stream(texts())
    assert [next(stream) for _ in range(3)] == translator(["a", "b", "c"])
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)


# What a text may be


def test_a_text_longer_than_the_model_was_trained_on_is_warned_of_once_with_its_number(
    translator: Translator,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(translator.tokenizer, "model_max_length", 5)
    texts = random_texts(4, 5, 3, 2, 8, 9)
    list(translator.stream(texts))
    translator(random_texts(20))
    translator(random_texts(*[6] * 12))
    assert caplog.messages == [
        f"{lines}: longer than the 5 tokens that the model was trained on; the translation may be poor."
        for lines in ("Lines 2, 5 and 6", "Line 1", "Lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more")
    ]
    assert capfd.readouterr().err == ""  # the tokenizer does not warn in words of its own


def test_where_learned_positions_end_a_text_is_cut_with_a_warning_and_its_output_ends(
    letter_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/huggingface/transformers/issues/11958 and https://github.com/facebookresearch/fairseq/issues/119."""
    model = letters_model(-1e4, position_embedding_type="learned", max_position_embeddings=8)
    translator = Translator(model, letter_tokenizer)
    longer, fitting = "a b c d e f g h i", "a b c d e f g"
    for beam_size in (1, 4):
        whole, cut = translator([fitting, longer], beam_size=beam_size)
        assert cut == whole
        assert len(whole.split()) == 8
    assert (
        caplog.messages
        == ["Line 2: only the first 8 tokens are translated, since the model has no positions for more."] * 2
    )


def test_a_model_that_does_not_say_what_outputs_start_from_is_named(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = letters_model()
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="`decoder_start_token_id` must be the id of the token that outputs"):
        Translator(model, letter_tokenizer)("a b")


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(
    ("over_long", "done"),
    [
        ("cut", "only the first 6 tokens are translated"),
        ("split", "translated in parts of at most 6 tokens"),
        ("skip", "not translated, being longer than 6 tokens"),
    ],
)
def test_a_text_that_is_too_long_is_cut_or_split_or_skipped_and_named(
    over_long: Any,
    done: str,
    learned: bool,
    letter_tokenizer: PreTrainedTokenizerFast,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes: Any = {"position_embedding_type": "learned", "max_position_embeddings": 6} if learned else {}
    translator = Translator(letters_model(-1e4, **sizes), letter_tokenizer)
    long, texts = "a b c d e f g h i", ["a b", "a b c d e f g h i", "c", "", "d e f g h"]
    options: Any = {"over_long": over_long, "max_source_tokens": 1024 if learned else 6}
    parts = {"cut": [long[:9]], "split": ["a b c d", "e f g h i"], "skip": [""]}[over_long]
    expected = " ".join(translator(parts))
    assert translator(texts, **options) == [expected if text is long else translator(text) for text in texts]
    reason = "since the model has no positions for more" if learned else "as `max_source_tokens` says"
    assert caplog.messages == [f"Line 2: {done}, {reason}."]
    assert list(translator.stream(texts, **options))[1] == expected


def test_a_text_of_more_than_1024_tokens_is_cut(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    assert translator("a " * 1023 + "b", beam_size=1) == translator("a " * 1023, beam_size=1)
    assert caplog.messages == ["Line 1: only the first 1024 tokens are translated, as `max_source_tokens` says."]


def test_a_token_outside_the_vocabulary_is_named_with_its_line(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    translator = Translator(tiny_model(vocab_size=28), letter_tokenizer)
    translator("v w x")
    with pytest.raises(ValueError, match=r"vocabulary \(28\), but the token 'z' in line 10 has the id 29 instead"):
        list(translator.stream(["a"] * 9 + ["y z"]))


@pytest.mark.parametrize("line_break", ["\n", "\r"])
def test_a_line_break_that_the_model_writes_is_a_space(line_break: str) -> None:
    tokenizer = hf_seq2seq.train_tokenizer(iter(["some text"]), vocab_size=300)
    model = tiny_model(vocab_size=len(tokenizer), lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[tokenizer(line_break)["input_ids"][0]] = 1e4
    translation = Translator(model, tokenizer)("some")
    assert translation.isspace()
    assert set(translation) == {" "}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", None], "Line 2 must be a string, but is None instead"),
        (["a", "b\ud800"], "Line 2 must be valid Unicode, but holds half of a surrogate pair"),
    ],
)
def test_what_is_no_text_is_refused_with_its_number(texts: Any, message: str, translator: Translator) -> None:
    with pytest.raises(ValueError, match=message):
        translator(texts)


def test_a_prefix_that_is_no_text_is_refused(translator: Translator) -> None:
    with pytest.raises(ValueError, match="`prefix` must be valid Unicode, but holds half of a surrogate pair"):
        translator("a", prefix="b\udcff")


def test_a_library_that_is_missing_is_told_before_a_text_is_read(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    texts = iter(["a"])
    with pytest.raises(ImportError, match=r"pip install 'hf-seq2seq\[split\]'"):
        translator.stream(texts, split_language="en")
    assert next(texts) == "a"


# Options


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"beam_size": 1}, GREEDY),
        ({"beam_size": 2}, {"num_beams": 2}),
        ({"length_penalty": -2.0}, {"length_penalty": -2.0}),
        ({"beam_size": 3, "length_penalty": 3.0}, {"num_beams": 3, "length_penalty": 3.0}),
    ],
    ids=str,
)
def test_options_are_those_of_the_search_and_the_models_own_by_default(
    options: Any, settings: dict[str, Any], letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    translator = Translator(letters_model(), letter_tokenizer)
    translator.model.generation_config.update(num_beams=5, length_penalty=0.6)
    texts = random_texts(1, 3, 5, 8, 12)
    assert translator(texts, **options) == [generated_alone(translator, text, **settings) for text in texts]


def test_options_are_checked_before_any_text_is_read(translator: Translator) -> None:
    with pytest.raises(ValueError, match="`beam_size` must be a whole number from 1 to 1,000, but is 0 instead"):
        translator("a", beam_size=0)
    with pytest.raises(ValueError, match="`beam_size` must be a whole number from 1 to 1,000, but is -1 instead"):
        translator.stream(["a"], beam_size=-1)
    with pytest.raises(ValueError, match="`window` must be a whole number of at least 1, but is 0 instead"):
        translator.stream(["a"], window=0)
    with pytest.raises(ValueError, match="`length_penalty` must be a number from -10 to 10, but is nan instead"):
        translator("a", length_penalty=float("nan"))
    with pytest.raises(TypeError, match="`foo` must be an option of the search"):
        translator(["ten"], foo=1)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="`batch_tokens` must be a whole number of at least 1, but is 0 instead"):
        Translator(translator.model, translator.tokenizer, batch_tokens=0)


def test_a_model_in_training_mode_translates_without_dropout(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = letters_model(dropout=0.5).train()
    translator = Translator(model, letter_tokenizer)
    assert translator("a b c") == translator("a b c")
    assert not model.training


# Loading


@pytest.fixture
def folder(translator: Translator, tmp_path: Path) -> Path:
    translator.model.save_pretrained(tmp_path)
    translator.tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_saved_model_translates_as_the_one_in_memory(folder: Path, translator: Translator) -> None:
    texts = random_texts(2, 7)
    for path in (folder, str(folder)):
        assert hf_seq2seq.Translator.from_pretrained(path, device="cpu")(texts) == translator(texts)
    loaded = Translator.from_pretrained(folder, device=torch.device("cpu"), dtype="bfloat16", batch_tokens=7)
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.batch_tokens == 7
    assert loaded(texts[0])


def test_a_device_that_computes_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="`device` must be one that computes, but is 'meta' instead"):
        Translator.from_pretrained(folder, device="meta")


@pytest.mark.parametrize("dtype", ["load", "float7", "int8", "", torch.int8])
def test_a_type_that_weights_cannot_have_is_named(dtype: Any, folder: Path) -> None:
    with pytest.raises(ValueError, match="`dtype` must be a type of floating point numbers that torch has, but is"):
        Translator.from_pretrained(folder, dtype=dtype)


def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    for device in ("gpu", "cuda:99"):
        message = f"`device` must be one that torch finds on this machine, but is '{device}' instead"
        with pytest.raises(ValueError, match=message):
            Translator.from_pretrained(folder, device=device)
