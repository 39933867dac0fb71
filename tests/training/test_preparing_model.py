"""The model that a run begins with."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.training import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from hf_seq2seq.training.preparing_model import Model, prepare_model
from hf_seq2seq.training.settings import resolve_settings


def prepare(
    folder: Path, tokenizer: PreTrainedTokenizerFast, max_length: int, tokens: list[str] | None = None, **fields: Any
) -> Model:
    tiny_model(position_embedding_type="learned", max_position_embeddings=8, **fields).save_pretrained(folder)
    settings = resolve_settings(
        ModelArguments(model_name_or_path=str(folder), extra_token=tokens),
        DataArguments(train_file=["pairs.tsv"], max_length=max_length),
        Seq2SeqTransformerTrainingArguments(output_dir="out"),
    )
    return prepare_model(settings, tokenizer)


def test_an_output_may_be_as_long_as_the_longest_target(
    tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    model = prepare(tmp_path, letter_tokenizer, max_length=8)
    assert model.generation_config.max_length == 9  # the start token among them


def test_targets_longer_than_a_loaded_model_s_positions_are_refused(
    tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ValueError, match=r"`max_length` must be at most `max_position_embeddings` \(8\) .* but is 9"):
        prepare(tmp_path, letter_tokenizer, max_length=9)


def test_a_run_s_model_does_not_write_unknown_words(tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = prepare(tmp_path, letter_tokenizer, max_length=8)
    assert model.generation_config.suppress_tokens == [0, 1, letter_tokenizer.unk_token_id]


def test_both_tables_get_a_row_for_a_new_token(tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(letter_tokenizer)
    size = len(tokenizer)
    fields: dict[str, Any] = {
        "vocab_size": size,
        "decoder_vocab_size": size + 1,
        "share_encoder_decoder_embeddings": False,
    }
    tokenizer.add_tokens(["<a>", "<b>"])
    model = prepare(tmp_path, tokenizer, 8, ["<a>", "<b>"], **fields)
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (size + 2, size + 2)
    tables = (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head)
    assert [len(table.weight) for table in tables] == [size + 2] * 3
    before = tiny_model(position_embedding_type="learned", max_position_embeddings=8, **fields)
    assert torch.equal(model.lm_head.weight[:-1], before.lm_head.weight)


def test_rows_are_added_for_new_tokens_alone(tmp_path: Path, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(letter_tokenizer)
    tokenizer.add_tokens(["<a>", "<b>"])
    size = len(tokenizer) - 2
    with pytest.raises(ValueError, match=rf"at most as many tokens as the model's `vocab_size` \({size}\)"):
        prepare(tmp_path, tokenizer, 8, ["<a>"], vocab_size=size)
