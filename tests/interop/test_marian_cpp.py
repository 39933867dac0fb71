"""Models of Marian C++ become ours and go back: the log-probabilities of its network, or a refusal by name."""

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from reference.numpy_marian import log_probabilities, random_marian, save_marian
from reference.tiny_models import tiny_model
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_seq2seq.interop import from_marian_cpp, to_marian_cpp
from hf_seq2seq.interop.marian_cpp import import_folder
from hf_seq2seq.loading import load_model


Command = Callable[..., tuple[int, str, str]]

TOKENS = ["</s>", "<unk>", "a", "b", "c", "d", "e", "f", "null", "1", "~"]
PRE_NORM: dict[str, Any] = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}
UNTIED = {"tied-embeddings-all": False}
SEPARATE: dict[str, Any] = {"dim-vocabs": [11, 9], "tied-embeddings-all": False}

KINDS: dict[str, dict[str, Any]] = {
    "post-norm, one table": {},
    "pre-norm": PRE_NORM,
    "swish": {"transformer-ffn-activation": "swish"},
    "GELU": {"transformer-ffn-activation": "gelu"},
    "no table tied": UNTIED,
    "one table for both sides, and an output table": UNTIED | {"tied-embeddings-src": True},
    "a source and a target table": UNTIED | {"tied-embeddings": True},
    "fewer target tokens": SEPARATE | {"tied-embeddings": True},
    "more target tokens": UNTIED | {"dim-vocabs": [9, 11]},
    "a deep decoder": {"enc-depth": 1, "dec-depth": 3, "transformer-decoder-dim-ffn": 20},
}


