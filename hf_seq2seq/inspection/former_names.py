"""Names that this room had before `demo/` was a room.

They are public names of 0.1.0, so that code which imports them from here goes on working. New names do not go here.
"""

from hf_seq2seq.demo import make_demo, write_space


__all__ = ["make_demo", "write_space"]
