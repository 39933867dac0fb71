"""A whole training run: read the pairs, get a tokenizer and a model, train, save, evaluate."""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase, set_seed
from transformers.trainer_utils import get_last_checkpoint

from hf_seq2seq.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.data import Seq2SeqCollator, load_parallel, tokenize_pairs
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.tokenization import train_tokenizer

from .arguments import (
    CHANGEABLE_FIELDS,
    DEFAULT_VOCAB_SIZE,
    DataArguments,
    ModelArguments,
    Seq2SeqTransformerTrainingArguments,
)
from .metrics import decode, generation_metrics, score
from .trainer import Seq2SeqTransformerTrainer


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)

SETTINGS_FILE = "training_settings.json"
RESULTS_FILE = "training_results.json"  # written last: a run that has it is finished

# Translating more validation pairs than these at the end of a run would take long; `hf-seq2seq evaluate` scores all.
MAX_SCORED_PAIRS = 1000

# What a run may be continued with in another way: where it is, what it logs, where it is published, what machine it
# runs on and how many checkpoints are kept. No weight depends on these.
SETTINGS_WITHOUT_INFLUENCE = """
output_dir resume_from_checkpoint do_train do_eval do_predict local_rank
logging_strategy logging_steps logging_first_step logging_nan_inf_filter log_on_each_node log_level
log_level_replica disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id
trackio_static_space_id include_num_input_tokens_seen skip_memory_metrics
push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
use_cpu dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
dataloader_multiprocessing_context ddp_backend ddp_timeout ddp_bucket_cap_mb
save_total_limit save_on_each_node enable_jit_checkpoint eval_accumulation_steps per_device_eval_batch_size
""".split()  # noqa: SIM905


def run_training(
    model_args: ModelArguments, data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments
) -> dict[str, Any]:
    """Trains a model and saves it with its tokenizer in `output_dir`, or goes on with the run that is there.

    Returns:
        The results, which are also in training_results.json: `num_steps` and the latest `train_loss`; with validation
        pairs `validation_loss`, what `score` returns, and `num_scored_pairs` of `num_validation_pairs`. If the run was
        finished before, they are read from there and nothing is done.

    Raises:
        OSError: If a file or folder is missing, **or**
        ValueError: If settings contradict each other, data or files are unfit, or `output_dir` holds something else.
        huggingface_hub.errors.StrictDataclassError: If the config's fields contradict each other.
    """
    output_dir = Path(str(training_args.output_dir))
    with training_args.main_process_first(desc="opening the output folder"):
        _open_output_dir(output_dir, _settings(model_args, data_args, training_args))
    if (output_dir / RESULTS_FILE).exists():
        logger.info("The run in %s is finished.", output_dir)
        results: dict[str, Any] = json.loads((output_dir / RESULTS_FILE).read_text(encoding="utf-8"))
        return results
    checkpoint = training_args.resume_from_checkpoint or _last_checkpoint(output_dir)
    if str(checkpoint).lower() == "true":  # as it is often given: the last one, which is what happens anyway
        checkpoint = _last_checkpoint(output_dir)

    with training_args.main_process_first(desc="preparing the data"):
        pairs = {"train": _load_pairs(data_args, "train")}
        if data_args.has_validation:
            pairs["validation"] = _load_pairs(data_args, "validation")
        tokenizer = _get_tokenizer(model_args, data_args, training_args, pairs["train"], checkpoint)
        datasets = {
            part: tokenize_pairs(
                part_pairs,
                tokenizer,
                max_length=data_args.max_length,
                # A validation pair that is left out would make the score that of other pairs.
                over_long=data_args.over_long if part == "train" else "truncate",
            )
            for part, part_pairs in pairs.items()
        }
    model = _get_model(model_args, data_args, training_args, tokenizer)

    trainer = Seq2SeqTransformerTrainer(
        model=model,
        args=training_args,
        data_collator=Seq2SeqCollator(tokenizer, model=model),
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("validation"),
        processing_class=tokenizer,
        # Without generation there is nothing to score, and the logits of all pairs would be kept for it.
        compute_metrics=generation_metrics(tokenizer) if training_args.predict_with_generate else None,
    )
    logger.info(
        "%s a model of %.1f M parameters and %s tokens on %s pairs.",
        f"Going on from {checkpoint} with" if checkpoint else "Training",
        *(model.num_parameters() / 1e6, f"{len(tokenizer):,}", f"{len(datasets['train']):,}"),
    )
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    results = {"num_steps": trained.global_step, "train_loss": logged[-1] if logged else trained.training_loss}
    if "validation" in datasets:
        results |= _evaluate(trainer, datasets["validation"], pairs["validation"]["target"], tokenizer)
    if trainer.is_world_process_zero():
        (output_dir / RESULTS_FILE).write_text(_to_json(results), encoding="utf-8")
    return results


