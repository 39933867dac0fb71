"""Names of token ids, also where source and target have vocabularies of their own, as MarianMT's and FSMT's may.

Such a tokenizer turns tokens into ids by the source's vocabulary, and ids into tokens by the target's.
"""

from collections.abc import Sequence
from typing import Any, Literal

from transformers import FSMTTokenizer, PreTrainedTokenizerBase


Side = Literal["source", "target"]


def vocabulary(tokenizer: PreTrainedTokenizerBase, side: Side) -> dict[str, int]:
    """Returns the id of each token of a side."""
    stock: Any = tokenizer
    if side == "target" and isinstance(tokenizer, FSMTTokenizer):
        return {token: number for number, token in stock.decoder.items()}
    if side == "target" and getattr(tokenizer, "separate_vocabs", False):  # MarianMT's
        return dict(stock.target_encoder)
    return dict(tokenizer.get_vocab())


def ids_to_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], side: Side) -> list[str | None]:
    """Returns the tokens of a side's ids; None for an id that the vocabulary does not hold."""
    if side == "source" and (isinstance(tokenizer, FSMTTokenizer) or getattr(tokenizer, "separate_vocabs", False)):
        tokens = {number: token for token, number in vocabulary(tokenizer, side).items()}
        return [tokens.get(number) for number in ids]
    return list(tokenizer.convert_ids_to_tokens(list(ids)))


def encode_targets(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[list[int]]:
    """Returns the ids of each text of the target's side.

    Raises:
        ValueError: If the tokenizer encodes sources alone.
    """
    check_encodes_targets(tokenizer)
    ids: list[list[int]] = tokenizer(text_target=list(texts), verbose=False, **options)["input_ids"]
    return ids


def check_encodes_targets(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError where the tokenizer would encode a target with the source's vocabulary."""
    if isinstance(tokenizer, FSMTTokenizer) and tokenizer.get_src_vocab() != vocabulary(tokenizer, "target"):
        raise ValueError(
            f"The tokenizer of `{tokenizer.name_or_path}` must encode targets, but is an FSMTTokenizer with a "
            "vocabulary for each side, which encodes sources alone. Such a model can translate, but not be trained "
            "further, nor be given a text of the target's side."
        )
