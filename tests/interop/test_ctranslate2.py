"""Exported models give in CTranslate2 the ids that they give here, and what cannot be exported is refused."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from reference.tiny_models import random_sentences, tiny_config, tiny_model
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, interop, train_tokenizer
from hf_seq2seq.inference import Translator
from hf_seq2seq.interop import to_ctranslate2
from hf_seq2seq.interop.ctranslate2 import ACTIVATIONS
from scripts.benchmarks.compare_ctranslate2 import TIE, search_with_ctranslate2, search_with_generate, ties


PAD, START, END = 0, 1, 2
MAX_NEW_TOKENS = 20
Ids = list[list[int]]

OPTIONS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre-norm": {"norm_position": "pre"},
    "biases": {"attention_bias": True},
    "unequal stacks": {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 24},
    "narrow keys": {"key_dim": 5, "attention_bias": True},
    "wide keys": {"key_dim": 16, "attention_bias": True},
    "keys wider and narrower": {"key_dim": 8, "encoder_attention_heads": 4},
    "learned positions": {"position_embedding_type": "learned", "scale_embedding": False},
    "free projection": {"tie_word_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 41},
    "start is padding": {"decoder_start_token_id": PAD, "bos_token_id": None},
    "start is the end": {"decoder_start_token_id": END},
    "padding is the end": {"pad_token_id": END},
}


def lively_model(seed: int = 0, **overrides: Any) -> Seq2SeqTransformerForConditionalGeneration:
    """A random model whose outputs depend on the source, are seldom ties, and end at many lengths."""
    model = tiny_model(seed, **({"lm_head_bias": True, "d_model": 24} | overrides))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "q_proj" in name or "encoder_attn.v_proj" in name or "encoder_attn.out_proj" in name:
                weight.mul_(3)
        model.lm_head.weight.mul_(2)
        model.lm_head.bias.zero_()
        model.lm_head.bias[END] = 4
        model.lm_head.bias[PAD] = 4  # which is to be seen where it is not suppressed
    return model


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """46 tokens, four fewer than the models' vocabulary."""
    return train_tokenizer(iter([" ".join(f"w{i}" for i in range(42))]), vocab_size=46, kind="word")


def sources(number: int = 200, vocab_size: int = 46, seed: int = 0) -> Ids:
    lengths = [1 + row % 12 for row in range(number)]
    return [[*sentence, END] for sentence in random_sentences(lengths, vocab_size=vocab_size, seed=seed)]


def assert_same_ids(model: Any, folder: Path, beam_size: int, rows: Ids | None = None, **settings: Any) -> Ids:
    """Compares all outputs; the few that differ must be ties. Returns ours."""
    rows = rows or sources()
    ours = search_with_generate(model, rows, beam_size, MAX_NEW_TOKENS, **settings)
    theirs = search_with_ctranslate2(folder, rows, beam_size, MAX_NEW_TOKENS)
    differing = list(ties(model, rows, ours, theirs, beam_size))
    print(f"beam {beam_size}: {len(differing)} ties of {len(rows)}")
    assert len(differing) <= 1 + len(rows) // 100
    assert all(difference < TIE for _, difference in differing)
    if model.config.pad_token_id != END:
        assert not any(model.config.pad_token_id in output for output in theirs)
    return ours


# Equal ids


