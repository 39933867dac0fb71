"""Greedy and beam search without `generate()`, where nothing but these is asked for: the same ids in less time.

Shapes: B sentences that are not done, Q beams, T tokens so far, V vocabulary (padded, as the logits are).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from hf_seq2seq.model.packed_seq2seq_transformer import CHUNK, PackedNetwork, SearchCache, packed_network

from .segment import Ids


_NOTHING = -1e9  # the score of a hypothesis that is none, as in transformers' search
# Sentences that are done leave the batch when it has shrunk to this share: leaving costs a copy of the others' cache.
_SHARE_TO_LEAVE = 0.75

# What `generate()` is asked for, beside the search itself: a call with another argument is left to it.
_ARGUMENTS = {
    "num_beams",
    "num_return_sequences",
    "do_sample",
    "early_stopping",
    "length_penalty",
    "use_cache",
    "suppress_tokens",
    "max_new_tokens",
    "forced_eos_token_id",
    "return_dict_in_generate",
}
# Settings of the model that a call replaces, or that change nothing in a search.
_SETTINGS = {
    *_ARGUMENTS,
    *("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"),
    *("max_length", "temperature", "top_k", "top_p", "transformers_version"),
}


@dataclass(frozen=True)
class FastSearch:
    """A search with fixed settings.

    Attributes:
        network: The model's weights.
        num_beams: Number of hypotheses kept at each step; 1 is greedy search.
        n_best: Number of hypotheses returned for each sentence.
        length_penalty: The power of the length.
        early_stopping: As in transformers' `GenerationConfig`.
        end_ids: The tokens that end an output.
        banned_ids: The tokens that are never written.
    """

    network: PackedNetwork
    num_beams: int
    n_best: int
    length_penalty: float
    early_stopping: bool | str
    end_ids: Sequence[int]
    banned_ids: Sequence[int]

    @classmethod
    def for_call(cls, model: Any, arguments: Mapping[str, Any], end_ids: Sequence[int]) -> "FastSearch | None":
        """Returns the search that gives what `generate` gives, or None where only `generate` can.

        Args:
            model: The model.
            arguments: The settings of the call, as arguments of `generate`.
            end_ids: The tokens that end an output.
        """
        if (
            "generate" in vars(model)
            or not _asks_for_nothing_else(arguments)
            or not _has_no_other_settings(model.generation_config)
        ):
            return None
        network, banned = packed_network(model), arguments["suppress_tokens"] or []
        if network is None or network.vocab_size - len(banned) < _num_candidates(arguments["num_beams"], end_ids):
            return None
        return cls(
            network,
            arguments["num_beams"],
            arguments["num_return_sequences"],
            arguments["length_penalty"],
            arguments["early_stopping"],
            end_ids,
            banned,
        )

    def __call__(
        self,
        input_ids: Tensor,
        mask: Tensor,
        start_ids: Tensor,
        start_mask: Tensor,
        limits: Sequence[int],
    ) -> list[list[Ids]]:
        """Returns the best hypotheses of each sentence, without the prompt.

        Args:
            input_ids: The sources, shape (B, S).
            mask: Their mask, shape (B, S).
            start_ids: What outputs begin with, shape (B, P), padded on the left.
            start_mask: Their mask, shape (B, P).
            limits: The most tokens of each output, its prompt not counted.
        """
        source_mask = None if mask.all() else mask
        cache = SearchCache(self.network, self.network.encode(input_ids, source_mask), source_mask)
        logits = cache.start(start_ids, None if start_mask.all() else start_mask)
        if self.num_beams == 1:
            return [[ids] for ids in self._greedy(cache, logits, limits)]
        return self._beam(cache, logits, limits)

    @property
    def _banned(self) -> Tensor:
        """The ids of banned tokens, and of those that only fill the vocabulary up."""
        size = self.network.vocab_size
        return torch.tensor([*self.banned_ids, *range(size, size + -size % CHUNK)], dtype=torch.long)

    def _greedy(self, cache: SearchCache, logits: Tensor, limits: Sequence[int]) -> list[Ids]:
        """Writes the likeliest token at each step."""
        outputs: list[Ids] = [[] for _ in limits]
        rows = list(range(len(limits)))  # the sentence of each row
        open_sentences, banned, ends = set(rows), self._banned, set(self.end_ids)
        while True:
            best = logits.index_fill_(-1, banned, -torch.inf).argmax(dim=-1)
            for sentence, [token] in zip(rows, best.tolist(), strict=True):
                if sentence in open_sentences:
                    outputs[sentence].append(token)
                    if token in ends or len(outputs[sentence]) >= limits[sentence]:
                        open_sentences.remove(sentence)
            if not open_sentences:
                return outputs
            if len(open_sentences) <= _SHARE_TO_LEAVE * len(rows):
                kept = [row for row, sentence in enumerate(rows) if sentence in open_sentences]
                rows = [rows[row] for row in kept]
                cache.keep(torch.tensor(kept))
                best = best[kept]
            logits = cache.step(best)

    def _beam(self, cache: SearchCache, logits: Tensor, limits: Sequence[int]) -> list[list[Ids]]:
        """Keeps the best `num_beams` hypotheses at each step, as transformers' `_beam_search` does."""
        batch = [_Sentence(limit) for limit in limits]
        rows = list(range(len(batch)))  # the sentence of each row
        scores = torch.zeros(len(batch), 1)  # log-probabilities of open hypotheses, (B, Q), the best first
        written = torch.empty(len(batch), 1, 0, dtype=torch.long)  # their tokens, (B, Q, T)
        banned, ends = self._banned, torch.tensor(self.end_ids, dtype=torch.long)
        num_candidates = _num_candidates(self.num_beams, self.end_ids)
        while True:
            length = written.shape[2] + 1
            log_probs = logits.log_softmax(dim=-1).index_fill_(-1, banned, -torch.inf)
            found, parents, tokens = best_continuations(log_probs, scores, num_candidates)  # (B, candidates) each
            at_limit = torch.tensor([length >= limits[sentence] for sentence in rows])
            are_done = torch.isin(tokens, ends) | at_limit[:, None]
            if are_done.any():
                self._finish(batch, rows, found, parents, tokens, are_done, written)
            scores, places = (found + are_done * _NOTHING).topk(self.num_beams)
            parents, tokens = parents.gather(1, places), tokens.gather(1, places)
            past = written.gather(1, parents[..., None].expand(-1, -1, length - 1))
            written = torch.cat((past, tokens[..., None]), dim=-1)
            self._settle(batch, rows, scores, length, max(limits))
            kept = [row for row, sentence in enumerate(rows) if not batch[sentence].is_settled]
            if not kept:
                return [sentence.best(self.n_best) for sentence in batch]
            if len(kept) <= _SHARE_TO_LEAVE * len(rows):
                rows, index = [rows[row] for row in kept], torch.tensor(kept)
                cache.keep(index)
                scores, written, parents, tokens = scores[index], written[index], parents[index], tokens[index]
            logits = cache.step(tokens, parents)

    def _finish(
        self,
        batch: Sequence["_Sentence"],
        rows: Sequence[int],
        found: Tensor,
        parents: Tensor,
        tokens: Tensor,
        are_done: Tensor,
        written: Tensor,
    ) -> None:
        """Gives sentences their hypotheses that are done, if they are among the best `num_beams` candidates."""
        scores = found / (written.shape[2] + 1) ** self.length_penalty
        for row, place in are_done[:, : self.num_beams].nonzero().tolist():
            sentence = batch[rows[row]]
            if not sentence.is_settled:
                ids = [*written[row, parents[row, place]].tolist(), int(tokens[row, place])]
                sentence.finished.append((float(scores[row, place]), ids))
        for number in rows:
            batch[number].cut(self.num_beams)

    def _settle(
        self, batch: Sequence["_Sentence"], rows: Sequence[int], scores: Tensor, length: int, longest: int
    ) -> None:
        """Finds the sentences whose open hypotheses can no longer become better than the finished ones."""
        reach = longest if self.early_stopping == "never" and self.length_penalty > 0 else length
        best_possible = (scores[:, 0] / reach**self.length_penalty).tolist()
        for row, best in zip(rows, best_possible, strict=True):
            sentence = batch[row]
            is_full = len(sentence.finished) == self.num_beams
            if length >= sentence.limit or (
                is_full and (self.early_stopping is True or best <= sentence.finished[-1][0])
            ):
                sentence.is_settled = True


