"""Repositories keep loading: those with the code of today, those that are older than its split, and pinned ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.fresh_process import run_python
from hub.server import LocalHub
from hub.test_publishing import CODE, LOAD_AND_REPORT, assert_loaded, names
from reference.tiny_models import tiny_model
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from hf_seq2seq.hub import push, save_for_hub


REPO = "tester/letters"
TWO_FILES = {"configuration_seq2seq_transformer.py", "modeling_seq2seq_transformer.py"}
REPORT_CODE = """
import sys
from pathlib import Path
print("code:", *sorted(path.name for path in Path(sys.modules[type(model).__module__].__file__).parent.glob("*_*.py")))
"""


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Any:
    return tiny_model(vocab_size=len(letter_tokenizer), position_embedding_type="learned")


@pytest.fixture
def folder(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    save_for_hub(model, letter_tokenizer, tmp_path / "published")
    return tmp_path / "published"


@pytest.fixture
def old_folder(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """As it was published before the modeling file was split: what that imports now stands in it."""
    folder = tmp_path / "old"
    save_for_hub(model, letter_tokenizer, folder)
    modeling = folder / "modeling_seq2seq_transformer.py"

    def inlined(match: re.Match[str]) -> str:
        path = folder / f"{match[1]}.py"
        return match[0] if path.name in TWO_FILES else path.read_text()

    statement = re.compile(r"^from \.(\w+) import (?:\([^)]*\)|.*)\n", flags=re.MULTILINE)
    modeling.write_text(statement.sub(inlined, modeling.read_text()))
    for name in CODE - TWO_FILES:
        (folder / name).unlink()
    return folder


def test_an_old_folder_loads_where_the_package_is_not_and_is_saved_as_it_was(
    old_folder: Path,
    model: Any,
    letter_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    trust = json.dumps({"trust_remote_code": True})
    run_python(LOAD_AND_REPORT, old_folder, tmp_path / "report", trust, tmp_path / "again", package=False)
    assert_loaded(tmp_path / "report", model, letter_tokenizer, "transformers_modules.")
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == TWO_FILES


def test_with_the_package_an_old_folder_is_published_with_the_code_of_today(
    old_folder: Path, model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    loaded = AutoModelForSeq2SeqLM.from_pretrained(old_folder)
    ids = torch.tensor([[5, 6, 2]])
    assert torch.equal(loaded.generate(ids), model.generate(ids))
    save_for_hub(loaded, letter_tokenizer, tmp_path / "new")
    assert names(tmp_path / "new") >= CODE


def test_each_revision_of_a_repository_loads_with_its_own_code_also_offline(
    old_folder: Path,
    folder: Path,
    model: Any,
    letter_tokenizer: PreTrainedTokenizerFast,
    hub_in_process: LocalHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub_in_process.add_repository(REPO, {path.name: path.read_bytes() for path in old_folder.iterdir()})
    pinned = hub_in_process.repositories["model", REPO].branches["main"].sha
    push(folder, REPO)
    for offline in ("0", "1"):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        for revision, code in ((pinned, TWO_FILES), ("main", CODE)):
            settings = json.dumps({"trust_remote_code": True, "revision": revision})
            ended = run_python(LOAD_AND_REPORT + REPORT_CODE, REPO, tmp_path / "report", settings, package=False)
            assert_loaded(tmp_path / "report", model, letter_tokenizer, "transformers_modules.")
            assert ended.stdout.split("code: ")[1].split() == sorted(code)
