# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""The tables of the vocabulary: which of them are one, and how they grow with it.

There are three: source embeddings, target embeddings and the output projection. The config's
`share_encoder_decoder_embeddings` makes one of the first two, and `tie_word_embeddings` one of the last two. This file
travels with published checkpoints.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel


class Seq2SeqTransformerVocabulary(PreTrainedModel):
    """A model of transformers with these tables, or with the first two of them."""

    base_model: Any

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Returns {target: source} of the tied weights.

        The base class drops every tie where `tie_word_embeddings` is false; here that frees only the output
        projection, and source and target embeddings stay shared where `share_encoder_decoder_embeddings` says so.
        """
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        ties = dict(self._tied_weights_keys or {})
        if not self.config.tie_word_embeddings:
            ties.pop("lm_head.weight", None)
        return ties

    @property
    def _keys_to_ignore_on_save(self) -> set[str]:
        """Names of weights that are stored under another name: a trainer that goes on does not miss them."""
        weights = dict(self.named_parameters(remove_duplicate=False))
        tied = self.all_tied_weights_keys.items()
        return {target for target, source in tied if target in weights and weights[target] is weights.get(source)}

    @_keys_to_ignore_on_save.setter
    def _keys_to_ignore_on_save(self, names: set[str]) -> None:
        """Ignores what the base class sets, which are the names that classes list: ours list none."""

    def tie_weights(self, missing_keys: set[str] | None = None, recompute_mapping: bool = True) -> None:
        """Makes one of the tables that the config ties, and loads one that the weights do not have from its twin.

        So `from_pretrained(folder, tie_word_embeddings=False)` gives the output projection of a tied model a copy of
        the table, not random numbers, and `share_encoder_decoder_embeddings=False` the target likewise.

        Args:
            missing_keys: The names that were not in a checkpoint; those that are filled in are removed.
            recompute_mapping: Whether the config is asked anew what is tied.
        """
        missing = missing_keys or set()
        for target, source in self._twins().items():
            if target in missing and target not in self.all_tied_weights_keys and source not in missing:
                copy, table = self.get_parameter(target), self.get_parameter(source)
                if copy.shape == table.shape:
                    with torch.no_grad():
                        copy.copy_(table)
                    missing.remove(target)
        super().tie_weights(missing_keys=missing_keys, recompute_mapping=recompute_mapping)

    def _twins(self) -> dict[str, str]:
        """Returns {target: source} of the tables that a config may tie, those that others are copied from first."""
        prefix = "" if self.base_model is self else f"{self.base_model_prefix}."
        source, target = (f"{prefix}{stack}.embed_tokens.weight" for stack in ("encoder", "decoder"))
        twins = {target: source}
        if hasattr(self, "lm_head"):
            twins["lm_head.weight"] = source if self.config.share_encoder_decoder_embeddings else target
        return twins

    def get_input_embeddings(self) -> nn.Embedding:
        """Returns the source's table, which is the target's too where they are shared."""
        embeddings: nn.Embedding = self.base_model.encoder.embed_tokens
        return embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Sets the source's table, and the target's where they are shared."""
        self.base_model.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.base_model.decoder.embed_tokens = value

    def get_decoder_input_embeddings(self) -> nn.Embedding:
        """Returns the target's table."""
        embeddings: nn.Embedding = self.base_model.decoder.embed_tokens
        return embeddings

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resizes the source's table and, where it is shared, the target's and the output projection."""
        embeddings: nn.Embedding = self._get_resized_embeddings(
            self.get_input_embeddings(), new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        self.set_input_embeddings(embeddings)
        if self.config.share_encoder_decoder_embeddings:
            self._follow_target(embeddings.num_embeddings, mean_resizing)
        return embeddings

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        """Resizes the target's table and the output projection where the source has a table of its own.

        Args:
            new_num_tokens: The new number of target tokens; new rows are added, or rows removed, at the end.
            pad_to_multiple_of: Rounds the number up to a multiple, for tensor cores.
            mean_resizing: Whether new rows are drawn around the mean of the old ones.

        Returns:
            The target's embedding table.

        Raises:
            ValueError: If source and target share one table.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError(
                "`resize_decoder_token_embeddings` needs `share_encoder_decoder_embeddings=False`, but it is True. "
                "Call `resize_token_embeddings`, which resizes the shared table."
            )
        embeddings: nn.Embedding = self._get_resized_embeddings(
            self.get_decoder_input_embeddings(), new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        self.base_model.decoder.embed_tokens = embeddings
        self._follow_target(embeddings.num_embeddings, mean_resizing)
        self.tie_weights()
        return embeddings

    def _follow_target(self, num_tokens: int, mean_resizing: bool) -> None:
        """Makes the config and the output projection, where there is one, follow the target's table."""
        self.config.decoder_vocab_size = num_tokens
        if hasattr(self, "lm_head"):
            head: nn.Linear = self.lm_head
            self.lm_head = self._get_resized_lm_head(head, num_tokens, mean_resizing=mean_resizing)
            self.lm_head.requires_grad_(head.weight.requires_grad)
