"""The config holds the paper's models, refuses what contradicts itself, and comes back from disk as it went."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError
from reference.tiny_models import tiny_config, tiny_model
from torch import nn
from transformers import AutoConfig

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration


@dataclass(frozen=True)
class Row:
    """A row of Table 3 of Vaswani et al. (2017) in the paper's letters, with its figure of millions of parameters."""

    n: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int = 64
    d_v: int = 64
    p_drop: float = 0.1
    learned_positions: int = 0
    millions: int | None = None

    def num_parameters(self, vocab_size: int = 37000) -> int:
        """Sections 3.1 to 3.5: attention without biases, networks with biases, norms, one embedding table."""
        attention = self.h * self.d_model * (2 * self.d_k + self.d_v) + self.h * self.d_v * self.d_model
        network = self.d_model * self.d_ff + self.d_ff + self.d_ff * self.d_model + self.d_model
        norm = 2 * self.d_model
        encoder_layer = attention + network + 2 * norm
        decoder_layer = 2 * attention + network + 3 * norm
        embeddings = (vocab_size + 2 * self.learned_positions) * self.d_model
        return self.n * (encoder_layer + decoder_layer) + embeddings


TABLE_3 = {
    "base": Row(millions=65),
    "A-h1": Row(h=1, d_k=512, d_v=512),
    "A-h4": Row(h=4, d_k=128, d_v=128),
    "A-h16": Row(h=16, d_k=32, d_v=32),
    "A-h32": Row(h=32, d_k=16, d_v=16),
    "B-dk16": Row(d_k=16, millions=58),
    "B-dk32": Row(d_k=32, millions=60),
    "C-N2": Row(n=2, millions=36),
    "C-N4": Row(n=4, millions=50),
    "C-N8": Row(n=8, millions=80),
    "C-d256": Row(d_model=256, d_k=32, d_v=32, millions=28),
    "C-d1024": Row(d_model=1024, d_k=128, d_v=128, millions=168),
    "C-ff1024": Row(d_ff=1024, millions=53),
    "C-ff4096": Row(d_ff=4096, millions=90),
    "D-p0": Row(p_drop=0.0),
    "D-p0.2": Row(p_drop=0.2),
    "E-learned": Row(learned_positions=1024),
    "big": Row(d_model=1024, d_ff=4096, h=16, p_drop=0.3, millions=213),
}
# Tiny, and unlike the default in each field.
UNUSUAL: dict[str, Any] = {
    "vocab_size": 60,
    "decoder_vocab_size": 50,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 16,
    "key_dim": 5,
    "norm_position": "pre",
    "activation_function": "gelu",
    "attention_bias": True,
    "lm_head_bias": True,
    "position_embedding_type": "learned",
    "max_position_embeddings": 20,
    "dropout": 0.2,
    "attention_dropout": 0.3,
    "activation_dropout": 0.4,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": False,
    "tie_word_embeddings": False,
    "init_std": 0.02,
    "layer_norm_eps": 1e-6,
    "use_cache": False,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": [5, 6],
    "decoder_start_token_id": 7,
}


def model_of(config: Seq2SeqTransformerConfig) -> Seq2SeqTransformerForConditionalGeneration:
    """A model without storage: the paper's sizes in no time."""
    with torch.device("meta"):
        return Seq2SeqTransformerForConditionalGeneration(config)


@functools.cache
def paper_model(name: str) -> Seq2SeqTransformerForConditionalGeneration:
    return model_of(Seq2SeqTransformerConfig.from_paper(name))


def num_parameters(name: str) -> int:
    return sum(parameter.numel() for parameter in paper_model(name).parameters())


# The paper's models


