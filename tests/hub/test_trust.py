"""A folder from elsewhere is not trusted: only safetensors are read, and no code runs unless that is asked for."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.fresh_process import run_python
from hub.server import LocalHub
from reference.tiny_models import tiny_model
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.hub import push, save_for_hub
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.training.averaging import average_weights


class Boom:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return exec, ("raise SystemExit('the pickle was run')",)


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Any:
    return tiny_model(vocab_size=len(letter_tokenizer))


@pytest.fixture
def folder(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    save_for_hub(model, letter_tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def evil_code(folder: Path) -> Path:
    """A folder whose every Python file says that it was run."""
    for path in folder.glob("*.py"):
        path.write_text("raise SystemExit('the code was run')")
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = {"AutoTokenizer": [None, "modeling_seq2seq_transformer.Tokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize(
    "load",
    [
        load_model,
        load_tokenizer,
        Translator.from_pretrained,
        lambda folder: average_weights([folder]),
        lambda folder: push(folder, "me/m", dry_run=True),
        AutoModel.from_pretrained,
        AutoModelForSeq2SeqLM.from_pretrained,
        lambda folder: AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True),
        AutoTokenizer.from_pretrained,
    ],
)
def test_with_the_package_the_code_in_a_folder_is_never_run(load: Callable[[Path], object], evil_code: Path) -> None:
    load(evil_code)


@pytest.mark.slow
def test_without_the_package_it_is_not_run_unless_that_is_asked_for(evil_code: Path) -> None:
    code = "import sys\nfrom transformers import AutoModelForSeq2SeqLM as A\nA.from_pretrained(sys.argv[1])"
    ended = run_python(code, evil_code, package=False, fails=True)
    assert "trust_remote_code=True" in ended.stderr
    assert "the code was run" not in ended.stderr


def test_the_code_of_a_folder_is_not_published_again(evil_code: Path, hub_in_process: LocalHub) -> None:
    push(evil_code, "tester/m")
    sent = hub_in_process.files("tester/m")
    assert all(b"the code was run" not in content for content in sent.values())
    assert "auto_map" not in json.loads(sent["tokenizer_config.json"])


def pickle_alone(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights | {"boom": Boom()}, folder / "pytorch_model.bin")


def pickle_as_a_part(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "part.bin")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "part.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickle_as_an_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": ["q_proj"]}))
    torch.save({"boom": Boom()}, folder / "adapter_model.bin")


@pytest.mark.parametrize("change", [pickle_alone, pickle_as_a_part, pickle_as_an_adapter])
def test_no_pickle_is_read(change: Callable[[Path], None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: read.append(args))
    change(folder)
    with pytest.raises((OSError, ValueError)):
        load_model(folder)
    assert read == []


def test_weights_in_a_pickle_file_are_refused_with_a_way_to_convert_them_that_works(
    folder: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"must be a model's folder.*pickle files \(.bin, .pt\) are not"
    ) as caught:
        load_model(folder)
    (way_out,) = re.findall("`(from hf_seq2seq import .*?)`", str(caught.value))
    monkeypatch.chdir(tmp_path)
    exec(way_out)
    converted = load_model(tmp_path / "converted")
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in converted.state_dict().items())


def test_a_repository_of_pickle_files_is_refused_and_nothing_is_asked_to_convert_it(
    folder: Path, hub_in_process: LocalHub
) -> None:
    pickle_alone(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub_in_process.add_repository("tester/pickled", files)
    with pytest.raises(
        FileNotFoundError, match=r"`tester/pickled` must have its weights in model.safetensors, but has"
    ):
        load_model("tester/pickled")
    paths = [request.path for request in hub_in_process.requests]
    assert not [path for path in paths if "pytorch_model" in path or "discussions" in path or "commits" in path]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            '{"weight_map": {"a": "part.bin"}}',
            r"index.json of `.*` must name only safetensors files, but names 'part",
        ),
        ('{"weight_map": 1}', r"index.json of `.*` must tell which file holds which weight, but is damaged"),
        ("{", r"index.json of `.*` must tell which file holds which weight, but is damaged"),
    ],
)
def test_a_table_of_contents_that_is_wrong_is_named(index: str, message: str, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=message):
        load_model(folder)


def test_a_config_from_elsewhere_picks_no_kernels(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    foreign = {"attn_implementation": "someone/kernels", "trust_remote_code": True}
    (folder / "config.json").write_text(json.dumps(config | foreign))
    assert load_model(folder).config._attn_implementation == "sdpa"
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "bitsandbytes"}}))
    with pytest.raises(ValueError, match="must have no `quantization_config`, but has one"):
        load_model(folder)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 429, "retry_after": 0}, "must not be asked so often for now: wait a while"),
        ({"status": 500}, "it answered 500: run the same command again later"),
        ({"loses_answer": True}, "could not be reached: check the network"),
        ({}, "check the name for a typing error, or sign in with `hf auth login`"),
    ],
)
def test_why_the_hub_does_not_give_a_model_is_told(
    fault: dict[str, Any],
    reason: str,
    folder: Path,
    hub_in_process: LocalHub,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push(folder, "tester/m", private=True)
    if fault:
        for method in ("GET", "HEAD"):
            hub_in_process.fail(method, "/resolve/", times=None, **fault)
    else:
        monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(
        OSError, match=r"`tester/m` must be the folder of a model, or the name of a repository"
    ) as caught:
        load_model("tester/m")
    assert reason in str(caught.value)


def test_a_folder_has_no_revisions(folder: Path) -> None:
    for load in (load_model, load_tokenizer, Translator.from_pretrained):
        with pytest.raises(ValueError, match="`revision` must be left out for a folder, but is 'v1' for"):
            load(folder, revision="v1")