def _settings(
    model_args: ModelArguments, data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments
) -> dict[str, Any]:
    settings: dict[str, Any] = asdict(model_args) | asdict(data_args) | training_args.to_dict()
    return settings


def _to_json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, default=str) + "\n"


def _open_output_dir(output_dir: Path, settings: dict[str, Any]) -> None:
    """Checks that the folder is empty or holds a run with these settings, and writes the settings.

    A run that ended before its first checkpoint has nothing to lose, so its settings may be mended.
    """
    if output_dir.exists() and not output_dir.is_dir():
        raise NotADirectoryError(f"`output_dir` must be a folder, but {str(output_dir)!r} is a file. Name another.")
    path = output_dir / SETTINGS_FILE
    has_progress = (output_dir / RESULTS_FILE).exists() or _last_checkpoint(output_dir) is not None
    if path.exists() and has_progress:
        before = json.loads(path.read_text(encoding="utf-8"))
        now = json.loads(_to_json(settings))
        for name, value in before.items():
            if name in now and name not in SETTINGS_WITHOUT_INFLUENCE and now[name] != value:
                raise ValueError(
                    f"`{name}` must be {value!r} as in the run that {str(output_dir)!r} holds, but is {now[name]!r} "
                    "instead. Give the same settings to go on with that run, or another `output_dir` to begin a new "
                    "one, which `model_name_or_path` can start from this one's model."
                )
    elif not path.exists() and output_dir.exists() and any(output_dir.iterdir()):
        raise ValueError(
            "`output_dir` must be a new or empty folder, or hold a run of `hf-seq2seq train`, but "
            f"{str(output_dir)!r} holds {next(output_dir.iterdir()).name!r} and no {SETTINGS_FILE}. Name another."
        )
    output_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(_to_json(settings), encoding="utf-8")


def _last_checkpoint(output_dir: Path) -> str | None:
    return get_last_checkpoint(str(output_dir)) if output_dir.exists() else None


def _load_pairs(data_args: DataArguments, part: str) -> "Dataset":
    columns = {"source_column": data_args.source_column, "target_column": data_args.target_column}
    file, source = getattr(data_args, f"{part}_file"), getattr(data_args, f"{part}_source")
    if source is not None:
        return load_parallel(source, getattr(data_args, f"{part}_target"))
    if file is not None:
        return load_parallel(file=file, **columns)
    return load_parallel(
        dataset_name=data_args.dataset_name,
        dataset_config_name=data_args.dataset_config_name,
        split=getattr(data_args, f"{part}_split") or part,
        **columns,
    )


def _get_tokenizer(
    model_args: ModelArguments,
    data_args: DataArguments,
    training_args: Seq2SeqTransformerTrainingArguments,
    pairs: "Dataset",
    checkpoint: str | None,
) -> PreTrainedTokenizerBase:
    """Loads or trains the tokenizer and saves it, so that it is there however the run ends."""
    output_dir = str(training_args.output_dir)
    path = checkpoint or model_args.tokenizer or model_args.model_name_or_path
    if path is None and training_args.local_process_index > 0:
        path = output_dir  # where the first process has just saved it
    if path is not None:
        tokenizer = load_tokenizer(path)
    else:
        tokenizer = train_tokenizer(
            _texts(pairs),
            vocab_size=model_args.vocab_size or DEFAULT_VOCAB_SIZE,
            kind=model_args.tokenizer_kind or "bpe",
        )
    if model_args.model_name_or_path is None:
        tokenizer.model_max_length = data_args.max_length
    for side in ("text", "text_target"):
        if tokenizer(**{side: "a"})["input_ids"][-1:] != [tokenizer.eos_token_id]:
            raise ValueError(
                f"The tokenizer of `{path}` must end each text with its `eos_token` ({tokenizer.eos_token!r}), but "
                "does not, so that a model could not learn where to stop. Use another, or let one be trained."
            )
    if training_args.local_process_index == 0:
        tokenizer.save_pretrained(output_dir)
    return tokenizer


