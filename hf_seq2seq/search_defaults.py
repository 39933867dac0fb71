"""The search that texts are translated with where nobody chooses another."""

from typing import TYPE_CHECKING, Any

from .model.generation_seq2seq_transformer import PAPER_SEARCH


if TYPE_CHECKING:
    from transformers import GenerationConfig


def default_search(generation_config: "GenerationConfig") -> dict[str, Any]:
    """Returns `num_beams`, `length_penalty` and `early_stopping`, none of them None.

    They are what generation settings say. Settings without `num_beams` choose no search: then what they lack is the
    paper's. So it is for `num_beams` 1, to which the other two mean nothing, until a caller asks for more beams.
    Settings that choose a beam have transformers' own values for what they lack.

    Args:
        generation_config: The generation settings of a model.
    """
    usual: dict[str, Any] = {"length_penalty": 1.0, "early_stopping": False}
    if (generation_config.num_beams or 1) == 1:
        usual = PAPER_SEARCH
    said = {name: getattr(generation_config, name) for name in PAPER_SEARCH}
    return usual | {name: value for name, value in said.items() if value is not None}
