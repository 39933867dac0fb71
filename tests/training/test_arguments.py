"""Settings come from a file and the command line, and a mistake in either is named with its way out."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from hf_seq2seq import Seq2SeqTransformerConfig
from hf_seq2seq.training.arguments import (
    DataArguments,
    ModelArguments,
    Seq2SeqTransformerTrainingArguments,
)
from hf_seq2seq.training.command_line import parse_arguments, to_options
from hf_seq2seq.training.config_fields import config_field_names
from hf_seq2seq.training.run import run_training
from hf_seq2seq.training.settings import Settings, resolve_settings


PAIRS = ["--train_source", "a.en", "--train_target", "a.de"]


@pytest.fixture
def output(tmp_path: Path) -> list[str]:
    return ["--output_dir", str(tmp_path / "out")]


def test_every_field_of_the_config_is_an_argument_without_a_default() -> None:
    options = {field.name: field for field in dataclasses.fields(ModelArguments)}
    own = set(Seq2SeqTransformerConfig.__annotations__) - {"is_encoder_decoder", "use_cache"}
    own &= {field.name for field in dataclasses.fields(Seq2SeqTransformerConfig)}
    assert own == set(config_field_names())
    assert own <= options.keys()
    assert all(options[name].default is None for name in own)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_the_command_line_overrides_the_file(suffix: str, tmp_path: Path, output: list[str]) -> None:
    values: dict[str, Any] = {
        "train_source": "a.en",
        "train-target": "a.de",
        "d_model": 64,
        "attention_bias": True,
        "use_cache": False,
        "activation_function": "gelu",
        "learning_rate": 0.002,
        "lr_scheduler_kwargs": {"timescale": 7},
        "include_for_metrics": ["inputs", "loss"],
        "run_name": None,
        "max_steps": 5,
    }
    text = json.dumps(values)
    if suffix == ".yaml":
        text = text.replace("0.002", "2e-3")  # YAML 1.1 reads this as text
    config = write(tmp_path / f"config{suffix}", text)
    model, data, training = parse_arguments([config, *output, "--max_steps", "-1", "--d-model=32", "--dropout", "0"])
    assert (data.train_source, data.train_target) == (["a.en"], ["a.de"])
    assert model.config_values() == {
        "d_model": 32,
        "attention_bias": True,
        "activation_function": "gelu",
        "dropout": 0.0,
    }
    assert training.max_steps == -1
    assert training.learning_rate == 0.002
    assert training.lr_scheduler_kwargs == {"timescale": 7}
    assert training.include_for_metrics == ["inputs", "loss"]
    assert training.use_cache is False


def test_defaults_are_the_paper_s_optimizer_and_a_saved_model_with_a_cache(output: list[str]) -> None:
    _, data, training = parse_arguments([*PAIRS, *output])
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert training.label_smoothing_factor == 0.1
    assert training.lr_scheduler_type == "inverse_sqrt"
    assert training.get_warmup_steps(2000) == 200
    assert training.use_cache
    assert training.eval_strategy == "no"
    assert not training.logging_nan_inf_filter
    assert training.use_cpu is not torch.accelerator.is_available()
    assert data.max_length == 256


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_bars_are_for_terminals(
    is_terminal: bool, output: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    assert parse_arguments([*PAIRS, *output])[2].disable_tqdm is not is_terminal
    assert parse_arguments([*PAIRS, *output, "--disable_tqdm", "false"])[2].disable_tqdm is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--d_modle", "8"], "`d_modle` in the command line must be a field .* Nearest: d_model"),
        (["--train-sauce=x"], "`train_sauce` in the command line .* Nearest: train_source"),
        (["--qqqq"], "`qqqq` in the command line .* `hf-seq2seq train --help-all` lists all fields"),
        (["--d_model", "wide"], "[Aa]rgument --d_model.*: invalid int value: 'wide'"),
        (["--norm_position", "both"], "[Aa]rgument --norm_position.*: invalid choice: 'both'"),
        (["--preset", "huge"], "[Aa]rgument --preset: invalid choice: 'huge' .*C-N2"),
        (["--seed", "1", "2"], "Each value must follow its `--field`, but '2' follows none"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(wrong: list[str], message: str, output: list[str]) -> None:
    with pytest.raises(ValueError, match=message):
        parse_arguments([*PAIRS, *output, *wrong])


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named_before_anything_is_read(tracker: str, output: list[str]) -> None:
    message = f"`report_to` must name installed trackers, but names '{tracker}', .* Run `pip install {tracker}`"
    with pytest.raises(ValueError, match=message):
        parse_arguments([*PAIRS, *output, "--report_to", tracker])


def test_an_unknown_tracker_is_named_with_those_that_there_are(output: list[str]) -> None:
    with pytest.raises(ValueError, match=r"paper_strip is not supported, only .*tensorboard"):
        parse_arguments([*PAIRS, *output, "--report_to", "paper_strip"])


def by_command(settings: dict[str, Any]) -> Settings:
    return parse_arguments(to_options(settings))


def parts_in_python(settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Makes the three parts as a Python program does."""
    classes = (ModelArguments, DataArguments, Seq2SeqTransformerTrainingArguments)
    names = [{field.name for field in dataclasses.fields(part)} for part in classes]
    assert settings.keys() <= set().union(*names)
    given = [{name: value for name, value in settings.items() if name in own} for own in names]
    return ModelArguments(**given[0]), DataArguments(**given[1]), Seq2SeqTransformerTrainingArguments(**given[2])


