"""Names that this room had before `evaluation/` was a room."""

from hf_seq2seq.evaluation import generation_metrics, score


__all__ = ["generation_metrics", "score"]
