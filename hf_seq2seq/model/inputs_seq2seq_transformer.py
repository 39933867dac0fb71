# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""What a model is given: checks, and what PEFT names otherwise. This file travels with published checkpoints."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from transformers.utils.generic import TransformersKwargs


# Keywords that a forward pass takes without naming them: of transformers, of its earlier versions, and of PEFT.
_KEYWORDS_OF_OTHERS = frozenset(TransformersKwargs.__optional_keys__) | {
    *("adapter_names", "cache_position", "cross_attn_head_mask", "decoder_head_mask", "head_mask", "logits_to_keep"),
    *("return_dict", "special_tokens_mask", "task_ids", "token_type_ids"),
}

Forward = TypeVar("Forward", bound=Callable[..., Any])


def with_prefix_of_adapter(forward: Forward) -> Forward:
    """Lets `generate()` begin with the keys and values of PEFT's prefix tuning.

    PEFT 0.21 passes them at each step as `past_key_values`, the former name of `cache`, beside the cache of the
    search. transformers leaves the former out, so that the prefix has no effect. Here the first step reads it, and
    where nothing is cached, each step.
    """

    @functools.wraps(forward)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("cache") is not None and kwargs.get("past_key_values") is not None:
            prefix, cache = kwargs.pop("past_key_values"), kwargs["cache"]
            if cache.is_compileable:
                raise ValueError(
                    '`cache_implementation` must be "dynamic" with prefix tuning, but is one of a fixed size instead, '
                    "which has no room for the prefix. Leave it out."
                )
            if cache.get_seq_length() == 0 or kwargs.get("use_cache") is False:
                kwargs["cache"] = prefix
        return forward(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


def check_keywords(forward: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raises TypeError for a keyword that `forward` would swallow, such as a wrong name of one that it knows."""
    for name in keywords:
        if name not in _KEYWORDS_OF_OTHERS:
            known = [*inspect.signature(forward).parameters][1:-1]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise TypeError(
                f"`{name}` must be a keyword of the model's `forward`, but is none. The nearest one is `{near[0]}`."
            )


def check_ids_or_embeddings(owner: str, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
    """Raises ValueError unless one of ids (B, L) and embeddings (B, L, D) is given, and is not empty.

    Args:
        owner: The name of the class that takes them.
        input_ids: Token ids, or `None`.
        inputs_embeds: Their embeddings, or `None`.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError(
            f"Exactly one of ids and embeddings must be given to the {owner}, but "
            f"{'neither is' if input_ids is None else 'both are'}. Pass `input_ids` or `inputs_embeds` for the "
            "source, and `decoder_input_ids`, `decoder_inputs_embeds` or `labels` for the target."
        )
    given: Any = inputs_embeds if input_ids is None else input_ids
    if 0 in given.shape:
        raise ValueError(
            f"A batch must have at least one row and one token, but that of the {owner} has the shape "
            f"{tuple(given.shape)}. Leave empty batches out."
        )
