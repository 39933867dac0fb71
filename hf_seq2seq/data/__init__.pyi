from .batching import TokenBudgetBatchSampler, TokenBudgetStream
from .collator import Seq2SeqCollator
from .filtering import filter_pairs
from .lines import read_lines
from .mixing import mix_corpora
from .reading import load_parallel
from .tokenizing import tokenize_pairs

__all__ = [
    "Seq2SeqCollator",
    "TokenBudgetBatchSampler",
    "TokenBudgetStream",
    "filter_pairs",
    "load_parallel",
    "mix_corpora",
    "read_lines",
    "tokenize_pairs",
]
