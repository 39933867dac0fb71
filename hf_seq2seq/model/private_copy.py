"""A model of one's own that shares its weights with others."""

import copy
from typing import TypeVar

from torch import nn


Model = TypeVar("Model", bound=nn.Module)


def private_copy(model: Model) -> Model:
    """Returns a copy of a model that shares its weights, with settings and hooks of its own.

    What is done to the copy, such as another attention implementation or a hook, other users of the model don't see:
    they may run it at the same time.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)
