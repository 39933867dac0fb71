"""The comparison with Marian C++: what its table says, and with the marker `peer` that it runs."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from reference.tiny_models import tiny_model

from hf_seq2seq.sentencepiece_tokenizer import load_sentencepiece
from scripts.benchmarks.compare_marian_cpp import main, row_of


def test_a_ratio_above_1_means_that_we_are_faster() -> None:
    assert row_of("seconds", [4.0, 6.0], [2.0, 2.0], ".1f", is_time=True) == (
        "seconds",
        "5.0 (4.0-6.0)",
        "2.0",
        "2.50 (2.00-3.00)",
    )
    assert row_of("tokens", [100.0], [250.0], ",.0f", is_time=False) == ("tokens", "100", "250", "2.50")


@pytest.mark.peer
def test_both_are_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    python = subprocess.run(["scripts/install_peer.sh", "pymarian"], stdout=subprocess.PIPE, check=True, text=True)
    words = ["".join(random.Random(n).choices("abcdefgh", k=5)) for n in range(400)]
    side = tmp_path / "side"
    side.write_text("".join(f"{' '.join(words[n : n + 9])}\n" for n in range(391)))
    sizes = ["--d_model", "16", "--layers", "1", "--heads", "2", "--vocab_size", "300"]
    options = ["--marian", python.stdout.strip(), "--repeats", "2"]
    monkeypatch.setattr(sys, "argv", ["compare", "train", str(side), str(side), *sizes, "--steps", "4", *options])
    main()
    header, _, row = capsys.readouterr().out.splitlines()
    assert header == "| measure | Marian C++ | ours | ratio |"
    assert row.startswith("| training, target tokens a second, 1+1 layers, d 16, one thread | ")

    tokenizer = load_sentencepiece(_sentencepiece(side.read_text().splitlines(), tmp_path))
    for part in (tiny_model(vocab_size=len(tokenizer)), tokenizer):
        part.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(
        sys, "argv", ["compare", "translate", str(tmp_path / "model"), str(side), "--lines", "9", *options]
    )
    main()
    _, _, seconds, equal = capsys.readouterr().out.splitlines()
    assert seconds.startswith("| 9 lines, beam 4, one thread, seconds | ")
    assert equal.startswith("| lines with the same translation |  | ")


def _sentencepiece(lines: list[str], folder: Path) -> Path:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "pieces"), vocab_size=300, minloglevel=2, pad_id=3
    )
    return folder / "pieces.model"
