"""Repositories keep loading where the package is not: today's, those older than the split of the code, pinned ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.fresh_process import run_python
from hub.server import LocalHub
from hub.test_publishing import CODE, names
from reference.tiny_models import tiny_model
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from hf_seq2seq.hub import push, save_for_hub


REPO = "tester/letters"
TWO_FILES = {"configuration_seq2seq_transformer.py", "modeling_seq2seq_transformer.py"}
IDS = torch.tensor([[5, 6, 2]])
LOAD = """
import json, sys
from pathlib import Path
import torch
from transformers import AutoModelForSeq2SeqLM
found = []
for name, revision, saved in json.loads(sys.argv[1]):
    model = AutoModelForSeq2SeqLM.from_pretrained(name, revision=revision, trust_remote_code=True)
    folder = Path(sys.modules[type(model).__module__].__file__).parent
    code = [path.name for path in folder.glob("*_seq2seq_transformer.py")]
    found.append((code, model.generate(torch.tensor([[5, 6, 2]])).tolist()))
    if saved:
        model.save_pretrained(saved)
print(json.dumps(found))
"""


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Any:
    return tiny_model(vocab_size=len(letter_tokenizer), position_embedding_type="learned")


@pytest.fixture
def new(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    save_for_hub(model, letter_tokenizer, tmp_path / "new")
    return tmp_path / "new"


@pytest.fixture
def old(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """A folder as it was when the code had two files: what the modeling file imports stands in it."""
    folder = tmp_path / "old"
    save_for_hub(model, letter_tokenizer, folder)
    texts = {path.stem: path.read_text() for path in folder.glob("*_seq2seq_transformer.py")}

    def inlined(statement: re.Match[str]) -> str:
        """What a file imports in the place of the statement, or nothing where it stands already."""
        return statement[0] if f"{statement[1]}.py" in TWO_FILES else in_one_file(texts.pop(statement[1], ""))

    def in_one_file(text: str) -> str:
        return re.sub(r"^from \.(\w+) import (?:\([^)]*\)|.*)\n", inlined, text, flags=re.MULTILINE)

    modeling = in_one_file(texts.pop("modeling_seq2seq_transformer"))
    (folder / "modeling_seq2seq_transformer.py").write_text(modeling)
    for name in CODE - TWO_FILES:
        (folder / name).unlink()
    return folder


def load(*wanted: tuple[str, str | None, str | None]) -> list[set[str]]:
    """Loads models where the package is not: names of the files of code that each came with. All generate the same."""
    found = json.loads(run_python(LOAD, json.dumps(wanted), package=False).stdout)
    assert len({str(generated) for _, generated in found}) == 1
    return [set(code) for code, _ in found]


@pytest.mark.slow
def test_old_and_pinned_repositories_load_with_their_own_code_also_offline(
    old: Path, new: Path, hub_in_process: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_in_process.add_repository(REPO, {path.name: path.read_bytes() for path in old.iterdir()})
    pinned = hub_in_process.repositories["model", REPO].branches["main"].sha
    push(new, REPO)
    again = tmp_path / "again"
    folders = (str(old), None, str(again)), (str(new), None, None)
    revisions = (REPO, pinned, None), (REPO, "main", None)
    assert load(*folders, *revisions) == [TWO_FILES, CODE] * 2
    assert {path.name for path in again.glob("*.py")} == TWO_FILES
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load((str(again), None, None), *revisions) == [TWO_FILES, TWO_FILES, CODE]


def test_with_the_package_an_old_folder_is_published_with_the_code_of_today(
    old: Path, model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    loaded = AutoModelForSeq2SeqLM.from_pretrained(old)
    assert type(loaded) is type(model)
    assert torch.equal(loaded.generate(IDS), model.generate(IDS))
    save_for_hub(loaded, letter_tokenizer, tmp_path / "published")
    assert names(tmp_path / "published") >= CODE
