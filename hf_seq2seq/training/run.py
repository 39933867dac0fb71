"""A whole training run: read the pairs, get a tokenizer and a model, train, save, evaluate."""

import logging
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase, TrainerState, set_seed

from hf_seq2seq.atomic_writing import writing
from hf_seq2seq.data import Seq2SeqCollator, filter_pairs, load_parallel, mix_corpora, tokenize_pairs
from hf_seq2seq.evaluation import decode, generation_metrics, score
from hf_seq2seq.hub.card import FACTS_FILE
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.token_lookup import Side, check_encodes_targets, vocabulary
from hf_seq2seq.tokenization import train_tokenizer

from .arguments import (
    CHANGEABLE_FIELDS,
    DEFAULT_VOCAB_SIZE,
    DataArguments,
    ModelArguments,
    Seq2SeqTransformerTrainingArguments,
)
from .averaging import average_weights
from .card_facts import (
    describe_command,
    describe_data,
    describe_hardware,
    describe_hyperparameters,
    describe_progress,
    describe_scores,
)
from .checkpoints import find_fault, holds_weights_alone, is_complete, list_checkpoints, was_saved_at_a_signal
from .dry_run import describe_plan
from .interruption import StopOnSignal
from .run_folder import RESULTS_FILE, RunFolder
from .trainer import Seq2SeqTransformerTrainer


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)

# Translating more validation pairs than these at the end of a run would take long; `hf-seq2seq evaluate` scores all.
MAX_SCORED_PAIRS = 1000
# A tokenizer learns no more from more pairs of a stream.
MAX_TOKENIZER_PAIRS = 1_000_000


def run_training(
    model_args: ModelArguments, data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments
) -> dict[str, Any]:
    """Trains a model and saves it with its tokenizer in `output_dir`, or goes on with the run that is there.

    Killed at any moment and called again with the same arguments, it ends with the same weights, bit for bit, as a
    run without a break: on a CPU, with the same number of processes and threads, and without streaming, BPE-dropout,
    `group_by_length` or persistent workers of the data loader.

    Returns:
        The results, which are also in training_results.json: `num_steps` and the latest `train_loss` (None if nothing
        was logged before a kill at the end); with validation
        pairs `validation_loss`, what `score` returns, and `num_scored_pairs` of `num_validation_pairs`. If the run was
        finished before, they are read from there and nothing is done. With `dry_run` nothing is written, and what
        `describe_plan` returns comes back.

    Raises:
        OSError: If a file or folder is missing or cannot be written, **or**
        ValueError: If settings contradict each other, data or files are unfit, or `output_dir` holds something else.
        FloatingPointError: If the loss is no finite number.
        KeyboardInterrupt: After a checkpoint, if the process was told to stop by Ctrl-C or a termination signal.
        huggingface_hub.errors.StrictDataclassError: If the config's fields contradict each other.
    """
    folder = RunFolder(Path(str(training_args.output_dir)))
    try:
        return _run(folder, model_args, data_args, training_args)
    finally:
        folder.close()


def _run(
    folder: RunFolder,
    model_args: ModelArguments,
    data_args: DataArguments,
    training_args: Seq2SeqTransformerTrainingArguments,
) -> dict[str, Any]:
    settings = asdict(model_args) | asdict(data_args) | training_args.to_dict()
    settings["world_size"] = training_args.world_size
    is_writer = training_args.process_index == 0 and not training_args.dry_run
    named = None if folder.results() is not None else _named_checkpoint(training_args)
    with training_args.main_process_first(desc="opening the output folder"):
        folder.check(settings)
        if is_writer:
            folder.open(settings, keep=named)
    finished = None if training_args.dry_run else folder.results()
    if finished is not None and (data_args.streaming or folder.has_same_files(settings)):
        return _already(finished, folder)
    checkpoint = named or folder.checkpoint()
    if checkpoint is not None and holds_weights_alone(checkpoint):
        logger.warning(
            "%s holds weights alone: the optimizer begins anew, so that the run ends with other weights than without "
            "a break. Leave `save_only_model` out to go on exactly.",
            checkpoint,
        )

    with training_args.main_process_first(desc="preparing the data"):
        pairs, tokenizer, datasets = _prepare_data(model_args, data_args, training_args, checkpoint)
        if is_writer and not data_args.streaming:
            folder.check_data(settings, datasets)
    if finished is not None:
        return _already(finished, folder)
    model = _get_model(model_args, data_args, training_args, tokenizer)
    if training_args.dry_run:
        return describe_plan(model, datasets["train"], training_args)

    trainer = _make_trainer(model, tokenizer, datasets, data_args, training_args)
    if is_writer:
        _begin_card(trainer, model_args, data_args)
    logger.info(
        "%s a model of %.1f M parameters and %s tokens on %s.",
        f"Going on from {checkpoint} with" if checkpoint else "Training",
        *(model.num_parameters() / 1e6, f"{len(tokenizer):,}"),
        "a stream of pairs" if data_args.streaming else f"{len(datasets['train']):,} pairs",
    )
    results = _train(trainer, checkpoint, folder)
    if training_args.average_checkpoints:
        _average(trainer, folder)
    with writing(folder.path):
        trainer.save_model(_internal_call=True)
    if "validation" in datasets:
        results |= _evaluate(trainer, datasets["validation"], pairs["validation"]["target"], tokenizer)
    if is_writer:
        seconds = None if checkpoint is not None else trainer.train_seconds
        trainer.card = describe_progress(trainer.card, results["num_steps"], trainer.state.epoch, seconds)
        trainer.card.scores = describe_scores(results)
        folder.write_text(FACTS_FILE, trainer.card.to_yaml())
        folder.write(RESULTS_FILE, results)
    if training_args.push_to_hub:
        trainer.publish_saved()
    return results