@pytest.mark.parametrize(
    ("name", "beam_size"), [*((name, 4) for name in OPTIONS), ("the paper's", 1), ("start is the end", 1)]
)
def test_ids_are_those_of_generate(
    name: str, beam_size: int, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """On 120 sources: 40 for each of three models, since one random model writes few different outputs."""
    outputs: Ids = []
    for seed in range(3):
        model = lively_model(seed, **OPTIONS[name])
        to_ctranslate2(model, tokenizer, tmp_path / str(seed))
        rows = sources(40, seed=seed)
        outputs += assert_same_ids(model, tmp_path / str(seed), beam_size, rows, renormalize_logits=True)
    assert len(set(map(tuple, outputs))) > 15, "too few different outputs to compare"
    assert any(output[-1] == END for output in outputs)
    assert any(output[-1] != END for output in outputs)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_the_same_functions(name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = lively_model(activation_function=name)
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    source, target = sources(7)[-1], random_sentences([8], seed=5)[0]
    vocabulary = json.loads((tmp_path / "ct2" / "shared_vocabulary.json").read_text())
    scored = ctranslate2.Translator(str(tmp_path / "ct2")).score_batch(
        [[vocabulary[index] for index in source]], [[vocabulary[index] for index in target]]
    )
    with torch.no_grad():
        logits = model(torch.tensor([source]), decoder_input_ids=torch.tensor([[START, *target]])).logits[0]
    logits[:, [PAD, START]] = -torch.inf
    expected = logits.log_softmax(dim=-1).gather(-1, torch.tensor([*target, END])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(scored[0].log_probs), expected, atol=2e-5, rtol=0)


@pytest.fixture(scope="module")
def reverser(letter_tokenizer: PreTrainedTokenizerFast) -> Any:
    """Trained for a few seconds to write letters in reverse order, which it does not do without faults."""
    torch.manual_seed(0)
    generator = random.Random(0)
    model = Seq2SeqTransformerForConditionalGeneration(
        tiny_config(vocab_size=len(letter_tokenizer), d_model=32, encoder_layers=1, decoder_layers=1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        length = generator.randint(1, 6)
        letters = torch.tensor([[generator.randrange(4, 12) for _ in range(length)] for _ in range(32)])
        ends = torch.full((32, 1), END)
        loss = model(torch.cat((letters, ends), 1), labels=torch.cat((letters.flip(1), ends), 1)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_trained_model_gives_the_ids_of_generate(
    reverser: Any, beam_size: int, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    to_ctranslate2(reverser, letter_tokenizer, tmp_path / "ct2")
    rows = [row[-8:] for row in sources(vocab_size=12)]
    outputs = assert_same_ids(reverser, tmp_path / "ct2", beam_size, rows)
    right = sum(output == [*row[-2::-1], END] for output, row in zip(outputs, rows, strict=True))
    assert right > len(rows) // 4, "the model must have learned something"


@pytest.mark.parametrize("quantization", ["int8", "int8_float16", "float16", "bfloat16", "int16"])
def test_quantized_weights_are_smaller_and_translate_nearly_the_same(
    quantization: str, reverser: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    for name, kind in (("full", None), ("quantized", quantization)):
        to_ctranslate2(reverser, letter_tokenizer, tmp_path / name, quantization=kind)
    full, small = ((tmp_path / name / "model.bin").stat().st_size for name in ("full", "quantized"))
    assert small < 0.9 * full  # much of so small a model is the table of positions, which integer kinds leave in full
    rows = [row[-4:] for row in sources(60, vocab_size=12)]
    theirs = search_with_ctranslate2(tmp_path / "quantized", rows, 4, MAX_NEW_TOKENS)
    ours = search_with_generate(reverser, rows, 4, MAX_NEW_TOKENS)
    assert sum(our == their for our, their in zip(ours, theirs, strict=True)) > 0.8 * len(rows)
    assert not any(PAD in output for output in theirs)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_a_token_that_a_user_adds_is_whole_here_too(kind: Any, tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/29564"""
    tokenizer = train_tokenizer(iter(["a b c d </s> <2 de>"]), vocab_size=280, kind=kind)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<2de>"]})
    to_ctranslate2(lively_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "ct2")
    lively_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    ours = Translator.from_pretrained(tmp_path / "model")
    theirs = Translator.from_pretrained(tmp_path / "ct2", backend="ctranslate2")
    texts = ["<2de> a b", "a </s> b", "<2de>c</s>"]
    ids = theirs.tokenizer(texts)["input_ids"]
    assert ids == ours.tokenizer(texts)["input_ids"]
    assert [row.count(len(tokenizer) - 1) for row in ids] == [1, 0, 1]
    assert all(row.count(END) == 1 for row in ids)
    found, expected = (
        [(one.token_ids, one.text) for (one,) in translator.hypotheses(texts, prefix="<2de>", beam_size=1)]
        for translator in (theirs, ours)
    )
    assert found == expected
    assert all(token_ids[0] == len(tokenizer) - 1 and "<2de>" not in text for token_ids, text in found)


# What is written


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_vocabularies_are_the_tokenizer_s_in_the_order_of_ids(kind: Any, tmp_path: Path) -> None:
    lines = ['Ein "Wort",\u2028ein\tSatz 😀 \\n é', "<unused-300> mehr"] * 4
    tokenizer = train_tokenizer(iter(lines), vocab_size=290, kind=kind, extra_tokens=[">>de<<", "<unused-301>"])
    model = tiny_model(vocab_size=303)
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    tokens = json.loads((tmp_path / "ct2" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert len(set(tokens)) == 303
    assert tokens[: len(tokenizer)] == tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    assert ">>de<<" in tokens
    rows = [tokenizer(line)["input_ids"] for line in lines]
    assert_same_ids(model, tmp_path / "ct2", 1, rows)


def test_config_names_what_a_translator_needs(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = lively_model()
    model.generation_config.update(num_beams=4, length_penalty=0.6)
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    config = json.loads((tmp_path / "ct2" / "config.json").read_text())
    assert config["decoder_start_token"] == config["bos_token"] == "<s>"
    assert (config["eos_token"], config["pad_token"], config["unk_token"]) == ("</s>", "<pad>", "<unk>")
    assert config["add_source_eos"] is config["add_source_bos"] is False
    assert (config["layer_norm_epsilon"], config["max_position_embeddings"]) == (1e-5, 1024)
    settings = GenerationConfig.from_pretrained(tmp_path / "ct2")
    assert (settings.num_beams, settings.length_penalty, settings.suppress_tokens) == (4, 0.6, [0, 1])
    assert AutoTokenizer.from_pretrained(tmp_path / "ct2")("w1 w2") == tokenizer("w1 w2")


def test_positions_reach_as_far_as_config_json_says(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = lively_model()
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    rows = [[*random_sentences([1023], vocab_size=46)[0], END]]
    assert_same_ids(model, tmp_path / "ct2", 1, rows)
    with pytest.raises(RuntimeError, match="position"):
        search_with_ctranslate2(tmp_path / "ct2", [[4, *rows[0]]], 1, MAX_NEW_TOKENS)


def test_shared_weights_are_stored_once(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    sizes = []
    for is_shared in (True, False):
        options = {"share_encoder_decoder_embeddings": is_shared, "tie_word_embeddings": is_shared}
        to_ctranslate2(lively_model(**options), tokenizer, tmp_path / str(is_shared))
        sizes.append((tmp_path / str(is_shared) / "model.bin").stat().st_size)
    two_tables = 2 * 50 * 24 * 4
    assert sizes[1] - sizes[0] == pytest.approx(two_tables, abs=200)


def test_a_model_of_half_precision_is_exported_in_full(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = lively_model(dtype=torch.bfloat16)
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    assert_same_ids(model.float(), tmp_path / "ct2", 1)


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_the_model_is_left_as_it_is(
    quantization: str | None, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = lively_model().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    settings = model.generation_config.to_dict()
    to_ctranslate2(model, tokenizer, tmp_path / "ct2", quantization)
    assert model.training
    assert model.generation_config.to_dict() == settings
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name


# What is refused


def test_everything_that_cannot_be_exported_is_named_at_once(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model(vocab_size=20, activation_function="mish", eos_token_id=[2, 3], decoder_start_token_id=None)
    model.generation_config.bad_words_ids = [[5, 6]]
    model.generation_config.forced_bos_token_id = 7
    model.model.encoder.layers[0].adapter = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="`activation_function` is 'mish' ") as caught:
        to_ctranslate2(model, letter_tokenizer, tmp_path / "ct2")
    for problem in (
        "`decoder_start_token_id` is None",
        "`eos_token_id` is [2, 3] (it has exactly one end token)",
        "`bad_words_ids` holds [5, 6] (single tokens can be banned, not sequences)",
        "`forced_bos_token_id` is 7",
        "the tokenizer has the id 29 (the model's vocabulary has 20 tokens)",
        "2 weights are no Transformer's, `model.encoder.layers.0.adapter.bias` among them (merge adapters)",
        "Change them, or export it to ONNX.",
    ):
        assert problem in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_single_banned_tokens_are_not_written(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model, rows = lively_model(), sources(40)
    freely_written = {index for output in search_with_generate(model, rows, 4, MAX_NEW_TOKENS) for index in output}
    model.generation_config.bad_words_ids = [[index] for index in freely_written - {END}]
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    outputs = assert_same_ids(model, tmp_path / "ct2", 4, rows, renormalize_logits=True)
    assert {index for output in outputs for index in output} & freely_written <= {END}


def test_an_unknown_quantization_names_the_known_ones(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`quantization` must be one of int8, .*float32, or None, but is 'int4'"):
        to_ctranslate2(tiny_model(), tokenizer, tmp_path / "ct2", quantization="int4")


def test_another_kind_of_model_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"must be a Seq2SeqTransformerForConditionalGeneration, but is a Linear"):
        to_ctranslate2(torch.nn.Linear(1, 1), tokenizer, tmp_path / "ct2")  # type: ignore[arg-type]


def test_a_folder_that_holds_something_is_left_alone(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"must be a new or empty folder, but holds 'notes.txt'. Name another"):
        to_ctranslate2(tiny_model(), tokenizer, tmp_path)
    with pytest.raises(NotADirectoryError, match="must be a new or empty folder, but is a file"):
        to_ctranslate2(tiny_model(), tokenizer, tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_left_where_writing_fails(
    exists: bool, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep" / "ct2"
    if exists:
        folder.mkdir(parents=True)

    def fill_disk(*_: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ctranslate2.specs.model_spec.ModelSpec, "_serialize", fill_disk)
        with pytest.raises(OSError, match="No space left"):
            to_ctranslate2(tiny_model(), tokenizer, folder)
    assert [path.name for path in folder.parent.iterdir()] == (["ct2"] if exists else [])
    assert not exists or not list(folder.iterdir())
    to_ctranslate2(tiny_model(), tokenizer, folder)
    assert (folder / "model.bin").exists()


def test_of_two_exports_to_one_folder_the_second_to_end_is_refused(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PreTrainedTokenizerFast.save_pretrained

    def save_after_another(self: PreTrainedTokenizerFast, folder: Path) -> Any:
        (tmp_path / "ct2").mkdir()
        (tmp_path / "ct2" / "model.bin").write_bytes(b"of another export")
        return save(self, folder)

    monkeypatch.setattr(PreTrainedTokenizerFast, "save_pretrained", save_after_another)
    with pytest.raises(ValueError, match=r"must be a new or empty folder, but holds 'model.bin'"):
        to_ctranslate2(tiny_model(), tokenizer, tmp_path / "ct2")
    assert (tmp_path / "ct2" / "model.bin").read_bytes() == b"of another export"
    assert [path.name for path in tmp_path.iterdir()] == ["ct2"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "ctranslate2"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "hf_seq2seq.interop.ctranslate2")
    loaded: Callable[[str], Any] = interop.__getattr__
    with pytest.raises(ImportError, match=r"needs the package ctranslate2.*pip install 'hf-seq2seq\[export\]'"):
        loaded("to_ctranslate2")
