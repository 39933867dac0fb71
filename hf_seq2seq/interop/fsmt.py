"""Turns FSMT models, which are fairseq's translation models in transformers, into ours, with the same logits.

fairseq's sinusoids have other frequencies than the paper's, so their table becomes a table of learned positions.
"""

import logging
from typing import Any

import torch
from torch import nn
from transformers import FSMTForConditionalGeneration, FSMTTokenizer, PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration

from .stock_models import Weights, import_stock_model, load_stock_tokenizer


logger = logging.getLogger(__name__)

_NAMES = {"model.decoder.output_projection.weight": "lm_head.weight"}


def from_fsmt(path_or_repo: PathLike) -> Seq2SeqTransformerForConditionalGeneration:
    """Loads an FSMT model as ours, with the same logits and the same outputs of `generate()`.

    There are three differences. Positions become a learned table: training changes them, and longer texts are refused.
    The table has as many rows as `max_position_embeddings`, or as the longest output that the generation settings
    allow. Layers are not dropped in training (`encoder_layerdrop`, `decoder_layerdrop`), which a warning says. And
    padding in the target is masked only by `decoder_attention_mask`, where FSMT masks it by its id.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub, with safetensors files or pytorch_model.bin.

    Returns:
        The model, in evaluation mode.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If it holds another kind of model, or one that cannot be represented; all reasons are named.
    """
    return import_stock_model(path_or_repo, FSMTForConditionalGeneration, _convert)


def load_fsmt_tokenizer(path_or_repo: PathLike) -> PreTrainedTokenizerBase | None:
    """Loads the tokenizer of an FSMT model. Its separator, which ends every text, becomes its `eos_token`.

    Args:
        path_or_repo: A folder, or the name of a repository on the Hub.

    Returns:
        The tokenizer, or None if there are no tokenizer files. FSMT's tokenizer cannot encode targets: if source and
        target have different vocabularies, it can be used to translate, but not to train, which a warning says.

    Raises:
        OSError: If there is no such folder or repository.
        ValueError: If a file is missing or damaged, or sacremoses is not installed.
    """
    files = ("vocab-src.json", "vocab-tgt.json", "merges.txt", "tokenizer_config.json")  # the last names the languages
    tokenizer: Any = load_stock_tokenizer(path_or_repo, FSMTTokenizer, files)
    if tokenizer is None:
        return None
    if tokenizer.eos_token is None:
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.encoder != {token: token_id for token_id, token in tokenizer.decoder.items()}:
        logger.warning(
            "FSMT's tokenizer encodes all texts with the source's vocabulary, and the target has another: it is fit "
            "for translation, but not for training on."
        )
    return tokenizer  # type: ignore[no-any-return]


def import_model(
    path_or_repo: PathLike,
) -> tuple[Seq2SeqTransformerForConditionalGeneration, PreTrainedTokenizerBase | None]:
    """Loads an FSMT model as ours, and its tokenizer or None, for the verb `import`."""
    return from_fsmt(path_or_repo), load_fsmt_tokenizer(path_or_repo)


def _convert(fsmt: Any, weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Returns fields of our config, and our weights by name, for an FSMT model and its weights."""
    weights = {_NAMES.get(name, name): tensor for name, tensor in weights.items()}
    encoder, decoder = fsmt.model.encoder, fsmt.model.decoder
    num_positions = max(fsmt.config.max_position_embeddings, fsmt.generation_config.max_length or 0)
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        weights[f"model.{name}.embed_positions.weight"] = _position_table(stack.embed_positions, num_positions)
    target_table = decoder.embed_tokens.weight
    # Files of earlier versions have no output projection, since fairseq's models share it with the target's table.
    is_tied = decoder.output_projection.weight is target_table or "lm_head.weight" not in weights
    fields = {
        "vocab_size": encoder.embed_tokens.weight.shape[0],
        "decoder_vocab_size": target_table.shape[0],
        "share_encoder_decoder_embeddings": encoder.embed_tokens.weight is target_table,
        "tie_word_embeddings": is_tied,
        "attention_bias": True,
        "position_embedding_type": "learned",
        "max_position_embeddings": num_positions,
    }
    return fields, weights


@torch.no_grad()
def _position_table(positions: nn.Embedding, length: int) -> torch.Tensor:
    """Returns the vectors of positions 0 to L - 1, shape (L, D).

    In FSMT's table they begin after the row of the padding's id. A table that is too short is made longer, as FSMT's
    own forward does.
    """
    start = (positions.padding_idx or 0) + 1
    if start + length > positions.num_embeddings:
        positions.make_weight(start + length, positions.embedding_dim, positions.padding_idx)  # type: ignore[operator]
    return positions.weight[start : start + length]
