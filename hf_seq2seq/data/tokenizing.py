"""Turns pairs of texts into pairs of token ids."""

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from datasets import Dataset, Features, IterableDataset, List, Value
from datasets.fingerprint import Hasher

from hf_seq2seq.token_lookup import encode_sources, encode_targets, side_tokenizer

from .filtering import STREAM_BATCH_SIZE, Tally


if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

# Part of the key of cached tokens. Raise it when a change of this file makes other rows of the same pairs.
TOKENS_VERSION = 3

# Attributes of a tokenizer that do not change the ids, since nothing is cut or padded here. All other simple
# attributes are part of the key, such as the languages of a multilingual tokenizer.
ATTRIBUTES_WITHOUT_INFLUENCE = {
    *("name_or_path", "verbose", "backend", "chat_template", "response_template", "_processor_class"),
    *("model_max_length", "padding_side", "truncation_side", "_pad_token_type_id"),
}


def tokenize_pairs(
    dataset: Dataset | IterableDataset,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    max_length: int,
    over_long: Literal["drop", "truncate"] = "drop",
    num_proc: int | None = None,
) -> Dataset | IterableDataset:
    """Tokenizes a dataset of pairs, as `load_parallel` returns it.

    The datasets library caches the result under a key made of the pairs and of all that the tokenizer does, so a
    tokenizer that was just trained and the same one loaded from its folder find the same rows. For a slow tokenizer,
    written in Python, the library makes the key itself, and it may differ.

    A stream is tokenized while it is read, and is not cached. It logs its numbers from time to time, as `filter_pairs`
    does.

    Args:
        dataset: Pairs in the text columns "source" and "target".
        tokenizer: A tokenizer that ends each text with the end-of-sentence token. It gets the targets as
            `text_target`. A start token that it puts before them is left out, since the model adds its own.
        max_length: The largest number of tokens of a side, with the end-of-sentence token.
        over_long: What happens to a pair with a longer side: "drop" leaves the pair out, "truncate" cuts the side to
            `max_length` tokens, of which the last is still the end-of-sentence token. The number of such pairs is
            logged.
        num_proc: The number of processes; None is one, which the tokenizers library already fills with threads. Not
            for a stream.

    Returns:
        A dataset, or a stream, with the columns "input_ids" and "labels", and the numbers of their tokens in the
        columns "source_length", "target_length" and "length" (the longer side's).

    Raises:
        ValueError: If `max_length` or `over_long` is not valid, `num_proc` is given for a stream, or all pairs are too
            long and dropped (in a stream, when its end is reached).
    """
    if max_length < 2:
        raise ValueError(
            f"`max_length` must be at least 2 (a token and the end of the text), but is {max_length} instead."
        )
    if over_long not in ("drop", "truncate"):
        raise ValueError(f"`over_long` must be 'drop' or 'truncate', but is {over_long!r} instead.")
    if isinstance(dataset, IterableDataset):
        if num_proc is not None:
            raise ValueError(
                f"`num_proc` must be None for a stream, but is {num_proc} instead. Use workers of the `DataLoader`."
            )
        return _tokenize_stream(dataset, tokenizer, max_length, over_long)
    tokenized = dataset.map(
        _encode,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer},
        features=_features(),
        remove_columns=dataset.column_names,
        num_proc=num_proc,
        new_fingerprint=_cache_key(dataset, tokenizer),
        desc="Tokenizing",
    )
    return _fit_length(tokenized, max_length, over_long, num_proc)


def _fit_length(tokenized: Dataset, max_length: int, over_long: str, num_proc: int | None) -> Dataset:
    """Drops or truncates pairs that are too long, as `over_long` says, and logs their number."""
    lengths = tokenized.select_columns("length").with_format("numpy")[:]["length"]
    fitting = np.flatnonzero(lengths <= max_length)
    if len(fitting) == len(lengths):
        return tokenized
    if not len(fitting) and over_long == "drop":
        raise ValueError(
            f"`max_length` must leave at least one pair, but is {max_length} while the shortest pair has "
            f"{lengths.min()} tokens. Raise it, or set `over_long` to 'truncate'."
        )
    counts = np.array([len(fitting), len(lengths) - len(fitting)])
    _report_over_long(over_long, max_length, counts, longest=lengths.max())
    if over_long == "drop":
        return tokenized.select(fitting)
    return tokenized.map(
        _truncate, batched=True, fn_kwargs={"max_length": max_length}, num_proc=num_proc, desc="Truncating"
    )