def save(folder: Path, seed: int = 0, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A random model in a folder, with a vocabulary for each side; returns its weights and options."""
    arrays, settings = random_marian(seed, **options)
    save_marian(folder, arrays, settings)
    sizes = settings["dim-vocabs"]
    names = ["vocab.yml"] * 2 if sizes[0] == sizes[1] else ["source.yml", "target.yml"]
    for name, size in zip(names, sizes, strict=True):
        text = "".join(f"{json.dumps(token)}: {number}\n" for number, token in enumerate(TOKENS[:size]))
        (folder / name).write_text(text.replace('"null"', "null").replace('"1"', "1"))
    decoder = {"relative-paths": True, "models": ["model.npz"], "vocabs": names, "beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))
    return arrays, settings


@torch.no_grad()
def our_log_probabilities(model: Any, source: list[int], target: list[int]) -> Tensor:
    start = [model.config.decoder_start_token_id, *target[:-1]]
    logits = model(torch.tensor([source]), decoder_input_ids=torch.tensor([start])).logits[0]
    result: Tensor = logits.log_softmax(-1)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_marians_log_probabilities(kind: str, tmp_path: Path) -> None:
    arrays, options = save(tmp_path, **KINDS[kind])
    model = from_marian_cpp(tmp_path)
    source, target = [5, 2, 7, 4, 3, 8, 2, 0], [6, 6, 3, 2, 5, 8, 7, 2, 4, 0]
    expected = log_probabilities(arrays, options, source, target)
    actual = our_log_probabilities(model, source, target)
    np.testing.assert_allclose(actual[:, : expected.shape[1]], expected, rtol=0, atol=1e-4)
    assert (actual[:, expected.shape[1] :] < -90).all()  # <pad>, which Marian does not have


@pytest.mark.parametrize(
    ("kind", "is_shared", "is_tied"),
    [
        ("post-norm, one table", True, True),
        ("no table tied", False, False),
        ("one table for both sides, and an output table", True, False),
        ("a source and a target table", False, True),
    ],
)
def test_tables_that_are_one_stay_one(kind: str, is_shared: bool, is_tied: bool, tmp_path: Path) -> None:
    save(tmp_path, **KINDS[kind])
    config = from_marian_cpp(tmp_path).config
    assert (config.share_encoder_decoder_embeddings, config.tie_word_embeddings) == (is_shared, is_tied)


def test_what_a_later_marian_trained_with_pre_norm_is_imported(tmp_path: Path) -> None:
    save(tmp_path, **PRE_NORM, version="v1.12.42 b7be0e964 2025-05-24")
    assert from_marian_cpp(tmp_path).config.norm_position == "pre"


def test_pre_norm_goes_to_the_layout_that_marian_translates_rightly(tmp_path: Path) -> None:
    save(tmp_path / "marian", **PRE_NORM)
    model, tokenizer = import_folder(tmp_path / "marian")
    assert tokenizer is not None
    to_marian_cpp(model, tokenizer, tmp_path / "back")
    options = np.load(tmp_path / "back/model.npz")["special:model.yml"].tobytes()
    assert b"type: transformer-new" in options


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "target tokens" not in kind and kind != "pre-norm"])
def test_there_and_back_again_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    arrays, options = save(tmp_path / "marian", **KINDS[kind])
    model, tokenizer = import_folder(tmp_path / "marian")
    assert tokenizer is not None
    to_marian_cpp(model, tokenizer, tmp_path / "back")
    with np.load(tmp_path / "back/model.npz") as file:
        assert sorted(file.files) == sorted([*arrays, "special:model.yml"])
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name], array)
        written = yaml.safe_load(file["special:model.yml"].tobytes().rstrip(b"\0"))
    for name in ("type", "dim-vocabs", "tied-embeddings-all", "transformer-postprocess-top"):
        assert written[name] == options[name]
    decoder = yaml.safe_load((tmp_path / "back/decoder.yml").read_text())
    assert (decoder["models"], decoder["beam-size"], decoder["normalize"]) == (["model.npz"], 6, 1)
    assert yaml.safe_load((tmp_path / "back" / decoder["vocabs"][0]).read_text()) == {
        token: number for number, token in enumerate(TOKENS)
    }


OUR_KINDS: dict[str, dict[str, Any]] = {
    "ours": {},
    "pre-norm": {"norm_position": "pre"},
    "attention biases": {"attention_bias": True, "lm_head_bias": True},
    "unscaled embeddings": {"scale_embedding": False},
    "learned positions": {"position_embedding_type": "learned"},
    "an output table": {"tie_word_embeddings": False},
    "tables apart": {"share_encoder_decoder_embeddings": False},
    "narrow keys": {"key_dim": 3},
    "swish": {"activation_function": "silu", "decoder_ffn_dim": 12},
}


@pytest.mark.parametrize("kind", OUR_KINDS)
def test_our_models_go_to_marian_and_come_back_with_the_same_log_probabilities(
    kind: str, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model(vocab_size=len(letter_tokenizer), **OUR_KINDS[kind])
    to_marian_cpp(model, letter_tokenizer, tmp_path / "marian")
    options = yaml.safe_load(np.load(tmp_path / "marian/model.npz")["special:model.yml"].tobytes().rstrip(b"\0"))
    assert options["type"] == "transformer-new"
    back, tokenizer = import_folder(tmp_path / "marian")
    assert tokenizer is not None
    assert tokenizer("c d zz")["input_ids"] == letter_tokenizer("c d zz")["input_ids"]
    source, target = [5, 9, 7, 2], [12, 5, 29, 28, 2]
    expected, actual = (our_log_probabilities(each, source, target) for each in (model, back))
    torch.testing.assert_close(actual[:, : expected.shape[1]], expected, rtol=0, atol=1e-5)


def test_the_type_of_the_one_layout_may_stand_in_a_file_of_the_other(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Marian trains so with TRANSFORMER_FLAVOR=experimental."""
    to_marian_cpp(tiny_model(vocab_size=len(letter_tokenizer)), letter_tokenizer, tmp_path)
    with np.load(tmp_path / "model.npz") as file:
        arrays = dict(file)
    options = yaml.safe_load(arrays.pop("special:model.yml").tobytes().rstrip(b"\0"))
    expected = from_marian_cpp(tmp_path)
    save_marian(tmp_path, arrays, options | {"type": "transformer"})
    actual = from_marian_cpp(tmp_path)
    torch.testing.assert_close(*(our_log_probabilities(each, [5, 9, 2], [12, 5, 2]) for each in (actual, expected)))
    assert actual.config.layer_norm_eps == 1e-5


def test_the_verb_imports_what_then_translates(command: Command, tmp_path: Path) -> None:
    arrays, options = save(tmp_path / "marian")
    status, out, err = command("import", "marian", tmp_path / "marian", tmp_path / "ours")
    assert (status, err) == (0, "")
    assert "with its Seq2SeqTransformerTokenizer" in out
    model, tokenizer = load_model(tmp_path / "ours"), AutoTokenizer.from_pretrained(tmp_path / "ours")
    settings = model.generation_config
    assert (settings.num_beams, settings.length_penalty, settings.suppress_tokens) == (6, 1.0, [1, 11])
    ids = tokenizer("a null 1 zz")["input_ids"]
    assert ids == [2, 8, 9, 1, 0]
    output = model.generate(torch.tensor([ids]), num_beams=1, max_length=6)[0, 1:].tolist()
    expected: list[int] = []
    while len(expected) < len(output):
        row = log_probabilities(arrays, options, ids, [*expected, 0])[-1]
        row[1] = -np.inf  # Marian never writes <unk>
        expected.append(int(row.argmax()))
    assert output == expected


def test_the_verb_exports_and_says_how_to_use_it(
    command: Command, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    for part in (tiny_model(vocab_size=len(letter_tokenizer)), letter_tokenizer):
        part.save_pretrained(tmp_path / "model")
    status, out, err = command("export", "marian", tmp_path / "model", tmp_path / "marian")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1].startswith(f"Translate with `marian-decoder -c {tmp_path / 'marian/decoder.yml'}`, whose input")
    assert lines[1].startswith("  model.npz  ")
    assert lines[-2] == "  decoder.yml, vocab.yml"


def test_positions_beyond_the_table_are_refused(tmp_path: Path) -> None:
    save(tmp_path)
    with pytest.raises(ValueError, match=r"at most `max_position_embeddings` \(1024\)"):
        from_marian_cpp(tmp_path)(torch.zeros(1, 1025, dtype=torch.long), decoder_input_ids=torch.tensor([[11]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "s2s"}, "its `type` is 's2s', not 'transformer' or 'transformer-new'"),
        ({"transformer-decoder-autoreg": "rnn"}, r"`transformer-decoder-autoreg` is 'rnn', not 'self-attention' \(a"),
        ({"guided-alignment": "corpus.align"}, "`guided-alignment` is 'corpus.align', not 'none'"),
        ({"transformer-guided-alignment-layer": "3"}, "`transformer-guided-alignment-layer` is '3', not 'last'"),
        ({"lemma-dim-emb": 8, "factors-dim-emb": 4}, "`factors-dim-emb` is 4, not 0; `lemma-dim-emb` is 8, not 0"),
        ({"transformer-tied-layers": [1, 1]}, r"`transformer-tied-layers` is \[1, 1\], not \[\]"),
        ({"transformer-postprocess-emb": "dn"}, "its norms are neither .* but .* `transformer-postprocess-emb` 'dn'"),
        ({"transformer-postprocess": "dhn"}, "its norms are neither .* `transformer-postprocess` 'dhn'"),
        (
            PRE_NORM | {"version": "v1.10.0 6f6d484 2021-02-06"},
            r"Marian v1\.10\.0 trained it with pre-norm of the queries alone",
        ),
        ({"transformer-ffn-activation": "elu"}, "`transformer-ffn-activation` is 'elu', none of relu, swish, gelu"),
        ({"transformer-heads": 3}, "`d_model` must be a multiple of `encoder_attention_heads`"),
        ({"transformer-dim-ffn": 9}, r"`model.encoder.layers.0.fc1.weight` has the shape \(12, 8\), not \(9, 8\)"),
        ({"enc-depth": 3}, r"16 weights are missing, from `encoder_l3_self_Wq` to .*: the options in the file and"),
        ({"dec-depth": 0}, "`decoder_layers` must be at least 1"),
        ({"enc-depth": 1}, "16 weights are left over, from `encoder_l2_"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    arrays, settings = save(tmp_path)
    save_marian(tmp_path, arrays, settings | options)
    with pytest.raises(ValueError, match=f"must be a model that this package can represent, but: .*{message}"):
        from_marian_cpp(tmp_path)


def test_guided_alignment_is_read_from_the_settings_of_the_training_too(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "model.npz.yml").write_text("guided-alignment: corpus.align\n")
    with pytest.raises(ValueError, match=r"`guided-alignment` is 'corpus\.align'.* delete model\.npz\.yml to import"):
        from_marian_cpp(tmp_path)
    (tmp_path / "model.npz.yml").unlink()
    assert from_marian_cpp(tmp_path).config.encoder_layers == 2


def test_a_vocabulary_with_factors_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "vocab.fsv").touch()
    (tmp_path / "decoder.yml").write_text("{models: [model.npz], vocabs: [vocab.fsv, vocab.fsv]}")
    with pytest.raises(ValueError, match=r"`vocab\.fsv` is a vocabulary with factors"):
        from_marian_cpp(tmp_path)


def test_eight_bit_weights_are_refused(tmp_path: Path) -> None:
    arrays, options = save(tmp_path)
    save_marian(tmp_path, arrays | {"Wemb": arrays["Wemb"].astype(np.int8)}, options)
    with pytest.raises(ValueError, match="it is an 8-bit file: `Wemb` holds int8 numbers"):
        from_marian_cpp(tmp_path)


@pytest.mark.parametrize("decoder", [None, "{models: [model.intgemm.alphas.bin], vocabs: [vocab.yml, vocab.yml]}"])
def test_eight_bit_files_are_refused(decoder: str | None, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "firefox"
    folder.mkdir()
    (folder / "model.intgemm.alphas.bin").touch()
    if decoder is not None:
        (folder / "decoder.yml").write_text(decoder)
    status, _, err = command("import", "marian", folder, tmp_path / "ours")
    assert status == 1
    assert f"`{folder}` must be a model that this package can represent, but its model.intgemm.alphas.bin is " in err
    assert err.count("\n") == 1


def test_of_several_models_one_must_be_chosen(tmp_path: Path) -> None:
    arrays, options = save(tmp_path)
    save_marian(tmp_path, arrays, options, "other.npz")
    (tmp_path / "model.npz.optimizer.npz").touch()  # is no model
    assert from_marian_cpp(tmp_path).config.d_model == 8  # as decoder.yml says
    (tmp_path / "decoder.yml").rename(tmp_path / "model.npz.decoder.yml")
    assert from_marian_cpp(tmp_path).config.d_model == 8
    (tmp_path / "other.npz.decoder.yml").write_text("models: [other.npz]")
    with pytest.raises(ValueError, match=r"must hold one decoder\.yml, but holds model\.npz\.decoder\.yml, other"):
        from_marian_cpp(tmp_path)
    for name in ("model", "other"):
        (tmp_path / f"{name}.npz.decoder.yml").unlink()
    with pytest.raises(ValueError, match=r"must hold one model, but it holds model\.npz, other\.npz\. Copy the one"):
        from_marian_cpp(tmp_path)
    (tmp_path / "decoder.yml").write_text("models: [model.npz, other.npz]")
    with pytest.raises(ValueError, match=r"must hold one model, but decoder\.yml names model\.npz, other\.npz"):
        from_marian_cpp(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.npz", "no zip", r"model\.npz` must be a whole \.npz, but is damaged"),
        ("decoder.yml", "a: [", r"decoder\.yml` must be YAML, but is not"),
        ("decoder.yml", "[1]", r"decoder\.yml` must hold settings, but holds list"),
        ("vocab.yml", "[1]", r"vocab\.yml` must be a vocabulary, but cannot be read"),
        ("vocab.yml", "a: 0", r"vocab\.yml` must be a vocabulary of Marian's, with '</s>', but has none"),
    ],
)
def test_a_damaged_file_is_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        from_marian_cpp(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be a folder of Marian C\+\+, but there is none"):
        from_marian_cpp(tmp_path / "nowhere")
    save(tmp_path)
    (tmp_path / "vocab.yml").unlink()
    with pytest.raises(FileNotFoundError, match=r"must hold vocab\.yml, but does not"):
        from_marian_cpp(tmp_path)
    (tmp_path / "model.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"must hold model\.npz, but does not"):
        from_marian_cpp(tmp_path)
    np.savez(tmp_path / "model.npz", Wemb=np.zeros(3))
    with pytest.raises(ValueError, match=r"must hold the options of a model \(special:model\.yml\), but does not"):
        from_marian_cpp(tmp_path)


def test_a_table_for_each_side_without_sentencepiece_gives_no_tokenizer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, **SEPARATE)
    with caplog.at_level(logging.WARNING, logger="hf_seq2seq"):
        assert import_folder(tmp_path)[1] is None
    assert "The tokenizer is left out, since source and target have a vocabulary each (source.yml," in caplog.text


def test_all_that_marian_cannot_represent_is_named_at_once(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model(activation_function="tanh", decoder_attention_heads=4, key_dim=9)
    model.config.decoder_start_token_id = None
    tokenizer = copy.deepcopy(letter_tokenizer)
    tokenizer.unk_token = "a"
    with pytest.raises(ValueError, match=r"must be one that Marian C\+\+ can represent, but: ") as caught:
        to_marian_cpp(model, tokenizer, tmp_path / "out")
    for problem in (
        "`activation_function` is 'tanh', none of relu, silu and gelu",
        "encoder and decoder have 2 and 4 heads, not as many",
        "`key_dim` is 9, more than the 8 of a head's values",
        "`decoder_start_token_id` is None",
        "the tokenizer's `unk_token` is 'a', not '<unk>'",
    ):
        assert problem in str(caught.value)
    assert not (tmp_path / "out").exists()
