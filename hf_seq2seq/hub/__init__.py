"""A model on the Hugging Face Hub: its files, the code that loads it, and its card.

In: a model's folder, and facts about it. Out: a repository. Imports `model/`, `evaluation/` and the files above the
rooms.

The public names are in `__init__.pyi`; each is imported when it is first asked for.
"""

import lazy_loader


__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
