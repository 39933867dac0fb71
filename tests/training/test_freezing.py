"""Frozen weights stay as they were; a pattern that matches nothing, and weights that are tied, are told."""

from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import tiny_model
from reference.tiny_runs import command_line, tiny_settings

from hf_seq2seq.loading import load_model
from hf_seq2seq.training.command_line import parse_arguments
from hf_seq2seq.training.freezing import freeze
from hf_seq2seq.training.run import run_training


FREE: dict[str, Any] = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}


def test_what_a_pattern_matches_gets_no_gradient() -> None:
    model = tiny_model(**FREE)
    freeze(model, ["model.encoder.*", "lm_head.weight"])
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {
        name for name, _ in model.named_parameters() if name.startswith("model.encoder.") or name == "lm_head.weight"
    }


def test_a_pattern_that_matches_nothing_is_named() -> None:
    message = r"^`freeze` must be patterns .*, such as 'model.encoder.\*', but 'encoder.\*' matches none\.$"
    with pytest.raises(ValueError, match=message):
        freeze(tiny_model(), ["model.decoder.*", "encoder.*"])


def test_something_must_be_left_to_train() -> None:
    with pytest.raises(ValueError, match=r"`freeze` must leave weights to be trained, but '\*' matches all of them"):
        freeze(tiny_model(), ["*"])


def test_the_other_names_of_a_tied_weight_are_told(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model()
    freeze(model, ["model.encoder.*"])
    assert not model.lm_head.weight.requires_grad
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "`freeze` also freezes `model.decoder.embed_tokens.weight` and `lm_head.weight`, which are tied to "
        "`model.encoder.embed_tokens.weight`: they are one weight."
    ]


def test_all_names_of_a_tied_weight_may_be_given(caplog: pytest.LogCaptureFixture) -> None:
    freeze(tiny_model(), ["*embed_tokens*", "lm_head.*"])
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_run_trains_all_but_the_frozen_weights_with_fewer_bytes_of_memory(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**tiny_settings(tmp_path), **FREE}
    frozen = {"freeze": "model.encoder.*"}

    def run(name: str, **overrides: Any) -> dict[str, Any]:
        options = settings | overrides | {"output_dir": tmp_path / name}
        return run_training(*parse_arguments(command_line(options)))

    run("first", learning_rate=1e-30, max_steps=1)
    run("out", max_steps=1, warmup_steps=0, **frozen)
    before, after = (load_model(tmp_path / name).state_dict() for name in ("first", "out"))
    unchanged = {name for name, weight in after.items() if torch.equal(weight, before[name])}
    assert unchanged == {name for name in after if name.startswith("model.encoder.")}

    alone: dict[str, Any] = {"validation_source": None, "validation_target": None}
    plans = [run("plan", dry_run=True, **alone, **options) for options in (frozen, {})]
    num_frozen = sum(after[name].numel() for name in unchanged)
    saved = (plans[1]["memory_gib"] - plans[0]["memory_gib"]) * 2**30
    assert saved == pytest.approx(16 * num_frozen)  # gradients, and three of their size in the optimizer
