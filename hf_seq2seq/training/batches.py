"""How pairs are put into batches: the one place where the settings choose a strategy.

A new strategy of training is a branch of `choose_batches`. The trainer loads what it returns, and a dry run counts it.
"""

from typing import Any

from torch.utils.data import IterableDataset

from hf_seq2seq.data.batching import TokenBudgetBatchSampler, TokenBudgetStream
from hf_seq2seq.data.evaluation_batching import InOrderBatchSampler
from hf_seq2seq.data.lengths import longer_side_lengths

from .arguments import Seq2SeqTransformerTrainingArguments


def choose_batches(
    dataset: Any, args: Seq2SeqTransformerTrainingArguments
) -> TokenBudgetBatchSampler | TokenBudgetStream | None:
    """Returns the batches of an epoch, or of a stream, as the settings ask for them.

    Args:
        dataset: The training pairs, as `tokenize_pairs` returns them.
        args: The settings, which also tell the number of processes and which of them this is.

    Returns:
        With `tokens_per_batch` batches by tokens. Without it None: the stock trainer then makes batches of
        `per_device_train_batch_size` pairs, as `train_sampling_strategy` says.
    """
    if args.tokens_per_batch is None:
        return None
    seed = args.seed if args.data_seed is None else args.data_seed
    if isinstance(dataset, IterableDataset):
        return TokenBudgetStream(
            dataset, args.tokens_per_batch, seed=seed, num_ranks=args.world_size, rank=args.process_index
        )
    return TokenBudgetBatchSampler.from_dataset(dataset, args.tokens_per_batch, seed=seed, num_ranks=args.world_size)


def choose_evaluation_batches(dataset: Any, args: Seq2SeqTransformerTrainingArguments) -> InOrderBatchSampler | None:
    """Returns the batches of an evaluation: of `per_device_eval_batch_size` pairs, or of fewer where these are long.

    With `tokens_per_batch`, no batch has more tokens than one of training.

    Args:
        dataset: The pairs.
        args: The settings, which also tell the number of processes and which of them this is.

    Returns:
        None for a stream, and with `batch_eval_metrics`, for which accelerate has to load the batches.
    """
    if args.batch_eval_metrics or not hasattr(dataset, "__len__") or isinstance(dataset, IterableDataset):
        return None
    columns = getattr(dataset, "column_names", None) or ()
    by_tokens = args.tokens_per_batch is not None and hasattr(dataset, "select_columns") and "input_ids" in columns
    return InOrderBatchSampler(
        len(dataset),
        args.eval_batch_size,
        longer_side_lengths(dataset) if by_tokens else None,
        args.tokens_per_batch,
        num_ranks=args.world_size,
        rank=args.process_index,
    )