@dataclass
class _Sentence:
    """What a beam search has found for a sentence.

    Attributes:
        limit: The most tokens of an output.
        finished: Score and ids of finished hypotheses, the best first.
        is_settled: Whether no better one can be found.
    """

    limit: int
    finished: list[tuple[float, Ids]] = field(default_factory=list)
    is_settled: bool = False

    def cut(self, number: int) -> None:
        """Keeps the best hypotheses; of equal ones the first found."""
        self.finished = sorted(self.finished, key=lambda pair: -pair[0])[:number]

    def best(self, number: int) -> list[Ids]:
        """Returns the ids of the best hypotheses."""
        return [ids for _, ids in self.finished[:number]]


def best_continuations(log_probs: Tensor, scores: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the best pairs of a hypothesis and a token that follows it: their scores, hypotheses and tokens.

    A hypothesis with the best tokens has them in the chunks of its row with the greatest maxima: only these are
    sorted.

    Args:
        log_probs: Of the tokens that may follow, shape (B, Q, V); V is a multiple of CHUNK.
        scores: Of the hypotheses, shape (B, Q).
        number: How many are returned for each sentence.

    Returns:
        Three tensors of shape (B, number), the best first.
    """
    chunks = log_probs.unflatten(-1, (-1, CHUNK))  # (B, Q, V / CHUNK, CHUNK)
    num_chunks = chunks.shape[2]
    maxima = (chunks.amax(dim=-1) + scores[..., None]).flatten(1)
    number_of_chunks = min(number, maxima.shape[1])
    best_chunks = maxima.topk(number_of_chunks)[1]  # (B, number)
    candidates = chunks.flatten(1, 2).gather(1, best_chunks[..., None].expand(-1, -1, CHUNK))
    candidates = candidates + scores.gather(1, best_chunks // num_chunks)[..., None]
    best, places = candidates.flatten(1).topk(number)
    chunk = best_chunks.gather(1, places // CHUNK)
    return best, chunk // num_chunks, chunk % num_chunks * CHUNK + places % CHUNK


def _num_candidates(num_beams: int, end_ids: Sequence[int]) -> int:
    """Returns how many candidates a step looks at: so many that `num_beams` of them do not end."""
    return max(2, 1 + len(end_ids)) * num_beams


def _asks_for_nothing_else(arguments: Mapping[str, Any]) -> bool:
    return (
        not any(value for name, value in arguments.items() if name not in _ARGUMENTS)
        and not arguments["do_sample"]
        and type(arguments["length_penalty"]) in (int, float)
    )


def _has_no_other_settings(settings: GenerationConfig) -> bool:
    """Returns whether the model's own settings ask for nothing that a plain search does not do."""
    usual = GenerationConfig._get_default_generation_params()
    others = {name: value for name, value in vars(settings).items() if name not in _SETTINGS and name[0] != "_"}
    return not any(value and value != usual.get(name) for name, value in others.items())