def by_run_training(settings: dict[str, Any]) -> object:
    return run_training(*parts_in_python(settings))


FILES = {"train_source": ["a.en"], "train_target": ["a.de"]}


@pytest.mark.parametrize("door", [by_command, by_run_training])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"d_model": 30}, "`d_model` must be a multiple of `encoder_attention_heads`"),
        ({"dropout": 2.0}, "`dropout` must be at least 0 and below 1, but is 2.0 instead"),
        ({"label_smoothing_factor": 1.0}, "`label_smoothing_factor` must be at least 0 and below 1, but is 1.0"),
        ({"tokens_per_batch": 0}, "`tokens_per_batch` must be at least 1, but is 0 instead"),
        ({"tokens_per_update": 0}, "`tokens_per_update` must be at least 1, but is 0 instead"),
        ({"max_length": 1}, "`max_length` must be at least 2, .* but is 1 instead"),
        ({"model_name_or_path": "m", "preset": "big"}, "`preset` must not be given together with `model_name_or"),
        ({"model_name_or_path": "m", "d_model": 8}, r"`d_model` .* \('m'\), which decides it, but is 8 instead"),
        ({"model_name_or_path": "m", "tokenizer": "t"}, "`tokenizer` must not be given together with `model_na"),
        ({"tokenizer": "t", "vocab_size": 9}, r"`vocab_size` .* `tokenizer` \('t'\), .* but is 9 instead"),
        ({"tokenizer": "t", "decoder_vocab_size": 9}, r"`decoder_vocab_size` .* `tokenizer` \('t'\), .* is 9 instead"),
        ({"source_tokenizer": "t"}, "`source_tokenizer` and `target_tokenizer` must be given together, or `tokeni"),
        ({"source_tokenizer": "t", "target_tokenizer": "t", "tokenizer": "t"}, "but given are `tokenizer`, `source_"),
        (
            {"source_tokenizer": "t", "target_tokenizer": "u", "vocab_size": 9},
            r"`vocab_size` must not be given together with `source_tokenizer` \('t'\), .* but is 9 instead",
        ),
        (
            {"source_tokenizer": "t", "target_tokenizer": "u", "share_encoder_decoder_embeddings": True},
            "`share_encoder_decoder_embeddings` must not be true together with `source_tokenizer`",
        ),
        (
            {"decoder_vocab_size": 9, "share_encoder_decoder_embeddings": True},
            "`share_encoder_decoder_embeddings` must not be true together with `decoder_vocab_size`",
        ),
        ({"decoder_vocab_size": 0}, "`decoder_vocab_size` must be at least 1, but is 0 instead"),
        ({"model_name_or_path": "m", "target_tokenizer": "t"}, "`target_tokenizer` must not be given together with"),
        ({"tokenizer": "t", "tokenizer_kind": "bpe"}, "`tokenizer_kind` must not be given together with `tokeni"),
        (
            {"train_source": ["a", "b"]},
            r"`train_target` must name as many files as `train_source` \(2\), but names 1",
        ),
        ({"train_source": None, "train_target": None}, "The training pairs must come from .* none of them is given"),
        ({"train_target": None}, r"`train_target` must name the other side of `train_source` \('a.en'\)"),
        ({"train_source": None}, r"`train_source` must name the other side of `train_target` \('a.de'\)"),
        ({"corpus_weights": [1.0, 2.0]}, "one weight for each of the 1 training corpora, but has 2 instead"),
        ({"corpus_tags": ["a", "b"]}, "`corpus_tags` must have one tag for each of the 1 training corpora, but has 2"),
        ({"corpus_tags": [" "]}, "`corpus_tags` must be neither blank nor a special token, but one is ' ' instead"),
        ({"extra_token": ["</s>"]}, "`extra_token` must be neither blank nor a special token, but one is '</s>'"),
        ({"streaming": True}, "`max_steps` must be given together with `streaming`"),
        ({"streaming": True, "max_steps": 5}, "`tokens_per_batch` must be given together with `streaming`"),
        (
            {"streaming": True, "max_steps": 5, "tokens_per_batch": 9, "dry_run": True},
            "`dry_run` must be left out with `streaming`",
        ),
        ({"r_drop_alpha": float("nan")}, "`r_drop_alpha` must be a number of at least 0, but is nan instead"),
        ({"r_drop_alpha": -1.0}, "`r_drop_alpha` must be a number of at least 0, but is -1.0 instead"),
        ({"max_steps": 0}, "`max_steps` must be above 0, but is 0 instead"),
        ({"num_train_epochs": 0.0}, "`num_train_epochs` must be above 0, but is 0.0 instead"),
        (
            {"metric_for_best_model": "blue", "validation_file": "v"},
            "`metric_for_best_model` must be one of loss, bleu, .* but is 'blue'",
        ),
        (
            {"metrics": "chrf,ter", "early_stopping_patience": 1, "validation_file": "v"},
            r"`metric_for_best_model` must be one of loss, chrf, ter \(those of `metrics`\), but is 'bleu' instead",
        ),
        (
            {"metrics": "bleu,blue"},
            "`metrics` must be names among bleu, chrf, ter, .*, exact_match, .* has 'blue' instead",
        ),
        ({"batch_eval_metrics": True}, "`batch_eval_metrics` must be False"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be a number of at least 0, but is inf instead"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be a number of at least 0, but is nan instead"),
        ({"warmup_steps": float("inf")}, "`warmup_steps` must be a number of at least 0, but is inf instead"),
        ({"num_train_epochs": float("nan")}, "`num_train_epochs` must be a number of at least 0, but is nan instead"),
        ({"adam_beta2": 1.0}, "`adam_beta2` must be at least 0 and below 1, but is 1.0 instead"),
        ({"gradient_accumulation_steps": 0}, "`gradient_accumulation_steps` must be at least 1, but is 0 instead"),
        ({"per_device_eval_batch_size": 0}, "`per_device_eval_batch_size` must be at least 1, but is 0 instead"),
        ({"preprocessing_num_workers": 0}, "`preprocessing_num_workers` must be at least 1, but is 0 instead"),
        ({"vocab_size": 0}, "`vocab_size` must be at least 1, but is 0 instead"),
        ({"seed": -1}, "`seed` must be at least 0, but is -1 instead"),
        ({"d_model": 10**9}, r"must fit into this machine's memory \(.*\), but take .* with `d_model` 1,000,000,000"),
        ({"encoder_layers": 10**6}, r"must fit into this machine's memory .* Lower it, or the numbers of layers"),
        ({"decoder_ffn_dim": 10**18}, r"must fit into this machine's memory .* or .*`decoder_ffn_dim`"),
        (
            {"position_embedding_type": "learned", "max_position_embeddings": 10**12},
            r"must fit into this machine's memory .* or `max_position_embeddings`",
        ),
        (
            {
                "lr_scheduler_type": "reduce_lr_on_plateau",
                "metric_for_best_model": "bleu",
                "lr_scheduler_kwargs": {"mode": "min"},
                "validation_file": "v",
            },
            "The mode in `lr_scheduler_kwargs` must be 'max', since `greater_is_better` is True for bleu",
        ),
        ({"early_stopping_patience": 0}, "`early_stopping_patience` must be at least 1, but is 0 instead"),
        ({"early_stopping_patience": 1}, "`load_best_model_at_end` and `early_stopping_patience` must be given toget"),
        ({"average_checkpoints": -1}, "`average_checkpoints` must be a number of checkpoints, .* but is -1 instead"),
        (
            {"average_checkpoints": 2, "early_stopping_patience": 1},
            "`average_checkpoints` must be .* or 0 where the final model is the best one .* but is 2 instead",
        ),
        (
            {"tokens_per_batch": 9, "tokens_per_update": 8},
            r"`tokens_per_update` must be at least `tokens_per_batch` \(9\), .* but is 8 instead",
        ),
        (
            {"tokens_per_batch": 9, "tokens_per_update": 99, "gradient_accumulation_steps": 1},
            "`gradient_accumulation_steps` must not be given together with `tokens_per_update`",
        ),
        (
            {"tokens_per_update": 99, "per_device_train_batch_size": 64},
            "`per_device_train_batch_size` must not be given together with `tokens_per_update`",
        ),
        (
            {"tokens_per_batch": 9, "per_device_train_batch_size": 64},
            "`per_device_train_batch_size` must not be given together with `tokens_per_batch`",
        ),
        (
            {"tokens_per_batch": 9, "train_sampling_strategy": "group_by_length"},
            "`train_sampling_strategy` must not be given together with `tokens_per_batch`",
        ),
        (
            {"paper_schedule": True, "learning_rate": 7e-4},
            "`learning_rate` must not be given together with `paper_schedule`",
        ),
        (
            {"paper_schedule": True, "lr_scheduler_type": "inverse_sqrt"},
            "`lr_scheduler_type` must not be given together with `paper_schedule`",
        ),
        (
            {"tokens_per_batch": 9, "accelerator_config": {"split_batches": True}},
            "`split_batches` in `accelerator_config` must be left out with batches by tokens",
        ),
        (
            {"tokens_per_update": 9, "accelerator_config": {"dispatch_batches": True}},
            "`dispatch_batches` in `accelerator_config` must be left out with batches by tokens",
        ),
        ({"validation_source": "v.en"}, r"`validation_target` must name .* `validation_source` \('v.en'\)"),
        ({"validation_file": "v", "validation_split": "v"}, "given are `validation_file` and `validation_split`"),
        ({"train_split": "x"}, "`train_split` must be given together with `dataset_name`"),
        ({"eval_strategy": "epoch"}, "`eval_strategy` must be no without validation pairs, but is epoch instead"),
        ({"bpe_dropout": 1.5}, r"`bpe_dropout` must be at least 0 and below 1, but is 1\.5 instead"),
        (
            {"bpe_dropout": 0.1, "tokenizer_kind": "unigram"},
            r"`bpe_dropout` must be left out with a `tokenizer_kind` other than bpe, but is 0\.1 with unigram instead",
        ),
        (
            {"preset": "E-learned", "max_position_embeddings": 128},
            r"`max_length` must be at most `max_position_embeddings` \(128\) with learned positions, but is 256",
        ),
        ({"output_dir": None}, r"^`output_dir` must be given: the folder of the trained model\.$"),
    ],
)
def test_what_contradicts_itself_is_refused_by_the_command_and_in_python(
    wrong: dict[str, Any], message: str, door: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    settings = {**FILES, "output_dir": str(tmp_path / "out"), **wrong}
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        door(settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "filled_in"),
    [
        ({}, {"learning_rate": 7e-4, "eval_strategy": "no", "lr_scheduler_type": "inverse_sqrt"}),
        ({}, {"per_device_train_batch_size": 64, "gradient_accumulation_steps": 1, "warmup_steps": 0.1}),
        ({"model_name_or_path": "m"}, {"learning_rate": 1e-4}),
        ({"model_name_or_path": "m", "learning_rate": 7e-4}, {"learning_rate": 7e-4}),
        ({"model_name_or_path": "m", "paper_schedule": True}, {"warmup_steps": 4000}),
        ({"validation_file": "v"}, {"eval_strategy": "steps", "do_eval": True}),
        ({"validation_file": "v", "eval_strategy": "no"}, {"eval_strategy": "no", "do_eval": False}),
        ({"validation_file": "v", "early_stopping_patience": 1}, {"eval_strategy": "steps"}),
        (
            {"validation_file": "v", "early_stopping_patience": 1, "save_strategy": "epoch"},
            {"eval_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "bleu"},
        ),
        ({"validation_file": "v", "lr_scheduler_type": "reduce_lr_on_plateau"}, {"eval_strategy": "steps"}),
        (
            {"validation_file": "v", "lr_scheduler_type": "reduce_lr_on_plateau"},
            {"metric_for_best_model": "loss", "lr_scheduler_kwargs": {"mode": "min"}},
        ),
        (
            {"validation_file": "v", "lr_scheduler_type": "greedy", "metric_for_best_model": "chrf"},
            {"greater_is_better": True, "lr_scheduler_kwargs": {"mode": "max"}},
        ),
        (
            {
                "validation_file": "v",
                "lr_scheduler_type": "reduce_lr_on_plateau",
                "metric_for_best_model": "ter",
                "lr_scheduler_kwargs": {"patience": 3},
            },
            {"greater_is_better": False, "lr_scheduler_kwargs": {"patience": 3, "mode": "min"}},
        ),
        (
            {
                "validation_file": "v",
                "lr_scheduler_type": "reduce_lr_on_plateau",
                "metric_for_best_model": "per",
                "metrics": "g2p_wer,per",
            },
            {"greater_is_better": False, "lr_scheduler_kwargs": {"mode": "min"}, "predict_with_generate": True},
        ),
        ({"streaming": True, "max_steps": 5, "tokens_per_batch": 9}, {"ignore_data_skip": True}),
        ({"tokens_per_update": 2048}, {"tokens_per_batch": 2048, "gradient_accumulation_steps": 1}),
        ({"streaming": True, "max_steps": 5, "tokens_per_update": 9}, {"tokens_per_batch": 9}),
    ],
)
def test_what_is_left_out_is_filled_in_alike_by_the_command_and_in_python(
    given: dict[str, Any], filled_in: dict[str, Any], tmp_path: Path
) -> None:
    settings = {**FILES, "output_dir": str(tmp_path / "out"), **given}
    found = by_command(settings).as_dict()
    assert {name: found[name] for name in filled_in} == filled_in
    in_python = resolve_settings(*parts_in_python(settings))
    assert in_python.as_dict() == found
    assert resolve_settings(*in_python).as_dict() == found


def test_a_rate_that_was_set_after_the_arguments_were_made_is_kept(tmp_path: Path) -> None:
    model, data, training = parts_in_python({**FILES, "output_dir": "out", "model_name_or_path": "m"})
    training.learning_rate = 0.25
    assert resolve_settings(model, data, training).training.learning_rate == 0.25


def test_a_preset_that_the_paper_lacks_is_named() -> None:
    with pytest.raises(ValueError, match=r"`preset` must be one of base, big, .*, but is 'huge' instead"):
        ModelArguments(preset="huge")


def test_what_is_switched_off_contradicts_nothing(output: list[str]) -> None:
    off = ["--paper_schedule", "false", "--learning_rate", "1", "--eval_strategy", "no"]
    assert parse_arguments([*PAIRS, *output, *off])[2].learning_rate == 1


def training_arguments(**fields: Any) -> Seq2SeqTransformerTrainingArguments:
    return Seq2SeqTransformerTrainingArguments(output_dir="out", **fields)


@pytest.mark.parametrize(("wanted", "steps"), [(2000, 1), (2900, 1), (3100, 2), (25_000, 12)])
def test_an_update_is_made_of_the_batches_that_come_nearest_to_its_tokens(wanted: int, steps: int) -> None:
    args = training_arguments(tokens_per_batch=2000, tokens_per_update=wanted)
    assert args.gradient_accumulation_steps == steps


@pytest.mark.parametrize(("world_size", "tokens_per_batch"), [(1, 2048), (2, 1024), (3, 682)])
def test_an_update_of_tokens_alone_is_one_batch_of_each_process(
    world_size: int, tokens_per_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seq2SeqTransformerTrainingArguments, "world_size", world_size)
    args = training_arguments(tokens_per_update=2048)
    assert (args.tokens_per_batch, args.gradient_accumulation_steps) == (tokens_per_batch, 1)


def test_early_stopping_keeps_the_best_model_by_bleu() -> None:
    args = training_arguments(early_stopping_patience=3)
    assert args.load_best_model_at_end
    assert args.metric_for_best_model == "bleu"
    assert args.greater_is_better
    assert args.predict_with_generate


def test_lower_is_better_for_ter_and_scores_need_generation() -> None:
    args = training_arguments(metric_for_best_model="eval_ter")
    assert args.greater_is_better is False
    assert args.predict_with_generate
    assert not training_arguments(metric_for_best_model="loss").predict_with_generate


def test_a_function_of_the_users_own_says_which_way_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "both_ways.py").write_text(
        "def up(*texts): ...\ndef down(*texts): ...\ndown.higher_is_better = False\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, is_higher in {"up": True, "down": False}.items():
        args = training_arguments(metrics="bleu,both_ways:up,both_ways:down", metric_for_best_model=name)
        assert args.greater_is_better is is_higher
        assert args.predict_with_generate


def test_as_many_checkpoints_are_kept_as_are_averaged() -> None:
    assert training_arguments(average_checkpoints=7).save_total_limit == 8
    assert training_arguments(average_checkpoints=2).save_total_limit == 5
    assert training_arguments(average_checkpoints=2, save_total_limit=None).save_total_limit is None


def test_uneven_batches_are_refused_where_several_processes_would_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training_arguments(accelerator_config={"even_batches": False})
    monkeypatch.setattr(Seq2SeqTransformerTrainingArguments, "world_size", 2)
    message = r"`even_batches` in `accelerator_config` must be true with several processes \(2\), .* but is false"
    with pytest.raises(ValueError, match=message):
        training_arguments(accelerator_config={"even_batches": False})
