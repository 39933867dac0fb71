"""A whole training run: read the pairs, get a tokenizer and a model, train, save, evaluate."""

import logging
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import writing
from hf_seq2seq.data import Seq2SeqCollator
from hf_seq2seq.evaluation import generation_metrics
from hf_seq2seq.hub.card import FACTS_FILE

from .arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from .averaging import take_average
from .card_facts import describe_end, describe_run
from .checkpoints import checkpoint_to_go_on_from, ends_its_run, named_checkpoint
from .dry_run import describe_plan
from .final_evaluation import evaluate_final_model
from .interruption import train_unless_stopped
from .preparing_model import prepare_model
from .preparing_pairs import Parts, load_pairs, tokenize_parts
from .preparing_tokenizer import prepare_tokenizer
from .resumed_data import check_same_pairs, has_same_files
from .run_folder import RESULTS_FILE, FolderKeeper, RunFolder
from .settings import Settings, resolve_settings
from .trainer import Seq2SeqTransformerTrainer


logger = logging.getLogger(__name__)


def run_training(
    model_args: ModelArguments, data_args: DataArguments, training_args: Seq2SeqTransformerTrainingArguments
) -> dict[str, Any]:
    """Trains a model and saves it with its tokenizer in `output_dir`, or goes on with the run that is there.

    Killed at any moment and called again with the same arguments, it ends with the same weights, bit for bit, as a
    run without a break: on a CPU, with the same number of processes and threads, and without BPE-dropout,
    `group_by_length` or persistent workers of the data loader.

    Args:
        model_args: What is trained.
        data_args: The pairs.
        training_args: How it is trained. `resolve_settings` fills in what the three parts leave open.

    Returns:
        The results, which are also in training_results.json: `num_steps` and the latest `train_loss` (None if nothing
        was logged before a kill at the end); with validation pairs `validation_loss`, what `score` returns, and
        `num_scored_pairs` of `num_validation_pairs`. If the run was finished before, they are read from there and
        nothing is done. With `dry_run` nothing is written, and what `describe_plan` returns comes back.

    Raises:
        OSError: If a file or folder is missing or cannot be written.
        ValueError: If settings contradict each other, data or files are unfit, or `output_dir` holds something else.
        FloatingPointError: If the loss is no finite number.
        KeyboardInterrupt: After a checkpoint, if the process was told to stop by Ctrl-C or a termination signal.
        huggingface_hub.errors.StrictDataclassError: If the config's fields contradict each other.
    """
    return run_settings(resolve_settings(model_args, data_args, training_args))


def run_settings(settings: Settings) -> dict[str, Any]:
    """Does what `run_training` does, with settings that are resolved already, as `parse_arguments` returns them."""
    with RunFolder(Path(str(settings.training.output_dir))) as folder:
        return _run(settings, folder)


def _run(settings: Settings, folder: RunFolder) -> dict[str, Any]:
    args = settings.training
    finished = folder.results()
    named = None if finished is not None else named_checkpoint(args.resume_from_checkpoint)
    with args.main_process_first(desc="opening the output folder"):
        folder.check(settings.as_dict())
        if settings.is_writer:
            folder.open(settings.as_dict(), keep=named)
    if args.dry_run:
        finished = None
    if finished is not None and (settings.data.streaming or has_same_files(folder, settings.as_dict())):
        return _tell_finished(finished, folder)
    checkpoint = checkpoint_to_go_on_from(folder.path, named)

    pairs, tokenizer, datasets = _prepare_data(settings, folder, checkpoint)
    if finished is not None:
        return _tell_finished(finished, folder)
    model = prepare_model(settings, tokenizer)
    if args.dry_run:
        return describe_plan(model, datasets["train"], args, datasets.get("validation"))

    trainer = _make_trainer(settings, model, tokenizer, datasets, pairs)
    if settings.is_writer:
        trainer.add_callback(FolderKeeper(folder))
    results = _train(trainer, checkpoint)
    if args.average_checkpoints:
        trainer.accelerator.wait_for_everyone()  # until the first process has written the last of them
        take_average(trainer.model, folder.path, args.average_checkpoints)
    with writing(folder.path):
        trainer.save_model(_internal_call=True)
    if "validation" in datasets:
        results |= evaluate_final_model(trainer, datasets["validation"], pairs["validation"])
    card = describe_end(trainer, results, is_whole=checkpoint is None)
    if settings.is_writer:
        folder.write_text(FACTS_FILE, card.to_yaml())
        folder.write(RESULTS_FILE, results)
    if args.push_to_hub:
        trainer.publish_saved(**vars(card))
    return results


def _prepare_data(
    settings: Settings, folder: RunFolder, checkpoint: str | None
) -> tuple[Parts, PreTrainedTokenizerBase, Parts]:
    """Returns the pairs of texts of each part, the tokenizer, and the tokenized pairs of each part."""
    with settings.training.main_process_first(desc="preparing the data"):
        pairs = load_pairs(settings.data, settings.training.seed)
        tokenizer = prepare_tokenizer(settings, pairs["train"], checkpoint)
        datasets = tokenize_parts(pairs, tokenizer, settings.data)
        if settings.is_writer and not settings.data.streaming:
            check_same_pairs(folder, settings.as_dict(), datasets)
    return pairs, tokenizer, datasets


def _tell_finished(results: dict[str, Any], folder: RunFolder) -> dict[str, Any]:
    logger.info("The run in %s is finished.", folder.path)
    return results


def _make_trainer(
    settings: Settings, model: Any, tokenizer: PreTrainedTokenizerBase, datasets: Parts, pairs: Parts
) -> Seq2SeqTransformerTrainer:
    args = settings.training
    patience = args.early_stopping_patience
    texts = pairs.get("validation")
    return Seq2SeqTransformerTrainer(
        model=model,
        args=args,
        data_collator=Seq2SeqCollator(tokenizer, model=model, bpe_dropout=settings.data.bpe_dropout),
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("validation"),
        processing_class=tokenizer,
        # Without generation there is nothing to score, and the logits of all pairs would be kept for it.
        compute_metrics=generation_metrics(tokenizer, texts["target"], args.metrics, texts["source"])
        if args.predict_with_generate and texts is not None
        else None,
        callbacks=[] if patience is None else [EarlyStoppingCallback(patience)],
        card=describe_run(settings, datasets["train"]),
    )


def _train(trainer: Seq2SeqTransformerTrainer, checkpoint: str | None) -> dict[str, Any]:
    """Trains to the end, and returns the number of updates and the loss that was logged last."""
    dataset: Any = trainer.train_dataset
    logger.info(
        "%s a model of %.1f M parameters and %s tokens on %s.",
        f"Going on from {checkpoint} with" if checkpoint else "Training",
        *(trainer.model.num_parameters() / 1e6, f"{len(trainer.processing_class):,}"),
        f"{len(dataset):,} pairs" if hasattr(dataset, "__len__") else "a stream of pairs",
    )
    if checkpoint is not None and ends_its_run(checkpoint, trainer.args.early_stopping_patience):
        # Killed between its last update and its results: to train would add an update.
        trainer.load_checkpoint(checkpoint)
    else:
        train_unless_stopped(trainer, checkpoint)
    return {"num_steps": trainer.state.global_step, "train_loss": trainer.last_loss}
