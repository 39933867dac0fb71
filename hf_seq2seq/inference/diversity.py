"""Beam search whose hypotheses differ more."""

import torch
from transformers import LogitsProcessor


class SiblingPenalty(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Takes from the score of a hypothesis' k-th best continuation `rate` times k, the best one being the 0th.

    So fewer continuations of one hypothesis crowd out those of others: Li, Monroe and Jurafsky (2016), section 3
    (https://arxiv.org/abs/1611.08562). For `generate(logits_processor=[SiblingPenalty(...)], num_beams=...)`, whose
    scores then have the penalty in them.

    Args:
        rate: The penalty of one rank, in units of log-probability. It is gamma in the paper.
        num_ranks: Number of continuations of a hypothesis that are told apart: at least twice the number of beams,
            which is as many as a search looks at. The others count as one rank more.
    """

    def __init__(self, rate: float, num_ranks: int) -> None:
        self.rate, self.num_ranks = rate, num_ranks

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores of the next tokens less their penalties, shape (rows, V)."""
        best = scores.topk(min(self.num_ranks, scores.shape[-1]), dim=-1)  # (rows, ranks)
        ranks = torch.arange(best.values.shape[-1], device=scores.device)
        others = scores - self.rate * len(ranks)
        return others.scatter_(-1, best.indices, best.values - self.rate * ranks)
