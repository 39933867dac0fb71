"""The settings of a run as a whole: what its three parts decide together, and what may change when it goes on.

`parse_arguments` and `run_training` both call `resolve_settings`, so that the command and Python refuse and fill in
the same. Settings that are resolved once more stay as they are.
"""

from dataclasses import asdict
from typing import Any, NamedTuple

from transformers.trainer_utils import IntervalStrategy

from hf_seq2seq.evaluation import METRICS, chosen_metrics
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.tokenization import check_extra_tokens

from .arguments import (
    FILE_FIELDS,
    TOKENIZER_FIELDS,
    DataArguments,
    ModelArguments,
    Seq2SeqTransformerTrainingArguments,
    default_tokens_per_batch,
)
from .schedule import FINE_TUNING_LEARNING_RATE, SCRATCH_LEARNING_RATE


# Settings that may change when a run goes on, since no weight depends on them: where the run is, what it logs, where
# it is published, what machine it runs on and how many checkpoints are kept.
SETTINGS_WITHOUT_INFLUENCE = """
output_dir resume_from_checkpoint do_train do_eval do_predict local_rank dry_run preprocessing_num_workers
logging_strategy logging_steps logging_first_step logging_nan_inf_filter log_on_each_node log_level
log_level_replica disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id
trackio_static_space_id include_num_input_tokens_seen skip_memory_metrics metrics
push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
use_cpu dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor dataloader_multiprocessing_context
ddp_backend ddp_timeout ddp_bucket_cap_mb
save_total_limit save_on_each_node enable_jit_checkpoint eval_accumulation_steps per_device_eval_batch_size
""".split()  # noqa: SIM905


