"""README.md and CONTRIBUTING.md show one tree of the package, in the order that import-linter checks."""

import re
import tomllib
from pathlib import Path


ROOT = Path(__file__).parent.parent


def tree_of(page: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition("\nhf_seq2seq/\n")[2].partition("\nscripts/")[0]


def test_the_tree_has_every_room_in_the_order_of_the_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [sorted(layer.split(" : ")) for layer in settings["contracts"][0]["layers"]]
    rooms = [room for layer in reversed(layers) for room in layer if room != "__main__"]
    tree = tree_of("CONTRIBUTING.md")
    assert tree == tree_of("README.md")
    assert re.findall(r"^  (\w+)(?:/|\.py) ", tree, re.MULTILINE) == rooms
