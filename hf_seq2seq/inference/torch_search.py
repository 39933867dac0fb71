"""Search for outputs, and score given ones, with a model in PyTorch."""

import copy
import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel

from hf_seq2seq.model.generation_seq2seq_transformer import fill_special_tokens
from hf_seq2seq.model.private_copy import private_copy
from hf_seq2seq.output_limits import OutputLimits, end_ids, up_to_end

from .constrained_search import ConstrainedSearch, RequiredPhrases
from .diversity import SiblingPenalty
from .fast_search import FastSearch
from .padding import pad_rows
from .sampling import SeededSampling
from .segment import Ids, Output, Segment
from .settings import DecodingSettings


class TorchSearch:
    """Runs `generate` on batches of segments.

    A forked process computes with one thread: PyTorch would wait in it, for ever, for the threads of its parent.

    Args:
        model: A sequence-to-sequence model; it is put in evaluation mode.
    """

    name = "torch"
    lacks: Sequence[str] = ()

    def __init__(self, model: PreTrainedModel) -> None:
        self.model: Any = model.eval()
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model,)

    @property
    def generation_config(self) -> GenerationConfig:
        """The model's own settings, which hold where an option is not given."""
        settings: GenerationConfig = copy.copy(self.model.generation_config)
        fill_special_tokens(settings, self.model.config)
        return settings

    @property
    def vocab_size(self) -> int:
        """The size of the source's vocabulary."""
        return int(self.model.config.vocab_size)

    @property
    def num_positions(self) -> float:
        """The most tokens of a text that the model has positions for."""
        config = self.model.config
        is_learned = getattr(config, "position_embedding_type", None) == "learned"
        return float(config.max_position_embeddings) if is_learned else math.inf

    @torch.inference_mode()
    def search(self, segments: Sequence[Segment], settings: DecodingSettings) -> list[list[Output]]:
        """Searches for the outputs of a batch.

        Args:
            segments: Segments with their token ids; each output begins with the `prefix_ids`.
            settings: How to search.

        Returns:
            For each segment its `num_hypotheses` outputs, the best first: without the start token, and with the end
            token unless the greatest length was reached, which is each segment's own.
        """
        self._settle_after_fork()
        config, device = self.model.config, self.model.device
        input_ids, mask = pad_rows([segment.ids for segment in segments], config.pad_token_id, device)
        start = self.generation_config.decoder_start_token_id
        if start is None:
            raise ValueError(
                "`decoder_start_token_id` must be the id of the token that outputs start from, but the model's "
                "`generation_config` has None. Set it there."
            )
        starts = [[int(start), *segment.prefix_ids] for segment in segments]
        start_ids, start_mask = pad_rows(starts, config.pad_token_id, device, side="left")
        limits = torch.tensor(
            [
                settings.longest_output(len(segment.ids), len(segment.prefix_ids), self.num_positions)
                for segment in segments
            ]
        )
        padding = start_ids.shape[1] - start_mask.sum(dim=1).cpu()  # before the start token
        last_columns = limits + padding  # of an output that is as long as may be; the start token is in column 0
        arguments = generate_arguments(settings, self.generation_config)
        if any(segment.required for segment in segments):
            continuing_ids = settings.terms.continuing_ids if settings.terms is not None else ()
            arguments["custom_generate"] = ConstrainedSearch(
                [RequiredPhrases(segment.required, continuing_ids) for segment in segments],
                (last_columns + 1 - start_ids.shape[1]).tolist(),
            )
        arguments["logits_processor"] = self._processors(
            segments, settings, start_ids.shape[1], int(last_columns.max())
        )
        fast_search = FastSearch.for_call(self.model, arguments, end_ids(self.generation_config))
        if fast_search is not None:
            room = [int(last) + 1 - start_ids.shape[1] for last in last_columns]
            found = fast_search(input_ids, mask, start_ids, start_mask, room)
            return [
                [Output([*segment.prefix_ids, *ids]) for ids in of_segment]
                for segment, of_segment in zip(segments, found, strict=True)
            ]
        outputs = self.model.generate(
            input_ids=input_ids,
            attention_mask=mask,
            decoder_input_ids=start_ids,
            decoder_attention_mask=start_mask if start_ids.shape[1] > 1 else None,
            max_length=1 + int(last_columns.max()),  # with the start token
            stopping_criteria=[OutputLimits(last_columns.to(device))],
            **arguments,
        )
        rows, ends = outputs.tolist(), end_ids(self.generation_config)
        number = len(rows) // len(segments)
        return [
            [Output(up_to_end(ids[1 + pad : 1 + last], ends)) for ids in rows[number * row : number * (row + 1)]]
            for row, (pad, last) in enumerate(zip(padding.tolist(), last_columns.tolist(), strict=True))
        ]

    @torch.inference_mode()
    def score(self, sources: Sequence[Ids], outputs: Sequence[Ids], *, with_attention: bool) -> list[Output]:
        """Returns outputs with the log-probabilities of their tokens, each given its source and the tokens before.

        Args:
            sources: Token ids of each source.
            outputs: Token ids of an output of each, none of them empty.
            with_attention: Whether the attention to the source is returned too.
        """
        self._settle_after_fork()
        device = self.model.device
        input_ids, mask = pad_rows(sources, self.model.config.pad_token_id, device)
        labels, _ = pad_rows(outputs, -100, device)
        model = self.model
        if with_attention:  # which only the eager implementation returns, and others may use the model meanwhile
            model = private_copy(model)
            model.set_attn_implementation("eager")
        predicted = model(
            input_ids=input_ids,
            attention_mask=mask,
            decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
            output_attentions=with_attention,
        )
        log_probs = predicted.logits.float().log_softmax(dim=-1)  # (B, T, V)
        of_labels = log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1).cpu()  # (B, T)
        attention = None
        if with_attention:
            attention = predicted.cross_attentions[-2:][0].float().mean(dim=1).cpu()  # (B, H, T, S) -> (B, T, S)
        return [
            Output(
                ids,
                of_labels[row, : len(ids)].tolist(),
                None if attention is None else attention[row, : len(ids), : len(sources[row])],
            )
            for row, ids in enumerate(outputs)
        ]

    def _processors(
        self, segments: Sequence[Segment], settings: DecodingSettings, start: int, last_column: int
    ) -> list[LogitsProcessor]:
        """Returns what changes the scores of the next tokens beside what `generate` itself does.

        Args:
            segments: The segments of the batch.
            settings: How to search.
            start: Number of columns before the first new token.
            last_column: The last column that any output may have.
        """
        processors: list[LogitsProcessor] = [] if settings.bad_words is None else [settings.bad_words]
        if settings.seed is not None:
            num_steps = last_column + 1 - start
            processors.append(SeededSampling(settings, segments, start=start, num_steps=num_steps))
        if settings.diversity_rate is not None:
            num_ends = len(end_ids(self.generation_config))
            num_ranks = max(2, 1 + num_ends) * settings.beam_size  # as many as `generate` looks at
            processors.append(SiblingPenalty(settings.diversity_rate, num_ranks))
        return processors

    def _settle_after_fork(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            torch.set_num_threads(1)


def generate_arguments(settings: DecodingSettings, generation_config: GenerationConfig) -> dict[str, Any]:
    """Returns settings as arguments of `generate`, without those of the model that would end an output elsewhere.

    Args:
        settings: The settings.
        generation_config: The model's own.
    """
    is_greedy = settings.beam_size == 1
    arguments: dict[str, Any] = {
        "num_beams": settings.beam_size,
        "num_return_sequences": settings.num_hypotheses,
        "do_sample": settings.do_sample,
        # Without beams `generate` uses neither of the two, and warns of other values than these.
        "early_stopping": False if is_greedy else settings.early_stopping,
        "length_penalty": 1.0 if is_greedy else settings.length_exponent,
        "use_cache": True,
        "suppress_tokens": list(settings.banned_ids) or None,
        "max_new_tokens": None,
        "forced_eos_token_id": None,  # it would force the end at the greatest length of the batch
        "return_dict_in_generate": False,
    }
    if hasattr(generation_config, "gnmt_penalty"):  # which `length_exponent` has taken into account
        arguments["gnmt_penalty"] = False
    if settings.min_new_tokens is not None:
        arguments["min_new_tokens"] = settings.min_new_tokens
    if settings.seed is not None:  # then `SeededSampling` draws
        arguments |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    elif settings.do_sample:
        arguments |= {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
    return arguments
