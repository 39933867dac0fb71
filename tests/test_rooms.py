"""The tree of the package in CONTRIBUTING.md stands in the order that import-linter checks."""

import re
import tomllib
from pathlib import Path


ROOT = Path(__file__).parent.parent


def test_the_tree_has_every_room_in_the_order_of_the_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [sorted(layer.split(" : ")) for layer in settings["contracts"][0]["layers"]]
    rooms = [room for layer in reversed(layers) for room in layer if room != "__main__"]
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = page.partition("\nhf_seq2seq/\n")[2].partition("\nscripts/\n")[0]
    assert re.findall(r"^  (\w+)(?:/|\.py) ", tree, re.MULTILINE) == rooms
