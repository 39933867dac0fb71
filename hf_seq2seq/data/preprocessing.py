"""Turn pairs of texts into pairs of token ids."""

import logging
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from datasets import Dataset, Features, List, Value


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


logger = logging.getLogger(__name__)


def tokenize_pairs(
    dataset: Dataset,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    max_length: int,
    over_long: Literal["drop", "truncate"] = "drop",
    num_proc: int | None = None,
) -> Dataset:
    """Tokenize a dataset of pairs, as `load_parallel` returns it.

    The result is cached by the datasets library, under a key made from the pairs and the tokenizer.

    Args:
        dataset: pairs in the text columns "source" and "target".
        tokenizer: what ends each text with the end-of-sentence token; `text_target` is used for the targets.
        max_length: the most tokens a side may have, the end-of-sentence token among them.
        over_long: what becomes of a pair with a longer side: "drop" leaves the pair out, "truncate" cuts the side to
            `max_length` tokens, of which the last is still the end-of-sentence token. Their number is logged.
        num_proc: the number of processes; None is one, which the tokenizers library already fills with threads.

    Returns:
        A dataset with the columns "input_ids", "labels" and "length" (the tokens of the longer side).

    Raises:
        ValueError: if `max_length` or `over_long` has no such meaning, **or** if all pairs are over-long and dropped.
    """
    if max_length < 2:
        raise ValueError(
            f"`max_length` must be at least 2 (a token and the end of the text), but is {max_length} instead."
        )
    if over_long not in ("drop", "truncate"):
        raise ValueError(f"`over_long` must be 'drop' or 'truncate', but is {over_long!r} instead.")
    ids = List(Value("int32"))
    features = Features({"input_ids": ids, "labels": ids, "length": Value("int32")})
    tokenized = dataset.map(
        _encode,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer},
        features=features,
        remove_columns=dataset.column_names,
        num_proc=num_proc,
        desc="Tokenizing",
    )
    lengths = tokenized.select_columns("length").with_format("numpy")[:]["length"]
    fitting = np.flatnonzero(lengths <= max_length)
    if len(fitting) == len(lengths):
        return tokenized
    counts = (len(lengths) - len(fitting), len(lengths), max_length, lengths.max())
    if over_long == "truncate":
        logger.warning(
            "Truncated %d of %d pairs, since a side has more than %d tokens (up to %d). To keep them whole, raise "
            "`max_length`.",
            *counts,
        )
        return tokenized.map(
            _truncate, batched=True, fn_kwargs={"max_length": max_length}, num_proc=num_proc, desc="Truncating"
        )
    if not len(fitting):
        raise ValueError(
            f"`max_length` must leave at least one pair, but is {max_length} while the shortest pair has "
            f"{lengths.min()} tokens. Raise it, or set `over_long` to 'truncate'."
        )
    logger.warning(
        "Dropped %d of %d pairs, since a side has more than %d tokens (up to %d). To keep them, raise `max_length` or "
        "set `over_long` to 'truncate'.",
        *counts,
    )
    return tokenized.select(fitting)


def _encode(batch: dict[str, Any], tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    # Not truncated yet, so that over-long pairs can be counted; `verbose` would warn of the first of them.
    options: dict[str, Any] = {"truncation": False, "padding": False, "return_attention_mask": False, "verbose": False}
    input_ids = tokenizer(batch["source"], **options)["input_ids"]
    labels = tokenizer(text_target=batch["target"], **options)["input_ids"]
    length = [max(len(source), len(target)) for source, target in zip(input_ids, labels, strict=True)]
    return {"input_ids": input_ids, "labels": labels, "length": length}


def _truncate(batch: dict[str, Any], max_length: int) -> dict[str, Any]:
    def cut(ids: list[int]) -> list[int]:
        return ids if len(ids) <= max_length else [*ids[: max_length - 1], ids[-1]]

    return {
        "input_ids": [cut(ids) for ids in batch["input_ids"]],
        "labels": [cut(ids) for ids in batch["labels"]],
        "length": [min(length, max_length) for length in batch["length"]],
    }
