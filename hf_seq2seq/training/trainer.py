"""A `Seq2SeqTrainer` with the model's own loss, batches by tokens, the paper's learning rate and exact evaluation."""

import copy
import logging
import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, ProgressCallback
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput, seed_worker

from hf_seq2seq.data.batching import TokenBudgetBatchSampler, TokenBudgetStream
from hf_seq2seq.data.collator import Seq2SeqCollator
from hf_seq2seq.data.evaluation_batching import InOrderBatchSampler
from hf_seq2seq.data.lengths import side_lengths
from hf_seq2seq.data.stream_loader import StreamLoader
from hf_seq2seq.evaluation import decode
from hf_seq2seq.loading import name_of_weight_without_number
from hf_seq2seq.output_limits import EXTRA_TOKENS, OutputLimits, longest_output
from hf_seq2seq.search_defaults import default_search
from hf_seq2seq.token_lookup import readable_texts

from .arguments import Seq2SeqTransformerTrainingArguments
from .batches import choose_batches, choose_evaluation_batches
from .checkpoints import checkpoint_folder, load_state, writing_checkpoint
from .evaluation_losses import EvaluationLosses
from .generation_config import complete_generation_config
from .progress import TokensProgressCallback
from .publishing import PublishingTrainer
from .resumed_data import EpochSetter, load_stream_position, save_stream_position
from .schedule import paper_schedule, warn_of_unreached_peak


logger = logging.getLogger(__name__)

NUM_SAMPLES = 3  # translations shown at each evaluation

WAYS_OUT = (
    "Begin again in another `output_dir`, with a lower `learning_rate`, more `warmup_steps` or, on an accelerator, "
    "`bf16` in place of `fp16`."
)