def _begin_card(trainer: Seq2SeqTransformerTrainer, model_args: ModelArguments, data_args: DataArguments) -> None:
    """Gives the trainer what is known of the model before training, for what it publishes."""
    card = describe_data(data_args, trainer.train_dataset)
    card.command = describe_command(model_args, data_args, trainer.args)
    card.hyperparameters = describe_hyperparameters(trainer.args)
    card.hardware = describe_hardware(trainer.args)
    card.versions = {name: version(name) for name in ("hf-seq2seq", "torch", "transformers")}
    base = model_args.model_name_or_path
    card.base_model = base if base is not None and not Path(base).exists() else None
    trainer.card = card


def _already(results: dict[str, Any], folder: RunFolder) -> dict[str, Any]:
    logger.info("The run in %s is finished.", folder.path)
    return results


def _named_checkpoint(training_args: Seq2SeqTransformerTrainingArguments) -> str | None:
    """Returns the checkpoint that is to be gone on from, if one is named.

    Raises:
        ValueError: If it is not whole.
    """
    named = training_args.resume_from_checkpoint
    if named is None or str(named).lower() == "true":  # how the last one is often asked for, which is taken anyway
        return None
    fault = find_fault(named) if Path(named).is_dir() else "there is no such folder"
    if fault is not None:
        raise ValueError(
            f"`resume_from_checkpoint` must be the folder of a whole checkpoint, but is {str(named)!r} ({fault}). "
            "Name another, or leave it out: a run goes on from its last checkpoint by itself."
        )
    return str(named)


def _prepare_data(
    model_args: ModelArguments,
    data_args: DataArguments,
    training_args: Seq2SeqTransformerTrainingArguments,
    checkpoint: str | None,
) -> tuple[dict[str, Any], PreTrainedTokenizerBase, dict[str, Any]]:
    """Returns the pairs of texts of each part, the tokenizer, and the tokenized pairs of each part."""
    pairs: dict[str, Any] = {"train": _load_training_pairs(data_args, training_args.seed)}
    if data_args.has_validation:
        pairs["validation"] = _load_validation_pairs(data_args)
    tokenizer = _get_tokenizer(model_args, data_args, training_args, pairs["train"], checkpoint)
    datasets = {
        part: tokenize_pairs(
            part_pairs,
            tokenizer,
            max_length=data_args.max_length,
            # A validation pair that is left out would make the score that of other pairs.
            over_long=data_args.over_long if part == "train" else "truncate",
            num_proc=data_args.preprocessing_num_workers,
        )
        for part, part_pairs in pairs.items()
    }
    return pairs, tokenizer, datasets


def _make_trainer(
    model: Seq2SeqTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    datasets: dict[str, Any],
    data_args: DataArguments,
    training_args: Seq2SeqTransformerTrainingArguments,
) -> Seq2SeqTransformerTrainer:
    if data_args.streaming:
        training_args.ignore_data_skip = True  # to read all that was read before would take as long
    trainer = Seq2SeqTransformerTrainer(
        model=model,
        args=training_args,
        data_collator=Seq2SeqCollator(tokenizer, model=model, bpe_dropout=data_args.bpe_dropout),
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("validation"),
        processing_class=tokenizer,
        # Without generation there is nothing to score, and the logits of all pairs would be kept for it.
        compute_metrics=generation_metrics(tokenizer) if training_args.predict_with_generate else None,
    )
    if training_args.average_checkpoints and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        raise ValueError(
            f"`average_checkpoints` must be 0 where the model is sharded, but is {training_args.average_checkpoints} "
            "instead. Average afterwards, with `hf-seq2seq average`."
        )
    if training_args.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(training_args.early_stopping_patience))
    return trainer


