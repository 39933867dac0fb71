"""Names that this room had before `demo/` was a room."""

from hf_seq2seq.demo import make_demo, write_space


__all__ = ["make_demo", "write_space"]
