"""A package of Argos Translate holds what Argos reads, and translates there as the model does."""

import io
import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import sentencepiece
import torch
from reference.tiny_models import tiny_config, tiny_model
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.interop import to_argos
from hf_seq2seq.sentencepiece_tokenizer import load_sentencepiece


Command = Callable[..., tuple[int, str, str]]

TEXTS = [f"the {word} sat on the {other}" for word in ("cat", "dog", "rat", "hen") for other in ("mat", "hat", "zoo")]


@pytest.fixture
def tokenizer(tmp_path: Path) -> PreTrainedTokenizerBase:
    model = io.BytesIO()
    options: dict[str, Any] = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, "pad_id": 3}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 9), model_writer=model, **options)
    (tmp_path / "any.model").write_bytes(model.getvalue())
    return load_sentencepiece(tmp_path / "any.model")


def model_for(tokenizer: Any, num_steps: int = 0) -> Any:
    """A model that has begun to learn to write a text's words in the opposite order, so that its outputs end."""
    torch.manual_seed(0)
    model = Seq2SeqTransformerForConditionalGeneration(
        tiny_config(vocab_size=len(tokenizer), pad_token_id=3, encoder_layers=1, decoder_layers=1, d_model=32)
    )
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    labels = tokenizer([" ".join(text.split()[::-1]) for text in TEXTS], return_tensors="pt", padding=True)[
        "input_ids"
    ]
    labels[labels == tokenizer.pad_token_id] = -100
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(num_steps):
        loss = model(**{name: inputs[name] for name in ("input_ids", "attention_mask")}, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def our_texts(model: Any, tokenizer: Any) -> list[str]:
    """What `translate` writes with the search that Argos has."""
    model.generation_config.update(num_beams=4, early_stopping=True)
    texts = Translator(model, tokenizer)(TEXTS, beam_size=4, length_penalty=0.2)
    assert len(set(texts)) > 5
    assert max(len(text) for text in texts) < 40  # else a limit was reached
    return list(texts)


def test_the_package_holds_what_argos_reads(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    path = to_argos(model_for(tokenizer), tokenizer, tmp_path / "out", "en", "de")
    assert path.name == "translate-en_de-1_0.argosmodel"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with zipfile.ZipFile(path) as file:
        metadata = json.loads(file.read("translate-en_de-1_0/metadata.json"))
        assert sorted(file.namelist()) == [
            f"translate-en_de-1_0/{name}"
            for name in (
                "README.md",
                "metadata.json",
                "model/config.json",
                "model/model.bin",
                "model/shared_vocabulary.json",
                "sentencepiece.model",
            )
        ]
        assert "English to German" in file.read("translate-en_de-1_0/README.md").decode()
    assert (
        metadata.items() >= {"from_code": "en", "from_name": "English", "to_code": "de", "to_name": "German"}.items()
    )


def test_it_translates_as_argos_runs_it(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    """Argos's own steps, of its translate.py and tokenizer.py."""
    model = model_for(tokenizer, num_steps=100)
    path = to_argos(model, tokenizer, tmp_path / "out", "en", "de")
    zipfile.ZipFile(path).extractall(tmp_path)
    package = tmp_path / path.stem
    processor = sentencepiece.SentencePieceProcessor(model_file=str(package / "sentencepiece.model"))
    results = ctranslate2.Translator(str(package / "model")).translate_batch(
        [processor.encode(text, out_type=str) for text in TEXTS],
        replace_unknowns=True,
        beam_size=4,
        num_hypotheses=1,
        length_penalty=0.2,
    )
    theirs = [processor.decode_pieces(result.hypotheses[0]) for result in results]
    assert theirs == our_texts(model, tokenizer)


def test_quantization_makes_it_smaller(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    model = model_for(tokenizer)
    paths = [
        to_argos(model, tokenizer, tmp_path / str(name), "en", "de", quantization=name) for name in (None, "int8")
    ]
    full, small = (zipfile.ZipFile(path).getinfo(f"{path.stem}/model/model.bin").file_size for path in paths)
    assert small < full


def test_another_tokenizer_is_refused_with_the_way_out(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"must be made from a SentencePiece model .*`--tokenizer FILE\.model`"):
        to_argos(tiny_model(), letter_tokenizer, tmp_path / "out", "en", "de")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "`--source-language` must be given for argos, such as `--source-language en`."),
        (["--source-language", "en"], "`--target-language` must be given for argos"),
        (["--source-language", "en", "--target-language", "xx9"], "A language must be a code of ISO 639, such as en,"),
    ],
)
def test_the_verb_wants_both_languages(
    options: list[str], message: str, tokenizer: PreTrainedTokenizerBase, command: Command, tmp_path: Path
) -> None:
    for part in (model_for(tokenizer), tokenizer):
        part.save_pretrained(tmp_path / "model")
    status, _, err = command("export", "argos", tmp_path / "model", tmp_path / "out", *options)
    assert status == 1
    assert err.startswith(f"Error: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_verb_says_how_to_install_it(tokenizer: PreTrainedTokenizerBase, command: Command, tmp_path: Path) -> None:
    for part in (model_for(tokenizer), tokenizer):
        part.save_pretrained(tmp_path / "model")
    languages = ["--source-language", "en", "--target-language", "pt-BR"]
    status, out, err = command("export", "argos", tmp_path / "model", tmp_path / "out", *languages)
    assert (status, err) == (0, "")
    file = tmp_path / "out/translate-en_pt-BR-1_0.argosmodel"
    assert out.splitlines()[-1] == f"Install it with `argospm install {file}`."
    status, _, err = command("export", "onnx", tmp_path / "model", tmp_path / "onnx", "--source-language", "en")
    assert (status, err) == (1, "Error: `--source-language` must be left out for onnx, but is 'en' instead.\n")


# Argos fetches its splitter at first use, so this one takes its place: it returns a text whole.
_ARGOS = """
import sys, argostranslate.package, argostranslate.translate as translate
class Whole:
    def __init__(self, package): pass
    def split_sentences(self, text): return [text]
translate.MiniSBDSentencizer = Whole
argostranslate.package.install_from_path(sys.argv[1])
for line in sys.stdin:
    print(translate.translate(line.rstrip("\\n"), "en", "de"))
"""


@pytest.mark.peer
def test_argos_translate_installs_it_and_translates_as_ours(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    python = subprocess.run(
        ["scripts/install_peer.sh", "argostranslate"], stdout=subprocess.PIPE, check=True, text=True
    )
    model = model_for(tokenizer, num_steps=100)
    path = to_argos(model, tokenizer, tmp_path / "out", "en", "de")
    folders = {name: str(tmp_path / name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    result = subprocess.run(
        [python.stdout.strip(), "-c", _ARGOS, str(path)],
        input="".join(f"{text}\n" for text in TEXTS),
        env=os.environ | folders | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == our_texts(model, tokenizer)
