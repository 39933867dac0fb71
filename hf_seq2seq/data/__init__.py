"""From pairs of texts to batches: read, filter, mix, tokenize, batch by a token budget, collate.

In: files or datasets of pairs, and tokenizers. Out: batches of tensors. Imports no other room.

The public names are in `__init__.pyi`; each is imported when it is first asked for.
"""

import lazy_loader


__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
