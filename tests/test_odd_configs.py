"""Odd values in the two configs of a model are one line each, and soon, before anything large is built."""

import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from reference.tiny_models import tiny_model

from hf_seq2seq import Translator
from hf_seq2seq.tokenization import train_tokenizer


SECONDS, MEBIBYTES = 2, 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model with its tokenizer, once used, so that all is imported."""
    folder = tmp_path_factory.mktemp("odd") / "whole"
    tiny_model().save_pretrained(folder)
    train_tokenizer(iter(["a b c"]), vocab_size=50, kind="char").save_pretrained(folder)
    use(folder)
    return folder


def use(folder: Path) -> None:
    """Loads a model and translates."""
    Translator.from_pretrained(folder, device="cpu").hypotheses(["ab"], scores=True)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"encoder_layers": 10**6}),
        ("config.json", {"encoder_ffn_dim": 10**18}),
        ("config.json", {"max_position_embeddings": 10**12, "position_embedding_type": "learned"}),
        ("config.json", {"dtype": "float7"}),
        ("config.json", {"is_encoder_decoder": False}),
        ("generation_config.json", {"num_beams": "4"}),
        ("generation_config.json", {"num_beams": 100000}),
        ("generation_config.json", {"length_penalty": "x"}),
        ("generation_config.json", {"length_penalty": float("nan")}),
    ],
)
def test_an_odd_value_is_one_line(folder: Path, tmp_path: Path, file: str, change: dict[str, Any]) -> None:
    odd = tmp_path / "model"
    shutil.copytree(folder, odd)
    (odd / file).write_text(json.dumps(json.loads((odd / file).read_text()) | change))
    seconds, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="must") as found:
        use(odd)
    assert len(str(found.value).splitlines()) == 1
    assert time.process_time() - seconds < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < MEBIBYTES * 1024


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["5", "null", "[]", '"x"', "{", "[" * 100_000, '{"a":' * 100_000, ""])
def test_a_file_that_holds_no_object_is_one_line(folder: Path, file: str, text: str, tmp_path: Path) -> None:
    odd = tmp_path / "model"
    shutil.copytree(folder, odd)
    (odd / file).write_text(text)
    with pytest.raises(ValueError, match=rf"`.*{file}` must be .*") as found:
        use(odd)
    assert len(str(found.value).splitlines()) == 1
