"""Decoding by exhaustive search, and a plain beam search, over any next-token distribution.

Both score a hypothesis as `generate()` of transformers does: the sum of its tokens' log-probabilities divided by
length ** length_penalty, or by ((5 + length) / 6) ** length_penalty as GNMT does. The length counts what was
generated: the end token, but neither the start token nor a forced prefix. A hypothesis ends with the end token or at
the length limit.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


Tokens = tuple[int, ...]
NextLogProbs = Callable[[Tokens], NDArray[np.float64]]
EarlyStopping = bool | Literal["never"]


class Hypothesis(NamedTuple):
    """Generated tokens, without the prefix, and their length-normalised score."""

    score: float
    tokens: Tokens


def normalised(total: float, length: int, length_penalty: float, gnmt_penalty: bool) -> float:
    """Divides the log-probability of a hypothesis by its length penalty; Wu et al. (2016), equation 14, for GNMT's."""
    return float(total / (((5 + length) / 6) if gnmt_penalty else length) ** length_penalty)


def exhaustive_search(
    next_log_probs: NextLogProbs,
    *,
    prefix: Sequence[int],
    eos_token_id: int,
    max_new_tokens: int,
    length_penalty: float,
    gnmt_penalty: bool = False,
) -> list[Hypothesis]:
    """Scores every possible output, best first.

    Args:
        next_log_probs: from the tokens so far, prefix included, to the log-probabilities of the next one, (V,); -inf
            at tokens that must not come.
        prefix: the start token and whatever is forced after it.
        eos_token_id: the token that ends a hypothesis.
        max_new_tokens: the length at which a hypothesis ends without it.
        length_penalty: exponent of the length.
        gnmt_penalty: whether the penalty is that of GNMT.
    """
    finished: list[Hypothesis] = []

    def extend(tokens: Tokens, total: float) -> None:
        for token, log_prob in enumerate(next_log_probs((*prefix, *tokens))):
            if log_prob == -np.inf:
                continue
            longer, sum_log_probs = (*tokens, token), total + float(log_prob)
            if token == eos_token_id or len(longer) == max_new_tokens:
                finished.append(
                    Hypothesis(normalised(sum_log_probs, len(longer), length_penalty, gnmt_penalty), longer)
                )
            else:
                extend(longer, sum_log_probs)

    extend((), 0.0)
    return sorted(finished, reverse=True)


def beam_search(
    next_log_probs: NextLogProbs,
    *,
    prefix: Sequence[int],
    eos_token_id: int,
    num_beams: int,
    max_new_tokens: int,
    length_penalty: float,
    early_stopping: EarlyStopping,
    gnmt_penalty: bool = False,
) -> list[Hypothesis]:
    """Beam search for one sentence, best first, without a batch, a cache or anything to reorder.

    Each step looks at the 2 * num_beams best continuations: those among the first num_beams that end are finished,
    and the best num_beams that don't end stay alive. It stops when num_beams are finished (`early_stopping=True`), or
    when no live hypothesis can still beat the worst of them, judged by its present length (False) or by the length at
    which it would score best ("never").

    Args:
        next_log_probs: as for `exhaustive_search`.
        prefix: the start token and whatever is forced after it.
        eos_token_id: the token that ends a hypothesis.
        num_beams: number of live, and of finished, hypotheses.
        max_new_tokens: the length at which a hypothesis ends without the end token.
        length_penalty: exponent of the length.
        early_stopping: when to stop, see above.
        gnmt_penalty: whether the penalty is that of GNMT.
    """
    live: list[tuple[float, Tokens]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(1, max_new_tokens + 1):
        candidates = [
            (total + float(log_prob), (*tokens, token))
            for total, tokens in live
            for token, log_prob in enumerate(next_log_probs((*prefix, *tokens)))
            if log_prob > -np.inf
        ]
        best = sorted(candidates, reverse=True)[: 2 * num_beams]
        ends = [tokens[-1] == eos_token_id or length == max_new_tokens for _, tokens in best]
        for (total, tokens), has_ended in list(zip(best, ends, strict=True))[:num_beams]:
            if has_ended:
                finished.append(Hypothesis(normalised(total, length, length_penalty, gnmt_penalty), tokens))
        finished = sorted(finished, reverse=True)[:num_beams]
        live = [hypothesis for hypothesis, has_ended in zip(best, ends, strict=True) if not has_ended][:num_beams]
        if len(finished) == num_beams and live:
            reach = max_new_tokens if early_stopping == "never" and length_penalty > 0 else length
            best_possible = normalised(live[0][0], reach, length_penalty, gnmt_penalty)
            if early_stopping is True or best_possible <= finished[-1].score:
                break
    return finished
