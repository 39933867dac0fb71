"""Beam search for outputs in which given phrases appear: dynamic beam allocation.

Post and Vilar (2018), https://arxiv.org/abs/1804.06609. A search has one row for each beam of each sentence, those of
one sentence being neighbours.

Shapes: B sentences, Q beams, K candidates, T columns so far, V vocabulary.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationMixin


Tokens = tuple[int, ...]

_NOTHING = -1e9  # the score of a hypothesis that is none, as in transformers' search


@dataclass(frozen=True)
class Phrase:
    """Tokens that an output must have side by side.

    Attributes:
        ids: The tokens, as they are in the middle of an output.
        first_ids: The same where the output begins with them.
        ends_word: Whether the next token may not go on with the last word.
    """

    ids: Tokens
    first_ids: Tokens
    ends_word: bool = True


class RequiredPhrases:
    """What the outputs of one sentence must have in them.

    Args:
        phrases: The phrases, in any order.
        continuing_ids: The tokens that go on with the word before them.
    """

    def __init__(self, phrases: Sequence[Phrase], continuing_ids: Collection[int] = ()) -> None:
        self.phrases, self.continuing_ids = list(dict.fromkeys(phrases)), continuing_ids
        self._num_tokens = sum(len(phrase.ids) for phrase in self.phrases)

    def num_met(self, tokens: Tokens) -> int:
        """Returns how many of the required tokens an output has, those of a phrase that it is in the middle of too."""
        return self._num_tokens - self.num_missing(tokens)

    def num_missing(self, tokens: Tokens) -> int:
        """Returns how many more tokens are enough, if each phrase is written to its end one after the other."""
        missing, begun = 0, 0
        for phrase in self.phrases:
            if not self._has(tokens, phrase):
                missing += len(phrase.ids)
                begun = max(begun, len(phrase.ids) - min(map(len, _rests(tokens, phrase))))
        return missing - begun

    def next_tokens(self, tokens: Tokens) -> set[int]:
        """Returns the tokens that begin a missing phrase or go on with it."""
        return {
            token
            for phrase in self.phrases
            if not self._has(tokens, phrase)
            for token in (phrase.ids[0], *(rest[0] for rest in _rests(tokens, phrase)))
        }

    def _has(self, tokens: Tokens, phrase: Phrase) -> bool:
        is_first = tokens[: len(phrase.first_ids)] == phrase.first_ids
        if is_first and self._is_whole(tokens, len(phrase.first_ids), phrase):
            return True
        length = len(phrase.ids)
        return any(
            tokens[start : start + length] == phrase.ids and self._is_whole(tokens, start + length, phrase)
            for start in range(len(tokens) - length + 1)
        )

    def _is_whole(self, tokens: Tokens, end: int, phrase: Phrase) -> bool:
        return not (phrase.ends_word and end < len(tokens) and tokens[end] in self.continuing_ids)


def _rests(tokens: Tokens, phrase: Phrase) -> list[Tokens]:
    """Returns what is left of a phrase after the tokens that an output ends with, in each form that it can have."""
    rests = [phrase.ids]
    for length in range(min(len(phrase.ids) - 1, len(tokens)), 0, -1):
        if tokens[-length:] == phrase.ids[:length]:
            rests = [phrase.ids[length:]]
            break
    if len(tokens) < len(phrase.first_ids) and tokens == phrase.first_ids[: len(tokens)]:
        rests.append(phrase.first_ids[len(tokens) :])
    return rests


class ConstrainedSearch:
    """A beam search whose hypotheses end only with all phrases in them, for `generate(custom_generate=...)`.

    At each step the beams of a sentence are shared out evenly among hypotheses that have 0, 1, 2, ... of the required
    tokens, so that those that have more do not lose their place to likelier ones that have fewer.

    Args:
        required: What the outputs of each sentence of the batch must have in them.
        limits: The most new tokens of each output; by default as many as `generate` allows.
    """

    def __init__(self, required: Sequence[RequiredPhrases], limits: Sequence[int] | None = None) -> None:
        self._required, self._limits = required, limits

    def __call__(
        self,
        model: Any,
        input_ids: Any,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """Searches; `generate` calls it."""
        length = input_ids.shape[1]
        limits = self._limits or [generation_config.max_length - length] * len(self._required)
        mask = model_kwargs.get("decoder_attention_mask")
        num_beams = generation_config.num_beams
        padding = [0] * len(self._required) if mask is None else (length - mask.sum(dim=1)).tolist()[::num_beams]
        ends = generation_config._eos_token_tensor
        search: Any = _Beams(
            model,
            list(zip(self._required, (limit + length for limit in limits), (1 + pad for pad in padding), strict=True)),
            set() if ends is None else set(ends.tolist()),
        )
        return GenerationMixin._beam_search(
            search, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
        )


class _Beams:
    """Stands in for a model in transformers' beam search, and chooses which hypotheses are kept.

    Args:
        model: The model.
        sentences: For each sentence what it requires, the most columns of its outputs, and the column that these start
            in.
        end_ids: The tokens that end an output.
    """

    def __init__(
        self, model: Any, sentences: Sequence[tuple[RequiredPhrases, int, int]], end_ids: Collection[int]
    ) -> None:
        self._model, self._sentences, self._end_ids = model, sentences, end_ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **model_inputs: Any) -> Any:
        """Calls the model."""
        return self._model(**model_inputs)

    def _get_top_k_continuations(
        self,
        accumulated_log_probs: torch.Tensor,
        running_sequences: torch.Tensor,
        running_beam_indices: torch.Tensor,
        cur_len: int,
        decoder_prompt_len: int,
        beams_to_keep: int,
        num_beams: int,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the scores (B, K), tokens (B, K, columns) and origins (B, K, columns) of the continuations to keep.

        The best allocation comes first. Only hypotheses among the first Q of it can be finished.
        """
        scores: list[list[float]] = []
        beams: list[list[int]] = []
        tokens: list[list[int]] = []
        log_probs = accumulated_log_probs.unflatten(1, (num_beams, -1))  # (B, Q * V) -> (B, Q, V)
        for number, sentence in enumerate(self._sentences):
            written = [tuple(row) for row in running_sequences[number, :, sentence[2] : cur_len].tolist()]
            found = self._candidates(sentence, log_probs[number], written, cur_len, beams_to_keep)
            found += [(_NOTHING, 0, int(written[0][-1]) if written[0] else 0)] * (beams_to_keep - len(found))
            scores.append([score for score, _, _ in found[:beams_to_keep]])
            beams.append([beam for _, beam, _ in found[:beams_to_keep]])
            tokens.append([token for _, _, token in found[:beams_to_keep]])
        device = accumulated_log_probs.device
        top_beams = torch.tensor(beams, device=device)  # (B, K)
        sequences = running_sequences.take_along_dim(top_beams[..., None], dim=1)
        sequences[:, :, cur_len] = torch.tensor(tokens, device=device)
        origins = running_beam_indices.take_along_dim(top_beams[..., None], dim=1)
        first_rows = torch.arange(len(beams), device=device)[:, None] * num_beams
        origins[:, :, cur_len - decoder_prompt_len] = (top_beams + first_rows).to(origins.dtype)
        return torch.tensor(scores, device=device), sequences, origins

    def _candidates(
        self,
        sentence: tuple[RequiredPhrases, int, int],
        log_probs: torch.Tensor,
        written: Sequence[Tokens],
        num_columns: int,
        number: int,
    ) -> list[tuple[float, int, int]]:
        """Returns the continuations of a sentence's hypotheses in the order in which they get a beam.

        They are the likeliest ones, the likeliest of each hypothesis, the likeliest of each that does not go on with a
        word, and those with a token that is required.

        Args:
            sentence: What it requires, its last column, and the column that outputs start in.
            log_probs: Scores of all continuations, (Q, V).
            written: The tokens of each hypothesis.
            num_columns: Columns so far.
            number: Number of the likeliest continuations to look at.

        Returns:
            Score, beam and token of each.
        """
        required, last_column, _ = sentence
        vocab_size = log_probs.shape[1]
        is_met = [required.num_missing(tokens) == 0 for tokens in written]
        for beam, met in enumerate(is_met):
            if not met:
                log_probs[beam, list(self._end_ids)] = -torch.inf
        places = set(log_probs.flatten().topk(min(number, log_probs.numel())).indices.tolist())
        for beam, best in enumerate(log_probs.topk(min(2, vocab_size), dim=1).indices.tolist()):
            wanted = () if is_met[beam] else required.next_tokens(written[beam])
            places |= {beam * vocab_size + token for token in (*best, *wanted)}
        if required.phrases:  # after the last word of a phrase another one must begin
            others = log_probs.index_fill(
                1, torch.tensor(sorted(required.continuing_ids)).to(log_probs).long(), -torch.inf
            )
            places |= {beam * vocab_size + token for beam, token in enumerate(others.argmax(dim=1).tolist())}
        num_left = last_column - num_columns - 1
        banks: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        ordered = sorted(places)
        for place, score in zip(ordered, log_probs.flatten()[ordered].tolist(), strict=True):
            beam, token = divmod(place, vocab_size)
            longer = (*written[beam], token)
            missing = 0 if token in self._end_ids else required.num_missing(longer)
            if score > _NOTHING / 2 and (num_left > 0 or missing == 0):
                banks[missing].append((score, beam, token))
        # What may not be completed in time comes last. It still can be, where phrases share tokens.
        ranked = [
            (missing > num_left, rank, missing, candidate)
            for missing, candidates in banks.items()
            for rank, candidate in enumerate(sorted(candidates, reverse=True))
        ]
        return [candidate for *_, candidate in sorted(ranked, key=lambda entry: entry[:3])]

    def _get_running_beams_for_next_iteration(
        self,
        topk_log_probs: torch.Tensor,
        topk_running_sequences: torch.Tensor,
        topk_running_beam_indices: torch.Tensor,
        next_token_hits_stopping_criteria: torch.Tensor,
        num_beams: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the sequences, scores and origins of the first Q continuations that are not finished."""
        kept = next_token_hits_stopping_criteria.int().argsort(dim=1, stable=True)[:, :num_beams]  # (B, Q)
        log_probs = topk_log_probs + next_token_hits_stopping_criteria * _NOTHING
        return (
            topk_running_sequences.take_along_dim(kept[..., None], dim=1),
            log_probs.gather(1, kept),
            topk_running_beam_indices.take_along_dim(kept[..., None], dim=1),
        )

    def _check_early_stop_heuristic(self, running_beam_scores: torch.Tensor, **options: Any) -> torch.Tensor:
        """Returns which sentences can still change, by the likeliest hypothesis, which need not be the first."""
        best = running_beam_scores.max(dim=1, keepdim=True).values
        can_change: torch.Tensor = self._model._check_early_stop_heuristic(running_beam_scores=best, **options)
        return can_change