@pytest.mark.parametrize("name", TABLE_3)
def test_a_model_of_the_paper_has_the_sizes_of_its_row(name: str) -> None:
    row, model = TABLE_3[name], paper_model(name)
    for stack, attentions_per_layer in ((model.get_encoder(), 1), (model.get_decoder(), 2)):
        assert len(stack.layers) == row.n
        attentions = [module for module in stack.modules() if hasattr(module, "q_proj")]
        assert len(attentions) == attentions_per_layer * row.n
        for attention in attentions:
            assert (attention.key_dim, attention.value_dim) == (row.d_k, row.d_v)
            assert attention.q_proj.weight.shape == attention.k_proj.weight.shape == (row.h * row.d_k, row.d_model)
            assert attention.v_proj.weight.shape == attention.out_proj.weight.T.shape == (row.h * row.d_v, row.d_model)
        for layer in stack.layers:
            assert layer.fc1.weight.shape == layer.fc2.weight.T.shape == (row.d_ff, row.d_model)
            assert layer.dropout == row.p_drop
        tables = [weight.shape for weight in stack.embed_positions.parameters()]
        assert tables == ([(row.learned_positions, row.d_model)] if row.learned_positions else [])
    assert model.lm_head.weight is model.get_decoder().embed_tokens.weight is model.get_encoder().embed_tokens.weight


@pytest.mark.parametrize("name", TABLE_3)
def test_a_model_of_the_paper_has_the_papers_number_of_parameters(name: str) -> None:
    """Up to 7 %, since the vocabulary's size is only given as "about 37,000"."""
    row = TABLE_3[name]
    assert num_parameters(name) == row.num_parameters()
    if row.millions is not None:
        assert num_parameters(name) == pytest.approx(row.millions * 1e6, rel=0.07)


def test_rows_differ_from_the_base_model_by_what_the_paper_changes() -> None:
    base = num_parameters("base")
    differences = {name: num_parameters(name) - base for name in TABLE_3}
    same = dict.fromkeys(("base", "A-h1", "A-h4", "A-h16", "A-h32", "D-p0", "D-p0.2"), 0)
    assert differences == differences | same
    # Row B: W_Q and W_K of 18 attentions, with 8 heads. Row E: two tables of 1024 positions.
    assert differences["B-dk16"] == -18 * 2 * 512 * 8 * (64 - 16) == -7_077_888
    assert differences["B-dk32"] == -18 * 2 * 512 * 8 * (64 - 32)
    assert differences["E-learned"] == 2 * 1024 * 512
    # Row C: 12 networks of d_ff columns, rows and biases; layers are worth the same one by one.
    assert differences["C-ff1024"] == -12 * 1024 * (512 + 512 + 1)
    assert differences["C-ff4096"] == 12 * 2048 * (512 + 512 + 1)
    assert differences["C-N8"] == -differences["C-N4"] == -differences["C-N2"] / 2


def test_keywords_override_a_row_of_the_paper() -> None:
    config = Seq2SeqTransformerConfig.from_paper("C-N2", encoder_layers=3, vocab_size=8000)
    assert (config.encoder_layers, config.decoder_layers, config.vocab_size, config.d_model) == (3, 2, 8000, 512)
    assert Seq2SeqTransformerConfig.from_paper("C-N2").encoder_layers == 2


def test_an_unknown_model_of_the_paper_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"`name` must be one of .*, but is 'C-N3' instead") as error:
        Seq2SeqTransformerConfig.from_paper("C-N3")
    assert all(name in str(error.value) for name in TABLE_3)


@pytest.mark.parametrize(
    ("field", "rest"),
    [
        ("d_modl", r"Nearest: d_model\b"),
        ("encoder_layer", "Nearest: encoder_layers, .*"),
        ("xyz", "Nearest: see the fi"),
    ],
)
def test_an_unknown_field_is_an_error_that_names_the_nearest(field: str, rest: str) -> None:
    with pytest.raises(ValueError, match=rf"^`{field}` is not a field of Seq2SeqTransformerConfig\. {rest}"):
        Seq2SeqTransformerConfig.from_paper("base", **{field: 1})