def _train(trainer: Seq2SeqTransformerTrainer, checkpoint: str | None, folder: RunFolder) -> dict[str, Any]:
    """Trains to the end; returns the number of updates and the loss logged last, if one was.

    Raises:
        KeyboardInterrupt: If a signal ended it before, with a message that tells how to go on.
    """
    if checkpoint is not None and _is_at_its_end(checkpoint, trainer.args):
        # Killed between its last update and its results: to train would add an update.
        trainer.load_checkpoint(checkpoint)
    else:
        with StopOnSignal() as stop:
            trainer.add_callback(stop)
            trainer.train(resume_from_checkpoint=checkpoint)
        if stop.stopped and trainer.state.global_step < trainer.state.max_steps:
            last = folder.checkpoint()
            place = "from the start" if last is None else f"from {last}"
            raise KeyboardInterrupt(
                f"Stopped after update {trainer.state.global_step:,} of {trainer.state.max_steps:,}. The same command "
                f"goes on {place}."
            )
    history = trainer.state.log_history
    # The mean of all updates, which is logged at the end, stands in for what was never logged.
    logged = [entry["loss"] for entry in history if "loss" in entry] or [
        entry["train_loss"] for entry in history if "train_loss" in entry
    ]
    return {"num_steps": trainer.state.global_step, "train_loss": logged[-1] if logged else None}


def _is_at_its_end(checkpoint: str, args: Seq2SeqTransformerTrainingArguments) -> bool:
    """Tells whether training had ended, by its number of updates or by early stopping, when this was saved."""
    state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
    stopping = (state.stateful_callbacks or {}).get("EarlyStoppingCallback", {})
    waited = stopping.get("attributes", {}).get("early_stopping_patience_counter", 0)
    patience = args.early_stopping_patience
    return state.global_step >= state.max_steps or (patience is not None and waited >= patience)


def _average(trainer: Seq2SeqTransformerTrainer, folder: RunFolder) -> None:
    """Gives the model the mean of the last checkpoints' weights."""
    trainer.accelerator.wait_for_everyone()
    number = trainer.args.average_checkpoints
    regular = [path for path in list_checkpoints(folder.path) if is_complete(path) and not was_saved_at_a_signal(path)]
    checkpoints = regular[-number:]
    if len(checkpoints) < number:
        logger.warning(
            "`average_checkpoints` is %d, but the run has only %d: their average is the final model. More "
            "frequent `save_steps` would leave more.",
            *(number, len(checkpoints)),
        )
    if checkpoints:
        trainer.model.load_state_dict(average_weights(checkpoints).state_dict())


def _load_training_pairs(data_args: DataArguments, seed: int) -> Any:
    """Loads, filters and mixes the training corpora."""
    columns = _columns(data_args)
    options: dict[str, Any] = {"streaming": data_args.streaming}
    corpora = [
        load_parallel(source, target, **options)
        for source, target in zip(data_args.train_source or (), data_args.train_target or (), strict=True)
    ]
    corpora += [load_parallel(file=file, **columns, **options) for file in data_args.train_file or ()]
    if data_args.dataset_name is not None:
        split = data_args.train_split or "train"
        corpora.append(_load_dataset(data_args, split, **columns, **options))
    if data_args.corpus_weights is None:
        return filter_pairs(mix_corpora(corpora), **data_args.filters)
    # Weights repeat pairs of small corpora, which are no duplicates to drop.
    filtered = [filter_pairs(corpus, **data_args.filters) for corpus in corpora]
    return mix_corpora(filtered, data_args.corpus_weights, seed=seed)


def _load_validation_pairs(data_args: DataArguments) -> Any:
    columns = _columns(data_args)
    if data_args.validation_source is not None:
        return load_parallel(data_args.validation_source, data_args.validation_target)
    if data_args.validation_file is not None:
        return load_parallel(file=data_args.validation_file, **columns)
    return _load_dataset(data_args, data_args.validation_split or "validation", **columns)


def _columns(data_args: DataArguments) -> dict[str, Any]:
    return {"source_column": data_args.source_column, "target_column": data_args.target_column}


def _load_dataset(data_args: DataArguments, split: str, **options: Any) -> Any:
    name, config_name = data_args.dataset_name, data_args.dataset_config_name
    return load_parallel(dataset_name=name, dataset_config_name=config_name, split=split, **options)


