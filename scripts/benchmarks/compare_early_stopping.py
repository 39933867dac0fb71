"""Scores a model under each of generate()'s three rules for the end of a beam search.

    python scripts/benchmarks/compare_early_stopping.py MODEL SOURCE REFERENCE

This package's default, False, was chosen by these scores, which docs/paper.md has.
"""

import argparse

from hf_seq2seq import Translator
from hf_seq2seq.data import read_lines
from hf_seq2seq.training import score


def main() -> None:
    """Translates with beam search under each rule, and prints the scores."""
    parser = argparse.ArgumentParser(description="Score a model under each value of early_stopping.")
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("source", help="lines to translate, plain or gzipped")
    parser.add_argument("reference", help="their reference translations")
    arguments = parser.parse_args()
    sources, references = list(read_lines(arguments.source)), list(read_lines(arguments.reference))
    translator = Translator.from_pretrained(arguments.model)
    for rule in (True, False, "never"):
        translator.model.generation_config.early_stopping = rule
        scores = score(translator(sources), references)
        figures = [f"{name} {scores[name]:.1f}" for name in ("exact_match", "bleu", "chrf")]
        print(f"early_stopping {rule!s:5}", *figures, sep="  ")


if __name__ == "__main__":
    main()
