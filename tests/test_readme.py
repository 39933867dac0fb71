"""The README's Python examples, run as they stand there on files of a few lines."""

import re
import subprocess
import sys
from pathlib import Path


README = Path(__file__).parent.parent / "README.md"

NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
SEED = "import transformers; transformers.set_seed(1)"  # the weights are drawn before the trainer sets its own


def test_the_stock_trainer_and_then_the_translator_run_as_they_stand(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (training,) = (example for example in examples if "Seq2SeqTrainer(" in example)
    (translating,) = (example for example in examples if 'Translator.from_pretrained("out")' in example)
    (inspecting,) = (example for example in examples if "hf_seq2seq.inspection" in example)
    assert len(examples) == 5  # those of "Load it" are run in tests/hub/test_push.py
    (tmp_path / "new.en").write_text("one and two\nfive and six\n")
    for part, repeats in {"train": 8, "val": 1}.items():  # enough updates that no model says nothing
        pairs = [(f"{a} and {b}", f"{NUMBERS[a]} und {NUMBERS[b]}") for a in NUMBERS for b in NUMBERS] * repeats
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{part}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    finished = subprocess.run(
        [sys.executable, "-c", f"{SEED}\n{training}\n{translating}\n{inspecting}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    (translation,) = re.findall(r"^\['(.*)'\]$", finished.stdout, re.MULTILINE)
    assert translation.strip()
    assert {"eins und zwei", "fünf und sechs"} <= set(finished.stdout.splitlines())  # the lines of new.en
    assert (tmp_path / "mean.png").stat().st_size > 1000


def test_files_that_are_linked_are_there() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    files = [target for target in targets if "://" not in target]
    assert "docs/alignment.png" in files
    assert [file for file in files if not (README.parent / file).exists()] == []