# Values


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({field: 0}, f"`{field}` must be at least 1, but is 0 instead.")
        for field, value in UNUSUAL.items()
        if type(value) is int and not field.endswith("token_id")
    ),
    *(
        ({field: heads}, f"`d_model` must be a multiple of `{field}` ({heads}), but is 16 instead.")
        for field, heads in (("encoder_attention_heads", 3), ("decoder_attention_heads", 5))
    ),
    (
        {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 3},
        "`d_model` must be even for sinusoidal positions, but is 15 instead. "
        'Take `position_embedding_type="learned"` for an odd width.',
    ),
    *(
        ({field: rate}, f"`{field}` must be at least 0 and below 1, but is {rate} instead.")
        for field, rate in (("dropout", 1.0), ("attention_dropout", -0.1), ("activation_dropout", float("nan")))
    ),
    (
        {"decoder_vocab_size": 40},
        "`decoder_vocab_size` must equal `vocab_size` (50) where embeddings are shared, but is 40 instead. "
        "Set `share_encoder_decoder_embeddings=False` to have two.",
    ),
    *(
        (
            {field: [2, token] if field == "eos_token_id" else token},
            f"`{field}` must be at least 0 and below the target vocabulary's size (50), but is {token} instead.",
        )
        for field, token in (
            *(("pad_token_id", 50), ("bos_token_id", 51)),
            *(("eos_token_id", 52), ("decoder_start_token_id", -1)),
        )
    ),
    (
        {"vocab_size": 10, "decoder_vocab_size": 100, "share_encoder_decoder_embeddings": False, "pad_token_id": 50},
        "`pad_token_id` must be at least 0 and below the source vocabulary's size (10), but is 50 instead.",
    ),
    ({"activation_function": "rellu"}, "`activation_function` must be a name in transformers' ACT2FN (gelu, "),
    ({"activation_function": "rellu"}, "), but is 'rellu' instead."),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[str(overrides) for overrides, _ in REFUSED])
def test_values_that_contradict_the_rules_are_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(StrictDataclassClassValidationError, match=re.escape(message)):
        tiny_config(**overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"d_model": 16.0},
        {"vocab_size": True},
        {"vocab_size": "50"},
        {"encoder_layers": None},
        {"key_dim": 8.0},
        {"norm_position": "middle"},
        {"position_embedding_type": "rotary"},
        {"activation_function": None},
        {"attention_bias": 1},
        {"tie_word_embeddings": None},
        {"dropout": "0.1"},
        {"pad_token_id": None},
        {"eos_token_id": [2, "3"]},
    ],
    ids=str,
)
def test_values_of_the_wrong_type_are_refused(overrides: dict[str, Any]) -> None:
    (field,) = overrides
    with pytest.raises(StrictDataclassFieldValidationError, match=f"error for field '{field}'"):
        tiny_config(**overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"dropout": 0},
        {
            "d_model": 15,
            "position_embedding_type": "learned",
            "encoder_attention_heads": 3,
            "decoder_attention_heads": 5,
        },
        {"key_dim": 3},
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 4},
        {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None},
        {"eos_token_id": [2, 3]},
        {"activation_function": "gelu_new"},
    ],
    ids=str,
)
def test_unusual_values_within_the_rules_are_taken(overrides: dict[str, Any]) -> None:
    config = tiny_config(**overrides)
    assert {name: getattr(config, name) for name in overrides} == overrides
    model_of(config)


def test_a_value_changed_later_is_checked_again(tmp_path: Path) -> None:
    config = tiny_config()
    with pytest.raises(StrictDataclassFieldValidationError, match="d_model"):
        config.d_model = "wide"  # type: ignore[assignment]
    config.d_model = 15
    with pytest.raises(StrictDataclassClassValidationError, match="`d_model` must be a multiple of"):
        config.save_pretrained(tmp_path)


def test_the_target_vocabulary_follows_a_shared_one_that_is_changed_in_the_config(tmp_path: Path) -> None:
    """Else the model would be built with two sizes, and only fail when it is saved."""
    tiny_config().save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, vocab_size=70)
    model = Seq2SeqTransformerForConditionalGeneration(config)
    assert model.lm_head.out_features == model.model.decoder.embed_tokens.num_embeddings == 70
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).decoder_vocab_size == 70


# Names that transformers and others look for


def test_one_vocabulary_is_the_default_of_both_sides() -> None:
    assert tiny_config(vocab_size=70).decoder_vocab_size == 70


