"""The demo page: a model translates what is typed, and shows what it did.

In: a model and its tokenizer. Out: a page of gradio, or the files of a Space that shows it. Imports `inference/` and
`inspection/`.
"""

from .app import make_demo, write_space


__all__ = ["make_demo", "write_space"]
