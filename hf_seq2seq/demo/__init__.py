"""The demo page, on which a model translates a text and shows how.

In: a model and its tokenizer. Out: a gradio page, or the files of a Hugging Face Space that shows it.
Imports `inference/`, `inspection/` and the files above the rooms.
"""

from .app import make_demo, write_space


__all__ = ["make_demo", "write_space"]
