"""Names that this room had before `evaluation/` was a room.

They are public names of 0.1.0, so that code which imports them from here goes on working. New names do not go here.
"""

from hf_seq2seq.evaluation import generation_metrics, score


__all__ = ["generation_metrics", "score"]
