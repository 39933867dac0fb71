"""A training run: its settings, its trainer, its checkpoints, and what it ends with.

In: settings, of which some name data. Out: a folder with a model, its tokenizer and its checkpoints. Imports `model/`,
`data/`, `evaluation/`, `hub/` and the files above the rooms.

The public names are in `__init__.pyi`; each is imported when it is first asked for.
"""

import lazy_loader


__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
