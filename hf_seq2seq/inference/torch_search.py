"""Search for outputs, and score given ones, with a model in PyTorch."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, StoppingCriteria

from hf_seq2seq.output_limits import end_ids, longest_output, up_to_end

from .hypothesis import Scores, SearchOptions
from .padding import pad_rows


_SAMPLING = ("temperature", "top_k", "top_p")

Ids = list[int]


class TorchSearch:
    """Runs `generate` on batches of token ids.

    Args:
        model: A sequence-to-sequence model; it is put in evaluation mode.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model: Any = model.eval()
        self._lock = Lock()  # the attention implementation, which `score` changes, is the whole model's

    @property
    def vocab_size(self) -> int:
        """The size of the source's vocabulary."""
        return int(self.model.config.vocab_size)

    @property
    def position_limit(self) -> float:
        """The most tokens of a text that the model has positions for."""
        config = self.model.config
        is_learned = getattr(config, "position_embedding_type", None) == "learned"
        return float(config.max_position_embeddings) if is_learned else math.inf

    def settings(self, options: SearchOptions) -> dict[str, Any]:
        """Checks options and puts them in terms of `generate`.

        Raises:
            ValueError: If one is out of range.
        """
        do_sample = options.get("do_sample", False)
        n_best = options.get("n_best", 1)
        default = 1 if do_sample else max(self.model.generation_config.num_beams or 1, n_best)
        beam_size = options.get("beam_size", default)
        check_search_options(options, beam_size, n_best)
        settings: dict[str, Any] = {"num_beams": beam_size, "num_return_sequences": n_best, "use_cache": True}
        settings |= {name: options[name] for name in _SAMPLING if name in options}  # type: ignore[literal-required]
        settings["do_sample"] = do_sample
        if beam_size == 1:
            return settings | {"early_stopping": False, "length_penalty": 1.0}  # generate warns of others: not used
        return settings | ({"length_penalty": options["length_penalty"]} if "length_penalty" in options else {})

    @torch.inference_mode()
    def search(self, sources: Sequence[Ids], prefixes: Sequence[Ids], settings: dict[str, Any]) -> list[list[Ids]]:
        """Returns for each source its outputs, the best first.

        Args:
            sources: Token ids of each source.
            prefixes: Token ids that each output begins with; may be empty.
            settings: What `settings` returned.

        Returns:
            Token ids without the start token and with the end token, unless the longest output was reached: that of
            a source is its length and 50 more.
        """
        with self._lock:
            return self._search(sources, prefixes, settings)

    def _search(self, sources: Sequence[Ids], prefixes: Sequence[Ids], settings: dict[str, Any]) -> list[list[Ids]]:
        limits = torch.tensor([longest_output(len(ids), self.position_limit) for ids in sources])
        starts, start_mask = self._pad([[self._start, *prefix] for prefix in prefixes], "left")
        input_ids, mask = self._pad(sources)
        padding = starts.shape[1] - start_mask.sum(dim=1).cpu()  # of the prefixes, before the start token
        last_columns = limits + padding  # of an output that is as long as may be
        has_prefix = starts.shape[1] > 1
        outputs = self.model.generate(
            input_ids=input_ids,
            attention_mask=mask,
            decoder_input_ids=starts,
            decoder_attention_mask=start_mask if has_prefix else None,
            max_length=1 + int(last_columns.max()),  # with the start token
            stopping_criteria=[_OutputLimits(last_columns.to(self.model.device))],
            forced_eos_token_id=None,  # it would force the end at the limit of the whole batch
            max_new_tokens=None,
            return_dict_in_generate=False,
            **settings,
        )
        n_best = len(outputs) // len(sources)
        rows, ends = outputs.tolist(), end_ids(self.model.generation_config)
        return [
            [up_to_end(ids[1 + pad : 1 + last], ends) for ids in rows[n_best * row : n_best * (row + 1)]]
            for row, (pad, last) in enumerate(zip(padding.tolist(), last_columns.tolist(), strict=True))
        ]

    @torch.inference_mode()
    def score(self, sources: Sequence[Ids], outputs: Sequence[Ids], *, with_attention: bool) -> list[Scores]:
        """Returns for each output, given its source, the log-probabilities of its tokens and their attention.

        Args:
            sources: Token ids of each source.
            outputs: Token ids of an output of each, none of them empty.
            with_attention: Whether the attention to the source is returned; else it is None.
        """
        input_ids, mask = self._pad(sources)
        labels, _ = pad_rows(outputs, -100, self.model.device)
        with self._lock, self._attention_weights(with_attention):
            predicted = self.model(
                input_ids=input_ids,
                attention_mask=mask,
                decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(labels),
                output_attentions=with_attention,
            )
        log_probs = predicted.logits.float().log_softmax(dim=-1)
        of_labels = log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1).cpu()
        attention = None
        if with_attention:
            attention = predicted.cross_attentions[-2:][0].float().mean(dim=1).cpu()  # (B, H, T, S) -> (B, T, S)
        return [
            Scores(
                of_labels[row, : len(ids)].tolist(),
                None if attention is None else attention[row, : len(ids), : len(sources[row])],
            )
            for row, ids in enumerate(outputs)
        ]

    @property
    def _start(self) -> int:
        return int(self.model.generation_config.decoder_start_token_id)

    def _pad(self, rows: Sequence[Ids], side: Literal["left", "right"] = "right") -> tuple[torch.Tensor, torch.Tensor]:
        return pad_rows(rows, self.model.config.pad_token_id, self.model.device, side)

    @contextmanager
    def _attention_weights(self, are_wanted: bool) -> Iterator[None]:
        """Switches to the attention implementation that returns its weights."""
        before = self.model.config._attn_implementation
        if are_wanted:
            self.model.set_attn_implementation("eager")
        try:
            yield
        finally:
            if are_wanted:
                self.model.set_attn_implementation(before)


class _OutputLimits(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Ends each output at a length of its own; `generate` itself has one limit for the whole batch."""

    def __init__(self, last_columns: torch.Tensor) -> None:
        self.last_columns = last_columns

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Tells for each hypothesis, those of one source being neighbours, whether it is as long as may be."""
        is_done = input_ids.shape[1] > self.last_columns  # > and not >=, since the start token does not count
        return is_done.repeat_interleave(input_ids.shape[0] // len(self.last_columns))


def check_search_options(options: SearchOptions, beam_size: int, n_best: int) -> None:
    """Raises ValueError if an option is out of range."""
    for name, value in (("beam_size", beam_size), ("n_best", n_best)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, but is {value} instead.")
    penalty = options.get("length_penalty", 0.0)
    if not math.isfinite(penalty):
        raise ValueError(f"`length_penalty` must be a finite number, but is {penalty} instead.")
    do_sample = options.get("do_sample", False)
    if n_best > beam_size and not do_sample:
        raise ValueError(f"`n_best` must be at most `beam_size` ({beam_size}), but is {n_best} instead.")
    for name in _SAMPLING:
        if name in options and not do_sample:
            raise ValueError(f"`{name}` must be given together with `do_sample`, which is not set.")
