"""Pictures of what a model does and of how it was trained. Needs `pip install 'hf-seq2seq[inspect]'`."""

from .training_curves import plot_training_curves


__all__ = ["plot_training_curves"]
