"""A run that goes on takes the next batch of the epoch it is in."""

from types import SimpleNamespace
from typing import Any

from accelerate.data_loader import BatchSamplerShard, skip_first_batches
from datasets import Dataset
from torch.utils.data import DataLoader

from hf_seq2seq.data import TokenBudgetBatchSampler
from hf_seq2seq.training.resumed_data import EpochSetter


def test_the_epoch_reaches_the_sampler_behind_the_share_of_a_process_and_skipped_batches() -> None:
    pairs = Dataset.from_list([{"input_ids": [5] * (n % 7 + 1), "labels": [6]} for n in range(60)])
    sampler = TokenBudgetBatchSampler.from_dataset(pairs, 20, num_ranks=2)
    share = BatchSamplerShard(sampler, num_processes=2, process_index=1, even_batches=False)
    loader: Any = skip_first_batches(DataLoader(pairs, batch_sampler=share), 2)
    state: Any = SimpleNamespace(epoch=3.4)
    EpochSetter(loader).on_epoch_begin(None, state, None)  # type: ignore[arg-type]

    expected = TokenBudgetBatchSampler.from_dataset(pairs, 20, num_ranks=2)
    expected.set_epoch(3)
    assert list(loader.batch_sampler) == list(expected)[1::2][2:]
