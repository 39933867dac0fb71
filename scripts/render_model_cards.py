"""Writes model_cards/*.md anew from the facts in model_cards/*.yaml, by the code that makes published cards.

    python scripts/render_model_cards.py

A file holds what `model_card.yaml` of a model's folder holds, and the fields of the config in which the model differs
from the paper's base model under `config`.
"""

import argparse
from pathlib import Path

import yaml

from hf_seq2seq import Seq2SeqTransformerConfig
from hf_seq2seq.hub.card import make_card, make_facts


FOLDER = Path(__file__).resolve().parent.parent / "model_cards"


def render(path: Path) -> str:
    """Returns the card that a file of facts describes."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    config = Seq2SeqTransformerConfig.from_paper("base", **values.pop("config"))
    return f"{make_card(make_facts(values, f'`{path.name}`'), config)}\n"


def main() -> None:
    """Renders every card."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path in sorted(FOLDER.glob("*.yaml")):
        path.with_suffix(".md").write_text(render(path), encoding="utf-8")
        print(path.with_suffix(".md"))


if __name__ == "__main__":
    main()
