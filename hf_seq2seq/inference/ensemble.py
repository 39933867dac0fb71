"""Several models that translate together."""

import copy
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from hf_seq2seq.model import Seq2SeqTransformerForConditionalGeneration, Seq2SeqTransformerPreTrainedModel
from hf_seq2seq.model.generation_seq2seq_transformer import (
    Seq2SeqTransformerGenerationConfig,
    Seq2SeqTransformerGenerationMixin,
)
from hf_seq2seq.token_lookup import vocabulary


class Ensemble(Seq2SeqTransformerPreTrainedModel, Seq2SeqTransformerGenerationMixin):
    """Predicts each next token with the mean of several models' probabilities (Sutskever et al. 2014, section 3.6).

    `generate()` searches with it as with one model. Its generation settings are those of the first model. It cannot be
    trained or saved.

    Shapes: B batch, S source length, T target length, D the sum of the models' widths, V vocabulary.

    Args:
        members: The models, of one vocabulary; they are put in evaluation mode.

    Raises:
        ValueError: If there are fewer than two models, or their vocabularies or special tokens differ.
    """

    generation_config_class = Seq2SeqTransformerGenerationConfig

    def __init__(self, members: Sequence[Seq2SeqTransformerForConditionalGeneration]) -> None:
        if len(members) < 2:
            raise ValueError(f"An ensemble must have at least 2 models, but has {len(members)}.")
        configs = [member.config for member in members]
        for name in ("vocab_size", "decoder_vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id"):
            found = [getattr(config, name) for config in configs]
            if any(value != found[0] for value in found):
                raise ValueError(
                    f"`{name}` must be the same in all models of an ensemble, but is {', '.join(map(str, found))}."
                )
        config = copy.deepcopy(configs[0])
        config.decoder_layers = sum(each.decoder_layers for each in configs)  # for a cache of all layers
        learned = [each for each in configs if each.position_embedding_type == "learned"]
        if learned:
            config.position_embedding_type = "learned"
            config.max_position_embeddings = min(each.max_position_embeddings for each in learned)
        super().__init__(config)
        self.generation_config = copy.deepcopy(members[0].generation_config)
        self.encoder = _Encoders(members)
        self.eval()

    @property
    def members(self) -> list[Seq2SeqTransformerForConditionalGeneration]:
        """The models."""
        return list(self.encoder.members)  # type: ignore[arg-type]

    def get_encoder(self, modality: str | None = None) -> Any:
        """Returns what encodes a source with all models."""
        return self.encoder

    def set_attn_implementation(self, *arguments: Any, **options: Any) -> None:
        """Changes the attention implementation of all models."""
        for member in self.members:
            member.set_attn_implementation(*arguments, **options)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shifts labels (B, T) right by one, as the first model does."""
        return self.members[0].prepare_decoder_input_ids_from_labels(labels)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: EncoderDecoderCache | None = None,
        output_attentions: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Returns the logarithm of the mean probabilities as logits (B, T, V); otherwise as one model does.

        With `output_attentions`, `cross_attentions` has one tensor (B, 1, T, S): the mean over all models of the heads
        of their last layer but one.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        is_mapping = isinstance(encoder_outputs, Mapping)
        states = encoder_outputs["last_hidden_state"] if is_mapping else encoder_outputs[0]
        log_probs: torch.Tensor | None = None
        attentions = []
        for member, of_member, member_cache in zip(
            self.members, self.encoder.parts(states), self._caches(cache), strict=True
        ):
            outputs = member(
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                decoder_attention_mask=decoder_attention_mask,
                encoder_outputs=BaseModelOutput(last_hidden_state=of_member),
                cache=member_cache,
                use_cache=cache is not None,
                output_attentions=output_attentions,
            )
            found = outputs.logits.float().log_softmax(dim=-1)
            log_probs = found if log_probs is None else torch.logaddexp(log_probs, found)
            if output_attentions:
                attentions.append(outputs.cross_attentions[-2:][0].float().mean(dim=1, keepdim=True))
        assert log_probs is not None
        return Seq2SeqLMOutput(
            logits=log_probs - math.log(len(self.members)),
            cache=cache,
            encoder_last_hidden_state=states,
            cross_attentions=(torch.stack(attentions).mean(dim=0),) if attentions else None,
        )

    def _caches(self, cache: EncoderDecoderCache | None) -> list[EncoderDecoderCache | None]:
        """Returns for each model its layers of a cache, or None."""
        if cache is None:
            return [None] * len(self.members)
        numbers = [member.config.decoder_layers for member in self.members]
        return [
            EncoderDecoderCache(
                _layers(cache.self_attention_cache, *places), _layers(cache.cross_attention_cache, *places)
            )
            for places in pairwise(accumulate(numbers, initial=0))
        ]


def _layers(cache: Any, start: int, end: int) -> Any:
    part = copy.copy(cache)
    part.layers = cache.layers[start:end]  # which the whole cache and the part share
    return part


class _Encoders(nn.Module):
    """Encodes a source with several models.

    Args:
        members: The models.
    """

    main_input_name = "input_ids"

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        """Returns the models' states side by side, so that what selects rows selects those of all, (B, S, D)."""
        members: Any = self.members
        states = [
            member.get_encoder()(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            for member in members
        ]
        return BaseModelOutput(last_hidden_state=torch.cat(states, dim=-1))

    def parts(self, states: torch.Tensor) -> Sequence[torch.Tensor]:
        """Returns the states of each model."""
        members: Any = self.members
        parts: Sequence[torch.Tensor] = states.split([member.config.d_model for member in members], dim=-1)
        return parts


def check_same_tokenizer(
    tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase, name: object, other_name: object
) -> None:
    """Checks that two models read and write the same tokens by the same ids.

    Raises:
        ValueError: If they do not.
    """
    if any(vocabulary(tokenizer, side) != vocabulary(other, side) for side in ("source", "target")):
        raise ValueError(
            f"The models of an ensemble must have the same vocabulary, but `{other_name}` has another one than "
            f"`{name}`. Train both with one tokenizer (`--tokenizer`)."
        )