def _report_over_long(
    over_long: str, max_length: int, counts: "NDArray[np.int64]", longest: int | None = None
) -> None:
    done, remedy = {
        "drop": ("Dropped", "To keep them, raise `max_length` or set `over_long` to 'truncate'."),
        "truncate": ("Truncated", "To keep them whole, raise `max_length`."),
    }[over_long]
    up_to = "" if longest is None else f" (up to {longest})"
    logger.warning(
        "%s %d of %d pairs, since a side has more than %d tokens%s. %s",
        *(done, counts[1], counts.sum(), max_length, up_to, remedy),
    )


def _features() -> Features:
    ids = List(Value("int32"))
    lengths = dict.fromkeys(("length", "source_length", "target_length"), Value("int32"))
    return Features({"input_ids": ids, "labels": ids, **lengths})


def _cache_key(dataset: Dataset, tokenizer: "PreTrainedTokenizerBase") -> str | None:
    """Returns a key made of all that decides the ids; None for a slow tokenizer, which leaves it to the library."""
    if not tokenizer.is_fast:
        return None
    backends = [
        json.loads(side_tokenizer(tokenizer, side).backend_tokenizer.to_str()) for side in ("source", "target")
    ]
    for backend in backends:
        del backend["truncation"], backend["padding"]  # the state that the last call left behind
    if backends[0] == backends[1]:
        del backends[1]
    attributes = {
        name: value
        for name, value in sorted(vars(tokenizer).items())
        if isinstance(value, str | int | float | None) and name not in ATTRIBUTES_WITHOUT_INFLUENCE
    }
    key: str = Hasher.hash(
        [TOKENS_VERSION, dataset._fingerprint, type(tokenizer), attributes, *map(json.dumps, backends)]
    )
    return key


def _tokenize_stream(
    stream: IterableDataset, tokenizer: "PreTrainedTokenizerBase", max_length: int, over_long: str
) -> IterableDataset:
    nothing_left = (
        f"`max_length` must leave at least one pair, but is {max_length} while all pairs have more tokens. Raise it, "
        "or set `over_long` to 'truncate'."
    )
    tally = Tally(
        num_reasons=1,
        report=partial(_report_over_long, over_long, max_length),
        nothing_left=nothing_left if over_long == "drop" else None,
    )
    # In one function, since each step of a stream costs time for every row.
    return stream.map(
        _encode_and_fit,
        with_indices=True,
        batched=True,
        batch_size=STREAM_BATCH_SIZE,
        fn_kwargs={"tokenizer": tokenizer, "max_length": max_length, "over_long": over_long, "tally": tally},
        features=_features(),
        remove_columns=stream.column_names or ["source", "target"],
    )


def _encode_and_fit(
    batch: dict[str, Any],
    indices: list[int],
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    over_long: str,
    tally: Tally,
) -> dict[str, Any]:
    encoded = _encode(batch, tokenizer)
    is_over_long = [length > max_length for length in encoded["length"]]
    tally.add_of_stream(np.array(is_over_long, dtype=np.int64), indices)
    if over_long == "truncate":
        return _truncate(encoded, max_length)
    return {
        name: [value for value, drop in zip(values, is_over_long, strict=True) if not drop]
        for name, values in encoded.items()
    }


def _encode(batch: dict[str, Any], tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    # Not truncated yet, so that over-long pairs can be counted.
    options: dict[str, Any] = {"truncation": False, "padding": False, "return_attention_mask": False}
    input_ids = encode_sources(tokenizer, batch["source"], **options)
    labels = encode_targets(tokenizer, batch["target"], **options)
    return _with_lengths(input_ids, labels)


def _truncate(batch: dict[str, Any], max_length: int) -> dict[str, Any]:
    def cut(ids: list[int]) -> list[int]:
        return ids if len(ids) <= max_length else [*ids[: max_length - 1], ids[-1]]

    return _with_lengths([cut(ids) for ids in batch["input_ids"]], [cut(ids) for ids in batch["labels"]])


def _with_lengths(input_ids: list[list[int]], labels: list[list[int]]) -> dict[str, Any]:
    source, target = list(map(len, input_ids)), list(map(len, labels))
    longer = list(map(max, source, target))
    return {
        "input_ids": input_ids,
        "labels": labels,
        "length": longer,
        "source_length": source,
        "target_length": target,
    }
