"""The site that mkdocs makes of docs/ is whole, and needs no other server."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
ROOMS = ("data", "demo", "evaluation", "hub", "inference", "inspection", "interop", "serving", "training")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_reference_has_every_public_name(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in site.glob("reference/*/index.html"))
    anchors = set(re.findall(r'id="(hf_seq2seq[^"]*)"', pages))
    missing = []
    for room in ROOMS:
        for name in import_module(f"hf_seq2seq.{room}").__all__:
            # A function with the name of its file stands as one of the file, and the demo's functions with the demo.
            places = {f"{room}.{name}", f"{room}.{name}.{name}", f"demo.{name}"}
            if not anchors & {f"hf_seq2seq.{place}" for place in places}:
                missing.append(f"{room}.{name}")
    assert missing == []


@pytest.mark.slow
def test_a_page_loads_nothing_from_another_server(site: Path) -> None:
    loaded = r'<(?:script|img|iframe)[^>]*\ssrc="([^"]*)|<link[^>]*\shref="([^"]*)|url\(([^)]*)\)|@import ([^;]*)'
    for file in (*site.rglob("*.html"), *site.rglob("*.css")):
        found = ["".join(groups) for groups in re.findall(loaded, file.read_text(encoding="utf-8"))]
        assert [address for address in found if re.match(r"""["']?(https?:)?//""", address)] == [], file
