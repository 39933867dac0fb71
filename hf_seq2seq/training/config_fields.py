"""The fields of the model's config as options of a run, so that no list of them is kept."""

from dataclasses import field, fields
from types import UnionType
from typing import TypeVar, get_args

from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig


# `use_cache` is a training argument too, and an encoder-decoder is nothing else.
_NOT_MODEL_ARGUMENTS = ("use_cache", "is_encoder_decoder")

T = TypeVar("T", bound=type)


def config_field_names() -> list[str]:
    """Returns the names of the config's own fields that are options, so that no list of them is kept here."""
    own = Seq2SeqTransformerConfig.__annotations__
    names = [field.name for field in fields(Seq2SeqTransformerConfig)]
    return [name for name in names if name in own and name not in _NOT_MODEL_ARGUMENTS]


def with_config_fields(cls: T) -> T:
    """Adds the config's fields to a class that is about to become a dataclass; None means the preset's value."""
    for name in config_field_names():
        if name in cls.__annotations__:
            continue
        kind = Seq2SeqTransformerConfig.__annotations__[name]
        if isinstance(kind, UnionType):  # `int | None`, and `float | int` or `int | list[int]`: the first says it all
            kind = get_args(kind)[0]
        bare = {"nargs": "?", "const": True} if kind is bool else {}
        cls.__annotations__[name] = kind | None
        setattr(cls, name, field(default=None, metadata=bare))
    return cls
