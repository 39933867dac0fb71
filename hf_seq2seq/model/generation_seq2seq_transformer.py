# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""What `generate()` does otherwise than for other models of transformers: its defaults, and a leaner beam search.

Beams share the encoder's output of their source, and a sentence whose result is settled is not computed any further.
On a CPU in float32, all steps but the first are computed from packed weights. The results are those of transformers'
own search. This file travels with published checkpoints.

Shapes: a search has one row for each beam of each sentence, those of one sentence being neighbours.
"""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation.configuration_utils import GenerationConfig
from transformers.generation.logits_process import LogitsProcessor, LogitsProcessorList, SuppressTokensLogitsProcessor
from transformers.generation.utils import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import logging

from .configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from .packed_seq2seq_transformer import PackedNetwork, SearchCache, packed_network


logger = logging.get_logger(__name__)

# The search of Vaswani et al. (2017), section 6.1, as options of `generate()`. With `early_stopping=True` a sentence
# would be done with its fourth finished hypothesis, and a sure model's three poor ones are often shorter than the good
# one, so that they finish first and one of them wins.
PAPER_SEARCH: dict[str, Any] = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False}


def generation_defaults(config: Seq2SeqTransformerConfig) -> dict[str, Any]:
    """Returns what a new model's `generation_config` says: the tokens that are never written, and a limit.

    The limit of 256 tokens counts the start token. The last token of an output is never an input of the decoder, so a
    learned table of N positions allows N tokens after the start token. The search is left open, which for `generate()`
    means greedy search, as for other new models of transformers.
    """
    is_learned = config.position_embedding_type == "learned"
    eos_ids = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    return {
        "max_length": min(256, config.max_position_embeddings + 1) if is_learned else 256,
        "suppress_tokens": sorted({config.pad_token_id, config.decoder_start_token_id} - {None, *eos_ids}) or None,
    }


class GnmtPenalty(float):
    """The alpha of a length penalty of ((5 + length) / 6) ** alpha, which `length ** GnmtPenalty(alpha)` is.

    It is that of Wu et al. (2016), equation 14 (https://arxiv.org/abs/1609.08144), which Vaswani et al. (2017) used
    (section 6.1). transformers' search divides log-probabilities by `length ** length_penalty`.
    """

    def __rpow__(self, length: Any, modulus: Any = None) -> Any:
        """Returns the penalty of a length."""
        return ((5 + length) / 6) ** float(self)


class Seq2SeqTransformerGenerationConfig(GenerationConfig):
    """Settings that leave the search open for as long as nobody chooses one.

    transformers' trainer writes the defaults of all settings into a model's own when it evaluates: then the file would
    say that greedy search was chosen.
    """

    @staticmethod
    def _get_default_generation_params() -> dict[str, Any]:
        defaults = GenerationConfig._get_default_generation_params()
        return {name: value for name, value in defaults.items() if name not in PAPER_SEARCH}

    def to_dict(self) -> dict[str, Any]:
        """Leaves `_from_model_config` out: beside it transformers drops settings that it does not know."""
        return {name: value for name, value in super().to_dict().items() if name != "_from_model_config"}


def fill_special_tokens(settings: GenerationConfig, config: Seq2SeqTransformerConfig) -> None:
    """Gives settings without a start token, as `GenerationConfig(num_beams=1)` makes them, the special tokens."""
    if settings.decoder_start_token_id is None:
        for name in ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"):
            if getattr(settings, name) is None:
                setattr(settings, name, getattr(config, name))


def without_unused_settings(settings: GenerationConfig) -> GenerationConfig:
    """Returns a copy without what greedy search does not read: transformers warns of it, and refuses to save it."""
    copied = copy.deepcopy(settings)
    if copied.num_beams == 1:
        copied.length_penalty = copied.early_stopping = None
    return copied


class Seq2SeqTransformerGenerationMixin(GenerationMixin):
    """`generate()` for a model with an encoder, a decoder and an output projection."""

    config: Seq2SeqTransformerConfig
    generation_config: GenerationConfig

    def adjust_generation_fn(self, *args: Any, **kwargs: Any) -> None:
        """Reads the settings of a folder as transformers does, which makes them of the base class."""
        stock: Any = super()
        stock.adjust_generation_fn(*args, **kwargs)
        self.generation_config.__class__ = Seq2SeqTransformerGenerationConfig

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """Completes the settings of a call as transformers does, without warnings that nobody's wish has caused.

        What the model's own settings lack is filled in, and a limit of theirs gives way to a call's `max_new_tokens`.
        With the setting `gnmt_penalty`, which transformers does not know, the length penalty is Wu et al.'s.
        """
        own: Any = without_unused_settings(self.generation_config)
        own.gnmt_penalty = bool(getattr(own, "gnmt_penalty", False))  # a call can set only what is there
        fill_special_tokens(own, self.config)
        model: Any = SimpleNamespace(config=self.config, generation_config=own)
        is_limited = kwargs.get("max_length", getattr(generation_config, "max_length", None)) is not None
        settings: Any
        settings, model_kwargs = GenerationMixin._prepare_generation_config(model, generation_config, **kwargs)
        settings.update(**GenerationConfig._get_default_generation_params(), defaults_only=True)
        if settings.max_new_tokens is not None and not is_limited:
            settings.max_length = None
        if settings.gnmt_penalty:
            settings.length_penalty = GnmtPenalty(settings.length_penalty)
        return settings, model_kwargs

    def _prefill(
        self,
        input_ids: torch.Tensor,
        generation_config: GenerationConfig,
        model_kwargs: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Computes the first step: the tokens that a cache of an earlier call does not hold.

        Raises:
            ValueError: If the search has beams, each of which would need a cache of its own, or the target does not
                begin with the tokens of the cache.
        """
        cache = model_kwargs.get("cache")
        length = 0 if cache is None else int(cache.get_seq_length())
        if length and (generation_config.num_beams or 1) > 1:
            raise ValueError(
                f"`num_beams` must be 1 to go on from a cache, but is {generation_config.num_beams} instead. Leave "
                "`cache` out: `decoder_input_ids` are then computed again."
            )
        if length >= input_ids.shape[1]:
            raise ValueError(
                f"`decoder_input_ids` must be all tokens so far, more than the {length} that the cache holds, but are "
                f"{input_ids.shape[1]} with the start token. Pass what `generate` returned, and what is to follow it."
            )
        if length and model_kwargs.get("decoder_attention_mask") is None:  # by which transformers knows what is new
            model_kwargs = model_kwargs | {"decoder_attention_mask": torch.ones_like(input_ids)}
        stock: Any = super()
        return stock._prefill(input_ids, generation_config, model_kwargs, *args, **kwargs)

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **model_kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Repeats the target's rows for the beams of a search, which share the encoder's unless a hook counts rows."""
        is_shared = is_encoder_decoder and not self._has_hooks_with_arguments()
        names = ("encoder_outputs", "attention_mask") if is_shared else ()
        shared = {name: model_kwargs.pop(name) for name in names if name in model_kwargs}
        stock: Any = super()
        input_ids, model_kwargs = stock._expand_inputs_for_generation(
            expand_size, is_encoder_decoder and not is_shared, input_ids, **model_kwargs
        )
        return input_ids, model_kwargs | shared

    def _reorder_cache(self, cache: EncoderDecoderCache, beam_idx: torch.Tensor) -> EncoderDecoderCache:
        """Lets the beams of a search change places; what they share of the encoder stays."""
        cache.self_attention_cache.reorder_cache(beam_idx)  # type: ignore[arg-type]
        return cache

    def _beam_search(  # type: ignore[override]  # whose types are narrower
        self,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        """Searches as transformers does, without computing more for sentences whose result is settled."""
        settings: Any = copy.copy(generation_config)
        if settings._eos_token_tensor is not None:
            # The search fills rows up with padding, or where that is id 0, which it takes for none, with the first end
            # token. It makes no other use of these tokens but to count them.
            settings._eos_token_tensor = settings._pad_token_tensor.expand_as(settings._eos_token_tensor)
        arguments: Any = (input_ids, logits_processor, stopping_criteria, settings)
        reason = self._why_no_row_may_leave(generation_config, model_kwargs)
        if reason is not None:
            logger.info_once(f"Beam search computes all sentences of a batch until the last one is done: {reason}.")
            stock: Any = super()
            return stock._beam_search(*arguments, **model_kwargs)
        network = self._network_for(input_ids, generation_config, model_kwargs)
        search: Any = (
            _BeamSearch(self, input_ids, generation_config.num_beams, model_kwargs)
            if network is None
            else _PackedBeamSearch(self, input_ids, generation_config.num_beams, model_kwargs, network)
        )
        return GenerationMixin._beam_search(search, *arguments, **model_kwargs)

    def _sample(  # type: ignore[override]  # whose types are narrower
        self,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        """Takes the likeliest token at each step, or draws one, as transformers does."""
        network = self._network_for(input_ids, generation_config, model_kwargs)
        search: Any = self if network is None else _PackedSampling(self, model_kwargs, network)
        arguments: Any = (input_ids, logits_processor, stopping_criteria, generation_config)
        return GenerationMixin._sample(search, *arguments, **model_kwargs)

    def _network_for(
        self, input_ids: torch.Tensor, generation_config: GenerationConfig, model_kwargs: dict[str, Any]
    ) -> PackedNetwork | None:
        """Returns the packed network that can compute the steps after the first, or None where only the model can."""
        cache, others = model_kwargs.get("cache"), set(model_kwargs) - _PACKED_INPUTS
        is_plain_cache = isinstance(cache, EncoderDecoderCache) and (
            type(cache.self_attention_cache) is type(cache.cross_attention_cache) is DynamicCache
        )
        if (
            torch.is_grad_enabled()
            or generation_config.return_dict_in_generate
            or not (is_plain_cache and model_kwargs.get("use_cache"))
            or getattr(cache, "_is_user_defined", False)
            or any(model_kwargs[name] is not None and model_kwargs[name] is not False for name in others)
            or any(mask is not None and mask.ndim != 2 for mask in map(model_kwargs.get, _MASKS))
        ):
            return None
        num_sources = len(model_kwargs["encoder_outputs"][0])
        prompts = input_ids.unflatten(0, (num_sources, -1))
        return packed_network(self) if bool((prompts == prompts[:, :1]).all()) else None

    def _why_no_row_may_leave(self, generation_config: GenerationConfig, model_kwargs: dict[str, Any]) -> str | None:
        """Returns why transformers' own search is needed, or None where it is not."""
        if generation_config.return_dict_in_generate:
            return "`return_dict_in_generate` asks for what each row gives"
        cache = model_kwargs.get("cache")
        if cache is not None and not (
            isinstance(cache, EncoderDecoderCache)
            and type(cache.self_attention_cache) is type(cache.cross_attention_cache) is DynamicCache
        ):
            return "only a dynamic cache can drop rows"
        if self._has_hooks_with_arguments():
            return "a hook on a part of the model, such as PEFT's for batches of several adapters, may count its rows"
        return None

    def _has_hooks_with_arguments(self) -> bool:
        """Returns whether a hook could give each row something of its own, as PEFT's give each row its adapter.

        Those of torch's FSDP, which stand on layers and models, do not.
        """
        model: Any = self
        return any(
            module._forward_pre_hooks_with_kwargs
            for module in model.modules()
            if not isinstance(module, GradientCheckpointingLayer | PreTrainedModel)
        )

    def _get_logits_processor(self, generation_config: GenerationConfig, *args: Any, **kwargs: Any) -> Any:
        """Bans tokens in place, where transformers' own processor copies all scores at each step."""
        stock: Any = super()
        processors = stock._get_logits_processor(generation_config, *args, **kwargs)
        if generation_config.output_logits:  # these are the very tensors
            return processors
        return LogitsProcessorList(
            _SuppressTokensInPlace(processor.suppress_tokens)
            if type(processor) is SuppressTokensLogitsProcessor and len(processor.suppress_tokens)
            else processor
            for processor in processors
        )


_MASKS = ("attention_mask", "decoder_attention_mask")
_PACKED_INPUTS = {*_MASKS, "encoder_outputs", "cache", "use_cache", "streamer"}


class _SuppressTokensInPlace(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    def __init__(self, token_ids: torch.Tensor) -> None:
        self.token_ids = token_ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill_(-1, self.token_ids, -torch.inf)


class _BeamSearch:
    """Stands in for a model in transformers' beam search, and gives it only the rows of unsettled sentences.

    In transformers' search a sentence is settled once no open beam can become better than its finished ones. Its rows
    are computed until the whole batch is settled, without an effect. Here they leave before the next step: the decoder
    and the cache get fewer rows, and the search gets zeros in place of the logits that are missing.

    The state of a search is this object's, and all that it does not define is the model's. Several searches can use
    one model at the same time.

    Args:
        model: The model.
        input_ids: What the search starts from, shape (rows, T).
        num_beams: Beams of a sentence.
        model_kwargs: What `generate` gives the model beside, with the encoder's output, one row for each sentence.
    """

    def __init__(
        self, model: Seq2SeqTransformerGenerationMixin, input_ids: torch.Tensor, num_beams: int, model_kwargs: Any
    ) -> None:
        self._model: Any = model
        self._beams = torch.arange(num_beams, device=input_ids.device)
        self._sentences = torch.arange(len(input_ids) // num_beams, device=input_ids.device)  # that have rows
        self._can_change = torch.ones_like(self._sentences, dtype=torch.bool)  # of all sentences
        self._new_places: torch.Tensor | None = None  # of all rows
        self._encoder_states = model_kwargs["encoder_outputs"][0]
        self._encoder_mask = model_kwargs.get("attention_mask")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **model_inputs: Any) -> Any:
        """Returns what the model does, with its logits in the rows of all sentences."""
        outputs = self._compute(**model_inputs)
        if len(self._sentences) < len(self._can_change):
            num_rows = len(self._can_change) * len(self._beams)
            logits = outputs.logits.new_zeros((num_rows, *outputs.logits.shape[1:]))
            outputs.logits = logits.index_copy_(0, self._rows(self._sentences).to(logits.device), outputs.logits)
        return outputs

    def _compute(self, **model_inputs: Any) -> Any:
        return self._model(**model_inputs)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        """Returns the model's inputs for the rows of sentences that can still change."""
        self._let_settled_sentences_leave(kwargs.get("cache"))
        rows = self._rows(self._sentences)
        of_rows = {
            name: value.index_select(0, rows.to(value.device))
            for name, value in kwargs.items()
            if isinstance(value, torch.Tensor) and len(value) == len(input_ids) and name != "attention_mask"
        }
        of_sentences = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=self._encoder_states),
            "attention_mask": self._encoder_mask,
        }
        return self._model.prepare_inputs_for_generation(input_ids[rows], **(kwargs | of_rows | of_sentences))

    def _let_settled_sentences_leave(self, cache: EncoderDecoderCache | None) -> None:
        """Keeps the rows of unsettled sentences, each in its new place, in the cache and in the encoder's output."""
        kept = self._can_change[self._sentences].nonzero()[:, 0]  # places among the sentences that have rows
        if not len(kept):  # all are settled, and this process computes on since others, with shards, are not done
            return
        sentences = self._sentences[kept]
        if cache is not None and self._new_places is not None:
            beams = self._new_places.view(-1, len(self._beams))[sentences] - sentences[:, None] * len(self._beams)
            self._model._reorder_cache(cache, self._rows(kept, beams))
            self._new_places = None
        if len(kept) < len(self._sentences):
            if cache is not None:
                cache.cross_attention_cache.reorder_cache(kept)  # type: ignore[arg-type]
            self._encoder_states = self._encoder_states.index_select(0, kept.to(self._encoder_states.device))
            if self._encoder_mask is not None:
                self._encoder_mask = self._encoder_mask.index_select(0, kept.to(self._encoder_mask.device))
        self._sentences = sentences

    def _rows(self, sentences: torch.Tensor, beams: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the numbers of the rows of sentences: of all their beams, or of the `beams` (sentences, beams)."""
        return (sentences[:, None] * len(self._beams) + (self._beams if beams is None else beams)).flatten()

    def _reorder_cache(self, cache: EncoderDecoderCache, beam_idx: torch.Tensor) -> EncoderDecoderCache:
        """Notes down which row takes which place in the next step."""
        self._new_places = beam_idx
        return cache

    def _check_early_stop_heuristic(self, **kwargs: Any) -> torch.Tensor:
        """Notes down which sentences can still change."""
        can_change: torch.Tensor = self._model._check_early_stop_heuristic(**kwargs)
        self._can_change = can_change[:, 0]
        return can_change


class _PackedBeamSearch(_BeamSearch):
    """The same, where all steps but the first are computed from packed weights.

    Args:
        model: The model.
        input_ids: What the search starts from, shape (rows, T).
        num_beams: Beams of a sentence.
        model_kwargs: What `generate` gives the model beside.
        network: The packed weights.
    """

    def __init__(
        self,
        model: Seq2SeqTransformerGenerationMixin,
        input_ids: torch.Tensor,
        num_beams: int,
        model_kwargs: Any,
        network: PackedNetwork,
    ) -> None:
        super().__init__(model, input_ids, num_beams, model_kwargs)
        self._network = network
        self._cache: SearchCache | None = None
        self._prompt_mask = model_kwargs.get("decoder_attention_mask")

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        """Returns the newest token of each beam that can still change, and which beam it goes on from."""
        num_beams = len(self._beams)
        if self._cache is None:
            self._cache = SearchCache.after_prompt(
                self._network, kwargs["cache"], self._encoder_mask, self._prompt_mask
            )
        kept = self._can_change[self._sentences].nonzero()[:, 0]
        if len(kept) < len(self._sentences):
            self._cache.keep(kept)
            self._sentences = self._sentences[kept]
        assert self._new_places is not None
        parents = self._new_places.view(-1, num_beams)[self._sentences] - self._sentences[:, None] * num_beams
        return {"tokens": input_ids[:, -1].view(-1, num_beams)[self._sentences], "parents": parents.long()}

    def _compute(self, **model_inputs: Any) -> Any:
        assert self._cache is not None
        logits = self._cache.step(model_inputs["tokens"], model_inputs["parents"])[..., : self._network.vocab_size]
        return Seq2SeqLMOutput(logits=logits.flatten(0, 1)[:, None])


class _PackedSampling:
    """Stands in for a model in transformers' greedy search and sampling, with packed weights after the first step.

    Args:
        model: The model.
        model_kwargs: What `generate` gives the model beside.
        network: The packed weights.
    """

    def __init__(self, model: Seq2SeqTransformerGenerationMixin, model_kwargs: Any, network: PackedNetwork) -> None:
        self._model, self._network = model, network
        self._masks = [model_kwargs.get(name) for name in _MASKS]
        self._num_sources = len(model_kwargs["encoder_outputs"][0])
        self._cache: SearchCache | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        """Returns the newest token of each row."""
        if self._cache is None:
            self._cache = SearchCache.after_prompt(self._network, kwargs["cache"], *self._masks)
        return {"tokens": input_ids[:, -1].view(self._num_sources, -1)}

    def __call__(self, tokens: torch.Tensor, **_: Any) -> Any:
        """Returns the logits after these tokens."""
        assert self._cache is not None
        num_samples = tokens.shape[1]
        parents = torch.arange(num_samples).expand(len(tokens), -1) if num_samples > 1 else None
        logits = self._cache.step(tokens, parents)[..., : self._network.vocab_size]
        return Seq2SeqLMOutput(logits=logits.flatten(0, 1)[:, None])
