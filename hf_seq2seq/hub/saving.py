"""Saves a model as it is published: its files, the code that loads them, and a model card.

`save_pretrained` itself, which `save_for_hub` calls, is in model/publishing_seq2seq_transformer.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike, new_folder
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerPreTrainedModel
from hf_seq2seq.tokenizer_pair import Seq2SeqTransformerTokenizerPair

from .card import CardFacts, make_card


README = "README.md"  # the Hub's name for the card


def save_for_hub(
    model: Seq2SeqTransformerPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: PathLike,
    *,
    card: CardFacts | None = None,
    repo_id: str | None = None,
) -> None:
    """Saves a model as it is published: weights, configs, tokenizer, the code that loads it, and a model card.

    The folder loads with `AutoConfig`, `AutoModel`, `AutoModelForSeq2SeqLM` and `AutoTokenizer`. Only where this
    package is not imported does that take `trust_remote_code=True`. A tokenizer for each side
    (`Seq2SeqTransformerTokenizerPair`) always takes this package.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        folder: A new or empty folder.
        card: What the card tells beside the architecture.
        repo_id: The name on the Hub that the card's examples load; by default the folder's name.

    Raises:
        TypeError: If the model is not one of this package.
        OSError: If the folder cannot be written.
        ValueError: If the folder is not empty.
    """
    if not isinstance(model, Seq2SeqTransformerPreTrainedModel):
        raise TypeError(
            f"`model` must be a model of hf_seq2seq, but is a {type(model).__name__} instead. Merge adapters into the "
            "model, and save that."
        )
    facts = card or CardFacts()
    if facts.tokenizer is None:
        facts = replace(facts, tokenizer=_describe_tokenizer(tokenizer))
    is_pair = isinstance(tokenizer, Seq2SeqTransformerTokenizerPair)
    text = make_card(facts, model.config, repo_id=repo_id or Path(folder).resolve().name, needs_package=is_pair)
    with model.carrying_code(), new_folder(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        text.save(unfinished / README)


def _describe_tokenizer(tokenizer: Any) -> str:
    if isinstance(tokenizer, Seq2SeqTransformerTokenizerPair):
        source, target = map(_describe_tokenizer, (tokenizer.source_tokenizer, tokenizer.target_tokenizer))
        return f"{source} of the source and {target} of the target"
    backend = getattr(tokenizer, "backend_tokenizer", None)
    kind = type(tokenizer).__name__ if backend is None else type(backend.model).__name__
    return f"{len(tokenizer):,} tokens ({kind})"