class Settings(NamedTuple):
    """The settings of a run, of which nothing is left open."""

    model: ModelArguments
    data: DataArguments
    training: Seq2SeqTransformerTrainingArguments

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the files of the run that are written once."""
        return self.training.process_index == 0 and not self.training.dry_run

    @property
    def extra_tokens(self) -> list[str]:
        """The tokens that are never cut: those that were asked for, then the tags of corpora."""
        tags = [tag for tag in self.data.corpus_tags or () if tag]
        return list(dict.fromkeys([*(self.model.extra_token or ()), *tags]))

    def as_dict(self) -> dict[str, Any]:
        """Returns all settings by name, and the number of processes."""
        parts = (asdict(self.model), asdict(self.data), self.training.to_dict())
        return {**parts[0], **parts[1], **parts[2], "world_size": self.training.world_size}


def resolve_settings(
    model_args: ModelArguments, data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments
) -> Settings:
    """Returns the settings of a run, filled in where one part decides what another did not give.

    - With `model_name_or_path`, the learning rate is that of fine-tuning.
    - With validation pairs, they are evaluated after every `eval_steps` updates.
    - With `streaming`, the trainer skips no batches in a run that goes on: the stream itself goes on where it was.

    Args:
        model_args: What is trained.
        data_args: The pairs.
        training_args: How it is trained.

    Raises:
        ValueError: If settings contradict each other.
    """
    if model_args.model_name_or_path is None:
        check_positions(model_args.first_config(), data_args.max_length)
    _check_tokenizers(model_args, data_args)
    check_extra_tokens(model_args.extra_token or (), "extra_token")
    check_extra_tokens(filter(None, data_args.corpus_tags or ()), "corpus_tags")
    _check_contradictions(data_args, training_args)
    derived: dict[str, Any] = {}
    if model_args.model_name_or_path is not None and _is_open(training_args, "learning_rate", SCRATCH_LEARNING_RATE):
        derived["learning_rate"] = FINE_TUNING_LEARNING_RATE
    if data_args.has_validation and _is_open(training_args, "eval_strategy", "no"):
        derived["eval_strategy"] = "steps"
    if data_args.streaming:
        derived["ignore_data_skip"] = True
    return Settings(model_args, data_args, training_args.with_values(**derived))


def _is_open(training_args: Seq2SeqTransformerTrainingArguments, name: str, default: Any) -> bool:
    return name not in training_args.given and getattr(training_args, name) == default


def _check_contradictions(data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments) -> None:
    batch_fields = ("per_device_train_batch_size", "train_sampling_strategy", "auto_find_batch_size")
    replaced_by = {
        "paper_schedule": ("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs"),
        "tokens_per_update": ("gradient_accumulation_steps", *batch_fields),
        "tokens_per_batch": batch_fields,
    }
    for name, others in replaced_by.items():
        for other in others:
            if name in training_args.given and other in training_args.given:
                raise ValueError(f"`{other}` must not be given together with `{name}`, which replaces it.")
    if data_args.streaming:
        _check_stream(training_args)
    metric = (training_args.metric_for_best_model or "loss").removeprefix("eval_")
    metrics = chosen_metrics(training_args.metrics)
    if metric not in ("loss", *metrics):
        among = " (those of `metrics`)" if training_args.metrics is not None or metric in METRICS else ""
        raise ValueError(
            f"`metric_for_best_model` must be one of loss, {', '.join(metrics)}{among}, but is {metric!r} instead."
        )
    if training_args.batch_eval_metrics:
        raise ValueError("`batch_eval_metrics` must be False: scores are those of all validation pairs together.")
    if data_args.has_validation:
        return
    if training_args.load_best_model_at_end:
        raise ValueError(
            "`load_best_model_at_end` and `early_stopping_patience` must be given together with validation pairs: "
            "`validation_source` and `validation_target`, or `validation_file`."
        )
    if training_args.eval_strategy != "no":
        raise ValueError(
            "`eval_strategy` must be no without validation pairs, but is "
            f"{IntervalStrategy(training_args.eval_strategy).value} instead. Give `validation_source` and "
            "`validation_target`, or `validation_file`."
        )


def check_positions(config: Seq2SeqTransformerConfig, max_length: int) -> None:
    """Checks that a model has a position for each token of the longest side.

    Raises:
        ValueError: If it has too few.
    """
    num_positions = config.max_position_embeddings
    if config.position_embedding_type == "learned" and max_length > num_positions:
        raise ValueError(
            f"`max_length` must be at most `max_position_embeddings` ({num_positions}) with learned positions, but is "
            f"{max_length} instead. Lower it, or use sinusoidal positions."
        )


def _check_tokenizers(model_args: ModelArguments, data_args: DataArguments) -> None:
    named = {name: getattr(model_args, name) for name in TOKENIZER_FIELDS if getattr(model_args, name) is not None}
    if named and set(named) not in ({"tokenizer"}, set(TOKENIZER_FIELDS[1:])):
        raise ValueError(
            "`source_tokenizer` and `target_tokenizer` must be given together, or `tokenizer` alone for both sides, "
            f"but given are {', '.join(f'`{name}`' for name in named)} instead."
        )
    for name in ("vocab_size", "decoder_vocab_size", "tokenizer_kind"):
        if named and getattr(model_args, name) is not None:
            deciding, value = next(iter(named.items()))
            raise ValueError(
                f"`{name}` must not be given together with `{deciding}` ({value!r}), which decides it, but is "
                f"{getattr(model_args, name)!r} instead. Leave one of the two out."
            )
    for name in ("source_tokenizer", "decoder_vocab_size"):
        if getattr(model_args, name) is not None and model_args.config_values().get(
            "share_encoder_decoder_embeddings"
        ):
            raise ValueError(
                f"`share_encoder_decoder_embeddings` must not be true together with `{name}`, which gives each side a "
                "vocabulary of its own. Leave one of the two out."
            )
    if data_args.bpe_dropout and model_args.tokenizer_kind not in (None, "bpe"):
        raise ValueError(
            f"`bpe_dropout` must be left out with a `tokenizer_kind` other than bpe, but is {data_args.bpe_dropout} "
            f"with {model_args.tokenizer_kind} instead."
        )


def _check_stream(training_args: Seq2SeqTransformerTrainingArguments) -> None:
    for name, is_given in (
        ("max_steps", training_args.max_steps > 0),
        ("tokens_per_batch", training_args.tokens_per_batch is not None),
    ):
        if not is_given:
            raise ValueError(
                f"`{name}` must be given together with `streaming`: a stream does not tell how long an epoch is, "
                "and is batched by tokens."
            )
    if training_args.dry_run:
        raise ValueError("`dry_run` must be left out with `streaming`, since a stream does not tell its pairs.")


def changeable_settings(before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    """Returns the names of settings that may differ between two starts of a run.

    They are those without influence, and those that other things decide.

    Args:
        before: The settings of the first start, as `Settings.as_dict` returns them.
        now: Those of the next one.
    """
    derived = {"world_size"}
    if now.get("streaming"):
        derived.add("ignore_data_skip")
    else:
        derived |= {*FILE_FIELDS}  # the pairs themselves are compared
    tokens = now.get("tokens_per_update")
    if tokens is not None:
        derived.add("gradient_accumulation_steps")
        defaults = [default_tokens_per_batch(tokens, settings.get("world_size", 1)) for settings in (before, now)]
        if [before.get("tokens_per_batch"), now["tokens_per_batch"]] == defaults:
            derived.add("tokens_per_batch")
    influential = {"dataloader_num_workers"} if now.get("streaming") else set()  # each worker makes its own batches
    return {*SETTINGS_WITHOUT_INFLUENCE, *derived} - influential
