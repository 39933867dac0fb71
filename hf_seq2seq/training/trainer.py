"""A `Seq2SeqTrainer` with label smoothing inside the model, batches by tokens and the paper's learning rate."""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Seq2SeqTrainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import seed_worker

from hf_seq2seq.data.batching import TokenBudgetBatchSampler

from .arguments import Seq2SeqTransformerTrainingArguments
from .schedule import paper_schedule


class Seq2SeqTransformerTrainer(Seq2SeqTrainer):
    """Trains a `Seq2SeqTransformerForConditionalGeneration`; what a `Seq2SeqTrainer` does, it does too.

    - Labels are smoothed in the model's own chunked loss, and in training only: evaluation losses are unsmoothed.
    - `tokens_per_batch` and `paper_schedule` of the arguments are followed. Batches by tokens need a training dataset
      as `tokenize_pairs` returns it.
    - The model's `config.use_cache` stays as it was: training needs no cache, but the saved model decodes with one.

    Takes the arguments of `Seq2SeqTrainer`, with `Seq2SeqTransformerTrainingArguments` as `args`.
    """

    args: Seq2SeqTransformerTrainingArguments
    model: Any

    def __init__(self, model: PreTrainedModel | nn.Module | None = None, *args: Any, **kwargs: Any) -> None:
        use_cache = getattr(getattr(model, "config", None), "use_cache", None)
        super().__init__(model, *args, **kwargs)
        self.label_smoother = None  # it would take the labels away, and with them the chunked loss
        if use_cache is not None:
            self.model.config.use_cache = use_cache

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Computes the loss, smoothed in training."""
        if model.training and self.args.label_smoothing_factor:
            inputs = {**inputs, "smoothing": self.args.label_smoothing_factor}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """Creates the learning rate's schedule: the paper's where `paper_schedule` asks for it."""
        if self.lr_scheduler is None and self.args.paper_schedule:
            warmup_steps = self.args.get_warmup_steps(num_training_steps)
            optimizer = optimizer or self.optimizer
            assert optimizer is not None
            self.lr_scheduler = paper_schedule(optimizer, self.model.config.d_model, warmup_steps)
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Returns the batches of training: by tokens where `tokens_per_batch` asks for it."""
        args = self.args
        if args.tokens_per_batch is None:
            return super().get_train_dataloader()
        num_ranks = self.accelerator.num_processes
        seed = args.seed if args.data_seed is None else args.data_seed
        # From the whole dataset, since the columns that the model does not take are removed next.
        sampler = TokenBudgetBatchSampler.from_dataset(
            self.train_dataset, args.tokens_per_batch, seed=seed, num_ranks=num_ranks
        )
        loader: Any = DataLoader(
            self._remove_unused_columns(self.train_dataset, description="Training"),
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            multiprocessing_context=args.dataloader_multiprocessing_context,
            in_order=args.dataloader_in_order,
            worker_init_fn=partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
        )
        loader = self.accelerator.prepare(loader)
        if num_ranks > 1:
            # The ranks get the same number of batches as it is. Set on this loader alone: on the accelerator, it would
            # let ranks evaluate different numbers of batches and wait for each other for ever.
            loader.batch_sampler.even_batches = False
        self.remove_callback(_EpochSetter)
        self.add_callback(_EpochSetter(sampler))
        return loader  # type: ignore[no-any-return]


class _EpochSetter(TrainerCallback):
    """Tells the sampler which epoch it is: a run that goes on within an epoch hides it from the trainer."""

    def __init__(self, sampler: TokenBudgetBatchSampler) -> None:
        self.sampler = sampler

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.sampler.set_epoch(int(state.epoch or 0))
