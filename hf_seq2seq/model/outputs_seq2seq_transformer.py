# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""What the model returns. This file travels with published checkpoints."""

from dataclasses import dataclass
from typing import Any, NoReturn

from transformers.modeling_outputs import Seq2SeqLMOutput


class LogitsLeftOut:
    """Stands in for the logits that a training step does not form, and says how to get them to whoever uses it."""

    _message = (
        "`return_logits` must be True to read logits beside a loss in training mode, but is not. Call the model with "
        "`return_logits=True`, or without `labels`."
    )

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(self._message)

    def _refuse(self, *args: Any) -> NoReturn:
        raise TypeError(self._message)

    __getitem__ = __iter__ = __len__ = __bool__ = __float__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = __neg__ = _refuse

    @classmethod
    def __torch_function__(cls, *args: Any) -> NoReturn:
        raise TypeError(cls._message)


@dataclass
class Seq2SeqTransformerOutput(Seq2SeqLMOutput):
    """Loss, logits, cache and states. Logits that were left out are none of its items, as if they were None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logits is None and self.loss is not None:
            object.__setattr__(self, "logits", LogitsLeftOut())

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, None if isinstance(value, LogitsLeftOut) else value)  # as where an output is copied
