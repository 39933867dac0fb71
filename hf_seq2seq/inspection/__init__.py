"""Pictures of what a model does and of how it was trained, and the numbers behind them.

In: a model, its tokenizer and texts, or the log of a run. Out: numbers (`attention_maps`), figures
(`draw_attention_maps`), and files of either (`write_view`). Imports `model/`, `evaluation/`, `inference/` and the
files above the rooms.

Figures need `pip install 'hf-seq2seq[inspect]'`, numbers do not.

The public names are in `__init__.pyi`; each is imported when it is first asked for.
"""

import lazy_loader


__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
