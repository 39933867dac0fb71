"""Writes model_cards/*.md from the facts in model_cards/*.yaml, with the code that makes published cards.

    python scripts/render_model_cards.py

A .yaml file holds the facts that a model's folder has in `model_card.yaml`, and under `config` the fields in which the
model differs from the paper's base model.
"""

import argparse
from pathlib import Path

import yaml

from hf_seq2seq import Seq2SeqTransformerConfig
from hf_seq2seq.hub.card import make_card, make_facts


FOLDER = Path(__file__).resolve().parent.parent / "model_cards"


def render(path: Path) -> str:
    """Returns the card for a file of facts."""
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
