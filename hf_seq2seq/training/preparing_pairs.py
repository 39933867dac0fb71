"""The pairs of a run: read, filtered and mixed as its settings say, then tokenized."""

from typing import TYPE_CHECKING, Any

from hf_seq2seq.data import filter_pairs, load_parallel, mix_corpora, tokenize_pairs
from hf_seq2seq.data.mixing import tag_sources

from .arguments import DataArguments


if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from transformers import PreTrainedTokenizerBase


Parts = dict[str, "Dataset | IterableDataset"]


def load_pairs(data_args: DataArguments, seed: int) -> Parts:
    """Returns the pairs of texts of "train" and, where the settings name such, of "validation".

    Args:
        data_args: What names the pairs.
        seed: The start of the draws of `corpus_weights`.

    Raises:
        OSError: If a file is missing or cannot be read.
        ValueError: If a file is damaged, or no pair is left.
    """
    parts = {"train": _load_training_pairs(data_args, seed)}
    if data_args.has_validation:
        parts["validation"] = _load_validation_pairs(data_args)
    return parts


def tokenize_parts(parts: Parts, tokenizer: "PreTrainedTokenizerBase", data_args: DataArguments) -> Parts:
    """Returns the tokenized pairs of each part, as `tokenize_pairs` returns them.

    Raises:
        ValueError: If all training pairs are longer than `max_length`, and are dropped.
    """
    return {
        part: tokenize_pairs(
            pairs,
            tokenizer,
            max_length=data_args.max_length,
            # Without the long validation pairs, a score would be that of other pairs.
            over_long=data_args.over_long if part == "train" else "truncate",
            num_proc=data_args.preprocessing_num_workers,
        )
        for part, pairs in parts.items()
    }


def _load_training_pairs(data_args: DataArguments, seed: int) -> Any:
    columns = _columns(data_args)
    options: dict[str, Any] = {"streaming": data_args.streaming}
    corpora = [
        load_parallel(source, target, **options)
        for source, target in zip(data_args.train_source or (), data_args.train_target or (), strict=True)
    ]
    corpora += [load_parallel(file=file, **columns, **options) for file in data_args.train_file or ()]
    if data_args.dataset_name is not None:
        corpora.append(_load_split(data_args, data_args.train_split or "train", **columns, **options))
    if data_args.corpus_weights is None and data_args.corpus_tags is None:
        return filter_pairs(mix_corpora(corpora), **data_args.filters)
    # Filtered before they are mixed: weights repeat the pairs of small corpora, and those are no duplicates to drop.
    # And before they are tagged, so that a tag is not counted as characters.
    filtered = [filter_pairs(corpus, **data_args.filters) for corpus in corpora]
    tags = data_args.corpus_tags or [""] * len(corpora)
    tagged = [tag_sources(corpus, tag) for corpus, tag in zip(filtered, tags, strict=True)]
    return mix_corpora(tagged, data_args.corpus_weights, seed=seed)


def _load_validation_pairs(data_args: DataArguments) -> Any:
    if data_args.validation_source is not None:
        return load_parallel(data_args.validation_source, data_args.validation_target)
    if data_args.validation_file is not None:
        return load_parallel(file=data_args.validation_file, **_columns(data_args))
    return _load_split(data_args, data_args.validation_split or "validation", **_columns(data_args))


def _columns(data_args: DataArguments) -> dict[str, Any]:
    names = ("source_column", "target_column", "source_language", "target_language", "inline_tags")
    return {name: getattr(data_args, name) for name in names}


def _load_split(data_args: DataArguments, split: str, **options: Any) -> Any:
    name, config_name = data_args.dataset_name, data_args.dataset_config_name
    return load_parallel(dataset_name=name, dataset_config_name=config_name, split=split, **options)