def _get_tokenizer(
    model_args: ModelArguments,
    data_args: DataArguments,
    training_args: Seq2SeqTransformerTrainingArguments,
    pairs: Any,
    checkpoint: str | None,
) -> PreTrainedTokenizerBase:
    """Loads or trains the tokenizer, and saves it at the start of a run, so that it is there however that ends."""
    output_dir = str(training_args.output_dir)
    is_saved = checkpoint is None and not training_args.dry_run
    path = model_args.tokenizer or model_args.model_name_or_path
    if checkpoint is not None:  # one in shards may have none
        path = checkpoint if (Path(checkpoint) / "tokenizer_config.json").exists() else output_dir
    if path is None and is_saved and training_args.local_process_index > 0:
        path = output_dir  # where the first process has saved it
    if path is not None:
        tokenizer = load_tokenizer(path)
    else:
        tokenizer = train_tokenizer(
            _texts(pairs.take(MAX_TOKENIZER_PAIRS) if data_args.streaming else pairs),
            vocab_size=model_args.vocab_size or DEFAULT_VOCAB_SIZE,
            kind=model_args.tokenizer_kind or "bpe",
        )
    if model_args.model_name_or_path is None:
        tokenizer.model_max_length = data_args.max_length
    _check_tokenizer(tokenizer, str(path))
    if is_saved and training_args.local_process_index == 0:
        tokenizer.save_pretrained(output_dir)
    return tokenizer


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    """Raises ValueError if targets that it encodes could not be learned from."""
    check_encodes_targets(tokenizer)
    for side in ("text", "text_target"):
        if tokenizer(**{side: "a"})["input_ids"][-1:] != [tokenizer.eos_token_id]:
            raise ValueError(
                f"The tokenizer of `{path}` must end each text with its `eos_token` ({tokenizer.eos_token!r}), but "
                "does not, so that a model could not learn where to stop. Use another, or let one be trained."
            )


def _texts(pairs: Any) -> Iterator[str]:
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
        # In a half type, small updates would be rounded away, and Adam's averages would underflow.
        model = load_model(model_args.model_name_or_path, dtype="float32", **overrides)
    else:
        config = _new_config(model_args, tokenizer)
        set_seed(training_args.seed)
        model = Seq2SeqTransformerForConditionalGeneration(config)
    config = model.config
    config.use_cache = training_args.use_cache
    sides: dict[str, Side] = {"vocab_size": "source", "decoder_vocab_size": "target"}
    for name, side in sides.items():
        num_tokens = _num_tokens(tokenizer, side)
        if num_tokens > getattr(config, name):
            raise ValueError(
                f"The tokenizer must have at most as many tokens as the model's `{name}` ({getattr(config, name)}), "
                f"but has {num_tokens} instead. Use the tokenizer that the model was trained with."
            )
    # 1 for the start token; an imported model may have no limit.
    longest_output = max(model.generation_config.max_length or 0, data_args.max_length + 1)
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
    fields = {"vocab_size": _num_tokens(tokenizer, "source"), "decoder_start_token_id": start} | special
    if vocabulary(tokenizer, "source") != vocabulary(tokenizer, "target"):
        num_targets = _num_tokens(tokenizer, "target")
        fields |= {"decoder_vocab_size": num_targets, "share_encoder_decoder_embeddings": False}
    fields |= values
    return Seq2SeqTransformerConfig.from_paper(model_args.preset or "base", **fields)


def _num_tokens(tokenizer: PreTrainedTokenizerBase, side: Side) -> int:
    return max(vocabulary(tokenizer, side).values()) + 1  # ids may have gaps


def _evaluate(
    trainer: Seq2SeqTransformerTrainer,
    dataset: "Dataset",
    references: list[str],
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """Scores translations of the first pairs against their texts, which decoded labels may differ from."""
    num_scored = min(len(dataset), MAX_SCORED_PAIRS)
    scored = dataset.select(range(num_scored))
    trainer.args.predict_with_generate = True
    trainer.args.prediction_loss_only = trainer.args.batch_eval_metrics = False
    trainer.args.eval_do_concat_batches = True
    trainer.compute_metrics = None
    predicted = trainer.predict(scored, metric_key_prefix="validation")
    hypotheses = decode(tokenizer, predicted.predictions)
    scores = score(hypotheses, references[:num_scored])
    return {
        "validation_loss": (predicted.metrics or {})["validation_loss"],
        **scores,
        "num_scored_pairs": num_scored,
        "num_validation_pairs": len(dataset),
    }