def test_each_stack_can_be_asked_for_by_transformers_common_names() -> None:
    """A `decoder_vocab_size` left at None would become the vocabulary's size here, and break generation."""
    config = Seq2SeqTransformerConfig(**UNUSUAL)
    decoder = config.get_text_config(decoder=True)
    assert (decoder.vocab_size, decoder.num_hidden_layers, decoder.num_attention_heads) == (50, 1, 3)
    encoder = config.get_text_config(encoder=True)
    assert (encoder.vocab_size, encoder.num_hidden_layers, encoder.num_attention_heads) == (60, 2, 4)
    assert (config.vocab_size, config.decoder_vocab_size, config.hidden_size) == (60, 50, 24)
    assert (config.num_hidden_layers, config.num_attention_heads) == (2, 4)
    assert tiny_config().get_text_config(decoder=True).vocab_size == 50


# Disk


def test_every_field_survives_saving(tmp_path: Path) -> None:
    own_fields = set(Seq2SeqTransformerConfig.__annotations__) - {"base_model_tp_plan", "base_model_fsdp_plan"}
    defaults = Seq2SeqTransformerConfig()
    assert set(UNUSUAL) == own_fields - {"attribute_map", "is_encoder_decoder"}
    assert not [name for name, value in UNUSUAL.items() if getattr(defaults, name) == value]

    Seq2SeqTransformerConfig(**UNUSUAL).save_pretrained(tmp_path)
    for reloaded in (Seq2SeqTransformerConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(reloaded) is Seq2SeqTransformerConfig
        assert {name: getattr(reloaded, name) for name in UNUSUAL} == UNUSUAL
    saved = json.loads((tmp_path / "config.json").read_text())
    assert {name: saved[name] for name in UNUSUAL} == UNUSUAL
    assert saved["model_type"] == "seq2seq_transformer"
    assert saved["is_encoder_decoder"] is True


def test_a_saved_config_that_was_changed_by_hand_is_checked_when_it_is_read(tmp_path: Path) -> None:
    tiny_config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"d_model": 16', '"d_model": 17'))
    with pytest.raises(StrictDataclassClassValidationError, match="`d_model` must be a multiple of"):
        AutoConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("value", [0, -0.1, float("inf"), float("nan")])
def test_weights_that_are_all_alike_or_infinite_are_not_drawn(value: float) -> None:
    with pytest.raises(StrictDataclassClassValidationError, match="`init_std` must be above 0 and finite, or None"):
        Seq2SeqTransformerConfig(init_std=value)


@pytest.mark.parametrize("value", [0, -1e-6, float("inf")])
def test_an_epsilon_that_leaves_a_division_by_zero_is_refused(value: float) -> None:
    with pytest.raises(StrictDataclassClassValidationError, match="`layer_norm_eps` must be above 0 and finite"):
        Seq2SeqTransformerConfig(layer_norm_eps=value)


def test_every_norm_has_the_epsilon_of_the_config() -> None:
    model = tiny_model(norm_position="pre", layer_norm_eps=0.25)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 2 * 3 + 2
    assert {norm.eps for norm in norms} == {0.25}


@pytest.mark.parametrize(("init_std", "linear", "embedding"), [(None, 0.0790569, 0.125), (0.03, 0.03, 0.125)])
@pytest.mark.parametrize("meta", [False, True])
def test_first_weights_have_the_deviation_that_is_asked_for(
    init_std: float | None, linear: float, embedding: float, meta: bool
) -> None:
    config = tiny_config(d_model=64, vocab_size=1000, init_std=init_std, attention_bias=True)
    torch.manual_seed(0)
    with torch.device("meta" if meta else "cpu"):
        model = Seq2SeqTransformerForConditionalGeneration(config)
    if meta:
        model.to_empty(device="cpu")
        model.init_weights()
        model.tie_weights()
    weights = torch.cat([layer.encoder_attn.q_proj.weight.flatten() for layer in model.model.decoder.layers])
    assert weights.std().item() == pytest.approx(linear, rel=0.05)
    assert model.lm_head.weight.std().item() == pytest.approx(embedding, rel=0.05)
    assert not model.model.encoder.layers[0].self_attn.q_proj.bias.any()