def _texts(pairs: "Dataset") -> Iterator[str]:
    for batch in pairs.iter(batch_size=1000):
        yield from batch["source"]
        yield from batch["target"]


def _get_model(
    model_args: ModelArguments,
    data_args: DataArguments,
    training_args: Seq2SeqTransformerTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
) -> Seq2SeqTransformerForConditionalGeneration:
    if model_args.model_name_or_path is not None:
        overrides = {name: getattr(model_args, name) for name in CHANGEABLE_FIELDS}
        overrides = {name: value for name, value in overrides.items() if value is not None}
        model = load_model(model_args.model_name_or_path, **overrides)
    else:
        config = _new_config(model_args, tokenizer)
        set_seed(training_args.seed)
        model = Seq2SeqTransformerForConditionalGeneration(config)
    config = model.config
    config.use_cache = training_args.use_cache
    num_tokens = _num_tokens(tokenizer)
    for name in ("vocab_size", "decoder_vocab_size"):
        if num_tokens > getattr(config, name):
            raise ValueError(
                f"The tokenizer must have at most as many tokens as the model's `{name}` ({getattr(config, name)}), "
                f"but has {num_tokens} instead. Use the tokenizer that the model was trained with."
            )
    longest_output = max(model.generation_config.max_length, data_args.max_length + 1)  # 1 for the start token
    if config.position_embedding_type == "learned":
        if data_args.max_length > config.max_position_embeddings:
            raise ValueError(
                f"`max_length` must be at most `max_position_embeddings` ({config.max_position_embeddings}) with "
                f"learned positions, but is {data_args.max_length} instead. Lower it, or use sinusoidal positions."
            )
        longest_output = min(longest_output, config.max_position_embeddings)
    model.generation_config.max_length = longest_output
    return model


def _new_config(model_args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> Seq2SeqTransformerConfig:
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    values = model_args.config_values()
    for name, token_id in special.items():
        if values.get(name, token_id) != token_id:
            raise ValueError(
                f"`{name}` must be the tokenizer's ({token_id}), but is {values[name]} instead. Leave it out."
            )
    # A tokenizer without a start token, such as Marian's, leaves its padding to start from.
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    fields = {"vocab_size": _num_tokens(tokenizer), "decoder_start_token_id": start} | special | values
    return Seq2SeqTransformerConfig.from_paper(model_args.preset or "base", **fields)


def _num_tokens(tokenizer: PreTrainedTokenizerBase) -> int:
    return max(tokenizer.get_vocab().values()) + 1  # ids may have gaps


def _evaluate(
    trainer: Seq2SeqTransformerTrainer,
    dataset: "Dataset",
    references: list[str],
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """Scores translations of the first pairs against their texts, which decoded labels may differ from."""
    num_scored = min(len(dataset), MAX_SCORED_PAIRS)
    scored = dataset.select(range(num_scored))
    # Section 6.1 of the paper, but with one limit for all: the longest source's length + 50, and the start token.
    limit = min(trainer.model.generation_config.max_length, max(map(len, scored["input_ids"])) + 51)
    trainer.args.predict_with_generate = True
    trainer.compute_metrics = None
    predicted = trainer.predict(scored, metric_key_prefix="validation", max_length=limit)
    # Several ranks fill their last batches up with the first pairs, which come last here.
    hypotheses = decode(tokenizer, predicted.predictions)[:num_scored]
    scores = score(hypotheses, references[:num_scored])
    return {
        "validation_loss": (predicted.metrics or {})["validation_loss"],
        **scores,
        "num_scored_pairs": num_scored,
        "num_validation_pairs": len(dataset),
    }