class Seq2SeqTransformerTrainer(PublishingTrainer):
    """Trains a `Seq2SeqTransformerForConditionalGeneration`.

    It differs from `Seq2SeqTrainer` in this:

    - Labels are smoothed in the model's own chunked loss, and only in training: evaluation losses are unsmoothed.
    - It follows `tokens_per_batch`, `paper_schedule` and `r_drop_alpha` of its arguments. For batches by tokens, the
      training dataset is what `tokenize_pairs` returns, or has its columns "input_ids" and "labels".
    - The evaluation loss is the mean over all target tokens, whatever the batches and the number of processes. The
      stock trainer's is a mean of batch means, which counts the pairs that fill up the last batch twice.
    - Evaluation draws random numbers of its own, so that training goes on as without it. It takes every
      pair, in order. By generation, an output has at most 50 tokens more than its source, as those of `Translator`,
      unless an option of `evaluate`, `generation_max_length` or the model's generation config sets another limit. The
      first translations are logged.
    - Log lines have `target_tokens_per_second` (those of all processes, without padding) and `padding`, its share of
      the tokens in the batches.
    - A loss that is not a finite number stops training before the weights change.
    - The model's `config.use_cache` stays as it was: training needs no cache, but the saved model decodes with one.
    - `push_to_hub` sends only the model, with the code that loads it and a card.

    Takes the arguments of `Seq2SeqTrainer`, with `Seq2SeqTransformerTrainingArguments` as `args`, and `card`: what is
    known of the model for its card.

    Attributes:
        train_seconds: How long the last call of `train` took; None before its end.

    Raises:
        ValueError: If the arguments ask for what several GPUs of one process, or a sharded model, cannot do.
    """

    args: Seq2SeqTransformerTrainingArguments
    model: Any
    processing_class: Any

    def __init__(self, model: PreTrainedModel | nn.Module | None = None, *args: Any, **kwargs: Any) -> None:
        use_cache = getattr(getattr(model, "config", None), "use_cache", None)
        own_settings = getattr(model, "generation_config", None)
        super().__init__(model, *args, **kwargs)
        complete_generation_config(self.model, own_settings, self.args.generation_config is not None)
        if self.args.r_drop_alpha and self.args.n_gpu > 1:
            raise ValueError(
                f"`r_drop_alpha` must be 0 where one process uses several GPUs ({self.args.n_gpu}), since torch would "
                f"part the twins, but is {self.args.r_drop_alpha} instead. Start a process for each GPU with torchrun."
            )
        if self.args.average_checkpoints and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise ValueError(
                f"`average_checkpoints` must be 0 where the model is sharded, but is {self.args.average_checkpoints} "
                "instead. Average afterwards, with `hf-seq2seq average`."
            )
        self.label_smoother = None  # it would take the labels away, and with them the chunked loss
        if use_cache is not None:
            self.model.config.use_cache = use_cache
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(TokensProgressCallback)
        self._token_counts = torch.zeros(3, dtype=torch.float64)  # real target, all real, all with padding
        self._counted_since = time.perf_counter()
        self._limits_by_source = False
        self.train_seconds: float | None = None
        self._paper_scheduler: LRScheduler | None = None
        self._stream_loader: StreamLoader | None = None
        self._losses = EvaluationLosses(self.accelerator)

    @property
    def last_loss(self) -> float | None:
        """The training loss that was logged last, or else the mean of all updates, which is logged at the end."""
        history = self.state.log_history
        logged = [entry["loss"] for entry in history if "loss" in entry]
        logged = logged or [entry["train_loss"] for entry in history if "train_loss" in entry]
        return logged[-1] if logged else None

    # Updates

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Returns the loss of a batch; in training with the smoothing and R-Drop that the arguments ask for."""
        if model.training:
            self._count_tokens(inputs)
            if self.args.label_smoothing_factor:
                inputs = {**inputs, "smoothing": self.args.label_smoothing_factor}
            if self.args.r_drop_alpha:
                inputs = {
                    name: value.repeat_interleave(2, dim=0) if isinstance(value, torch.Tensor) else value
                    for name, value in inputs.items()
                } | {"r_drop_alpha": self.args.r_drop_alpha}
                num_items_in_batch = None if num_items_in_batch is None else 2 * num_items_in_batch
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Adds the gradients of a batch and returns its loss.

        Raises:
            FloatingPointError: If the loss is not a finite number.
        """
        if self._token_counts.device != self.args.device:
            self._token_counts = self._token_counts.to(self.args.device, torch.float32)
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            raise FloatingPointError(self._describe_bad_batch(loss, inputs))
        return loss

    def _describe_bad_batch(self, loss: torch.Tensor, inputs: dict[str, Any]) -> str:
        labels = inputs["labels"]
        text = ""
        if self.processing_class is not None:
            text = f", the first target being {decode(self.processing_class, labels[:1].cpu())[0]!r}"
        return (
            f"The loss must be a finite number, but is {loss.item()} in update {self.state.global_step + 1} (epoch "
            f"{self.state.epoch or 0:.2f}), in a batch of {len(labels)} pairs with up to {labels.shape[1]} target "
            f"tokens{text}. That update was not made. {WAYS_OUT}"
        )

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """Creates the learning rate's schedule: the paper's with `paper_schedule`, anew for each call of `train`.

        Warns where the run is too short for it to reach its highest rate.
        """
        if self.lr_scheduler is None or self.lr_scheduler is self._paper_scheduler:
            warn_of_unreached_peak(self.args, num_training_steps)
        if self.args.paper_schedule and (self.lr_scheduler is None or self.lr_scheduler is self._paper_scheduler):
            warmup_steps = self.args.get_warmup_steps(num_training_steps)
            optimizer = optimizer or self.optimizer
            assert optimizer is not None
            self._paper_scheduler = paper_schedule(optimizer, self.model.config.d_model, warmup_steps)
            self.lr_scheduler = self._paper_scheduler
        return super().create_scheduler(num_training_steps, optimizer)

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the norm of the gradient that the optimizer is about to use.

        Raises:
            FloatingPointError: If it is not a finite number. With scaled float16 gradients it may be infinite: then
                the scale is lowered and the update left out.
        """
        norm = super()._get_grad_norm(*args, **kwargs)
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(float(norm)):
            raise FloatingPointError(
                f"The gradient must be finite, but its norm is {float(norm)} in update {self.state.global_step + 1} "
                f"(epoch {self.state.epoch or 0:.2f}), though the loss is a number. That update was not made. "
                f"{WAYS_OUT}"
            )
        return norm

    # Batches

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Returns the batches of training, as `choose_batches` chooses them."""
        batches = choose_batches(self.train_dataset, self.args)
        if isinstance(batches, TokenBudgetStream):
            return self._load_stream(batches)
        loader = super().get_train_dataloader() if batches is None else self._load_batches(batches)
        self.remove_callback(EpochSetter)
        self.add_callback(EpochSetter(loader))
        return loader

    def _load_batches(self, batches: TokenBudgetBatchSampler) -> DataLoader[Any]:
        loader: Any = DataLoader(
            # The columns of lengths too, which the batches were made by: the model does not take them.
            self._remove_unused_columns(self.train_dataset, description="Training"),
            batch_sampler=batches,
            **self._loader_options(),
        )
        loader = self.accelerator.prepare(loader)
        if batches.num_ranks > 1:
            # The sampler gives all ranks the same number of batches already. This is set on this loader only: set on
            # the accelerator, ranks would evaluate different numbers of batches and wait for each other for ever.
            loader.batch_sampler.even_batches = False
        return loader  # type: ignore[no-any-return]

    def _load_stream(self, stream: TokenBudgetStream) -> DataLoader[Any]:
        """Returns the batches of a stream, which gives each process its own part, without accelerate's help."""
        num_workers = min(self.args.dataloader_num_workers, stream.num_shards)
        if num_workers < self.args.dataloader_num_workers:
            logger.warning(
                "`dataloader_num_workers` is %d, but the stream has only %d shard(s), its corpora, to read: more "
                "workers would have nothing to do.",
                *(self.args.dataloader_num_workers, stream.num_shards),
            )
            num_workers = 0 if num_workers == 1 else num_workers
        options = self._loader_options() | {"num_workers": num_workers}
        if not num_workers:
            options |= {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}
        self._stream_loader = StreamLoader(stream, **options)
        return self._stream_loader

    def _loader_options(self) -> dict[str, Any]:
        args = self.args
        return {
            "collate_fn": self.data_collator,
            "num_workers": args.dataloader_num_workers,
            "pin_memory": args.dataloader_pin_memory,
            "persistent_workers": args.dataloader_persistent_workers,
            "prefetch_factor": args.dataloader_prefetch_factor,
            "multiprocessing_context": args.dataloader_multiprocessing_context,
            "in_order": args.dataloader_in_order,
            "worker_init_fn": partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
        }

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Returns the batches of an evaluation: every pair, in order, and without the collator's BPE-dropout.

        Args:
            eval_dataset: A dataset, or the name of one where the trainer was given several; by default the trainer's.

        Raises:
            ValueError: If there is none.
        """
        dataset = self._evaluated(eval_dataset)
        if dataset is None:
            raise ValueError("`eval_dataset` must be given to the trainer or to `evaluate`, but is given to neither.")
        collator: Any = self.data_collator
        if isinstance(collator, Seq2SeqCollator):
            collator = replace(collator, bpe_dropout=0.0)
        # Workers end with the evaluation: they would not be used again.
        options = self._loader_options() | {"collate_fn": collator, "persistent_workers": False}
        batches = choose_evaluation_batches(dataset, self.args)
        if getattr(dataset, "column_names", None):
            dataset = self._remove_unused_columns(dataset, description="Evaluation")
        if batches is not None:
            return DataLoader(dataset, batch_sampler=batches, **options)
        loader = DataLoader(dataset, batch_size=self.args.eval_batch_size, **options)
        return self.accelerator.prepare(loader)  # type: ignore[no-any-return]

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Returns the batches of a prediction, as `get_eval_dataloader` does."""
        return self.get_eval_dataloader(test_dataset)

    def _evaluated(self, dataset: Any) -> Any:
        """Returns the dataset that an argument of `evaluate` stands for."""
        if isinstance(dataset, str):
            return self.eval_dataset[dataset]  # type: ignore[index]
        return self.eval_dataset if dataset is None else dataset

    # Evaluation

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Evaluates as `Seq2SeqTrainer` does, with the limit of outputs that the class documents."""
        gen_kwargs |= self._limit(self._evaluated(eval_dataset), gen_kwargs)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **gen_kwargs)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """Predicts as `Seq2SeqTrainer` does, with the limit of outputs that the class documents."""
        gen_kwargs |= self._limit(test_dataset, gen_kwargs)
        return super().predict(test_dataset, ignore_keys, metric_key_prefix, **gen_kwargs)

    def translate(self, dataset: Any, metric_key_prefix: str = "test") -> PredictionOutput:
        """Returns translations of a dataset and its loss, whatever the arguments say of evaluations in training.

        The search is `generation_num_beams`', the model's own, or where neither chooses one, the paper's.
        """
        before = self.args, self.compute_metrics
        self.args, self.compute_metrics = copy.copy(self.args), None
        self.args.predict_with_generate = self.args.eval_do_concat_batches = True
        self.args.prediction_loss_only = self.args.batch_eval_metrics = False
        settings: Any = self.model.generation_config
        is_chosen = settings.num_beams is not None or self.args.generation_num_beams is not None
        search = {} if is_chosen else default_search(settings)
        try:
            return self.predict(dataset, metric_key_prefix=metric_key_prefix, **search)
        finally:
            self.args, self.compute_metrics = before

    def _limit(self, dataset: Any, gen_kwargs: dict[str, Any]) -> dict[str, int]:
        """Returns the length that no output of a dataset may exceed, as an option of `generate`, where none is set."""
        config = self.model.generation_config
        settings = (gen_kwargs.get("max_length"), gen_kwargs.get("max_new_tokens"), self.args.generation_max_length)
        is_set = any(setting is not None for setting in (*settings, config.max_new_tokens))
        # A stream does not tell its longest source.
        has_sources = "input_ids" in (getattr(dataset, "column_names", None) or ()) and hasattr(dataset, "__len__")
        self._limits_by_source = self.args.predict_with_generate and not is_set and has_sources
        if not self._limits_by_source:
            return {}
        longest = int(side_lengths(dataset, "source").max())
        limit = config.max_length or sys.maxsize  # None where an imported model has no limit
        return {"max_length": min(1 + longest_output(longest), limit)}  # 1 for the start token

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluates with random numbers of its own, and with the mean loss of all target tokens."""
        started = time.perf_counter()
        # Seq2SeqTrainer's own choice keeps the pairs that fill up the last batch, once for each process.
        dataset: Any = dataloader.dataset
        is_in_order = isinstance(dataloader.batch_sampler, InOrderBatchSampler)
        self._losses = EvaluationLosses(self.accelerator, len(dataset) if is_in_order else None)
        self.gather_function = self._losses.gather
        if isinstance(self.model, FSDPModule):
            register_fsdp_forward_method(self.model, "generate")  # type: ignore[arg-type]  # else `generate` would find embeddings in shards
        devices = [self.args.device] if self.args.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            output: Any = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        mean = self._losses.mean()
        if mean is not None:
            output.metrics[f"{metric_key_prefix}_loss"] = mean
        if self.args.predict_with_generate and output.predictions is not None:
            self._log_samples(dataloader.dataset, output)
        self._counted_since += time.perf_counter() - started
        return output  # type: ignore[no-any-return]

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Any, torch.Tensor | None, torch.Tensor | None]:
        """Returns the loss of a batch, generated ids (B, T) or logits (B, T, V), and its labels (B, T)."""
        labels = inputs.get("labels")
        self._losses.begin_step(next(value for value in inputs.values() if isinstance(value, torch.Tensor)))
        if labels is None:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs)
        predictions = None
        if self.args.predict_with_generate and not prediction_loss_only:
            predictions = self._generate(model, inputs, ignore_keys, gen_kwargs or self._gen_kwargs)
        inputs = self._prepare_inputs(inputs)
        needs_logits = predictions is None and not prediction_loss_only
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, logits = self._losses.compute(model, inputs, needs_logits)
        if prediction_loss_only:
            return loss, None, None
        return loss, logits if needs_logits else predictions, inputs["labels"]

    def _generate(
        self, model: nn.Module, inputs: dict[str, Any], ignore_keys: list[str] | None, gen_kwargs: dict[str, Any]
    ) -> Any:
        """Returns the ids that are generated for a batch, (B, T), each row within the limit of its own source."""
        sources = {name: value for name, value in inputs.items() if name not in ("labels", "decoder_input_ids")}
        if not self._limits_by_source:
            return super().prediction_step(model, sources, False, ignore_keys, **gen_kwargs)[1]
        mask = sources.get("attention_mask", torch.ones_like(sources["input_ids"]))
        limits = mask.sum(dim=1).to(self.args.device) + EXTRA_TOKENS
        # An end would be forced only at the limit of the longest source.
        gen_kwargs = {**gen_kwargs, "stopping_criteria": [OutputLimits(limits)], "forced_eos_token_id": None}
        ids: Any = super().prediction_step(model, sources, False, ignore_keys, **gen_kwargs)[1]
        is_beyond = torch.arange(ids.shape[1], device=ids.device) > limits[:, None].to(ids.device)
        return ids.masked_fill(is_beyond, self.model.generation_config.pad_token_id)

    def _log_samples(self, dataset: Any, output: EvalLoopOutput) -> None:
        """Logs the first pairs of a dataset with their translations."""
        if self.processing_class is None or not self.is_world_process_zero():
            return
        num_samples = min(NUM_SAMPLES, len(output.predictions))
        sources = [dataset[row]["input_ids"] for row in range(num_samples)]
        texts = [readable_texts(self.processing_class, sources, "source")]
        targets: Any = [output.predictions, *([] if output.label_ids is None else [output.label_ids])]
        texts += [readable_texts(self.processing_class, ids[:num_samples].tolist(), "target") for ids in targets]
        for row in zip(*texts, strict=True):
            names = ("source", "model", "reference")
            logger.info("%s", "".join(f"\n  {name:<10} {text}" for name, text in zip(names, row, strict=False)))

    # What is logged and kept

    def _count_tokens(self, inputs: dict[str, Any]) -> None:
        sides = (inputs["labels"] != -100, inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])) != 0)
        target, source = (side.sum() for side in sides)
        padded = sum(side.numel() for side in sides)
        self._token_counts += torch.stack((target, target + source, torch.full_like(target, padded)))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs, and adds to losses of training the speed and the share of padding since the last one."""
        self.train_seconds = logs.get("train_runtime", self.train_seconds)
        if "loss" in logs:
            target, real, padded = self.accelerator.reduce(self._token_counts, reduction="sum").tolist()
            now = time.perf_counter()
            if padded:
                logs["target_tokens_per_second"] = target / max(now - self._counted_since, 1e-9)
                logs["padding"] = 1 - real / padded
            self._token_counts.zero_()
            self._counted_since = now
        super().log(logs, start_time)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Restores a finished run's state and weights, with `load_best_model_at_end` those of its best checkpoint."""
        self.state = load_state(checkpoint)
        best = checkpoint_folder(Path(checkpoint).parent, self.state.best_global_step or 0)
        takes_best = self.args.load_best_model_at_end and best.is_dir()
        self._load_from_checkpoint(str(best) if takes_best else checkpoint)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model.

        Raises:
            FloatingPointError: Before anything is written, if a weight is not a finite number.
        """
        name = name_of_weight_without_number(self.model)
        is_sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if is_sharded:  # each process looks at its own shards, and all of them stop
            found = torch.tensor([name is not None], device=self.args.device, dtype=torch.float32)
            name = name or ("of another process" if self.accelerator.gather(found).any() else None)
        if name is not None:
            raise FloatingPointError(
                f"The weights must be finite numbers, but those of `{name}` are not after update "
                f"{self.state.global_step}. They were not saved. {WAYS_OUT}"
            )
        super().save_model(output_dir, _internal_call)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Saves a checkpoint; where there is no room for it, raises OSError and leaves those before it as they are."""
        started = time.perf_counter()
        with writing_checkpoint(self._get_output_dir(trial=trial), self.state.global_step):
            super()._save_checkpoint(model, trial)
        self._counted_since += time.perf_counter() - started

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._stream_loader is not None:
            save_stream_position(output_dir, self.args, self._stream_loader)
        # The first process writes trainer_state.json next, which marks the checkpoint as whole.
        self.accelerator.wait_for_everyone()

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if self._stream_loader is not None and checkpoint is not None:
            load_stream_position(checkpoint, self.args, self._stream_loader)
