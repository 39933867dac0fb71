"""The verb `train`: a small run, and an error of one line for whatever a user may get wrong."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from reference.tiny_models import tiny_model

from hf_seq2seq.tokenization import train_tokenizer


Train = Callable[..., tuple[int, str, str]]
SMALL = ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")
SINGLE = ("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "max_steps")
TINY = [f"--{name}=8" for name in SMALL] + [f"--{name}=1" for name in SINGLE]
TINY += ["--tokenizer_kind=char", "--vocab_size=30"]


@pytest.fixture
def train(command: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Runs `hf-seq2seq train` in a folder with pairs."""
    monkeypatch.chdir(tmp_path)
    Path("a.src").write_text("one two\nthree\n")
    Path("a.tgt").write_text("eins zwei\ndrei\n")
    return partial(command, "train")


PAIRS = ("--train_source=a.src", "--train_target=a.tgt")
OUTPUT = ("--output_dir", "out")


def test_a_run_ends_with_its_results_and_what_to_do_next(train: Train) -> None:
    Path("config.yaml").write_text("train_source: a.src\ntrain_target: a.tgt\nseed: 3\n")
    validation = ("--validation_source", "a.src", "--validation_target", "a.tgt")
    status, out, err = train("config.yaml", *OUTPUT, *TINY, *validation)
    assert status == 0
    assert "Traceback" not in err
    assert "Trained for 1 updates; training loss, as logged last, " in out
    assert "On 2 of 2 validation pairs:" in out
    assert "BLEU " in out
    assert "hf-seq2seq translate out < " in out
    assert {"model.safetensors", "tokenizer.json", "generation_config.json"} <= {p.name for p in Path("out").iterdir()}

    status, again, _ = train("config.yaml", *OUTPUT, *TINY, *validation)
    assert status == 0
    assert again in out


def a_foreign_folder() -> None:
    Path("out").mkdir()
    Path("out/notes.txt").write_text("x")


def a_run_with_other_settings() -> None:
    Path("out/checkpoint-1").mkdir(parents=True)
    Path("out/training_settings.json").write_text('{"max_steps": 9}')


def a_model_without_weights() -> None:
    a_model_cut_short()
    Path("model/model.safetensors").unlink()


def a_model_cut_short() -> None:
    tiny_model().save_pretrained("model")
    train_tokenizer(iter(["one two three eins zwei drei"]), vocab_size=30, kind="char").save_pretrained("model")
    weights = Path("model/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("prepare", "arguments", "message"),
    [
        (None, [*PAIRS, "--d_modle=8"], "`d_modle` in the command line must be a field"),
        (None, [*PAIRS, "--preset=big", "--model_name_or_path=x"], "`preset` must not be given together"),
        (None, [*PAIRS, "--d_model=9"], "`d_model` must be a multiple of"),
        (None, [*PAIRS, "--bf16", "--fp16"], "At most one of fp16 and bf16"),
        (None, ["--train_source=a.src", "--train_target=none"], "`none` must be a file, but does not exist"),
        (lambda: Path("b").write_text(""), ["--train_source=b", "--train_target=b"], "must hold at least one line"),
        (lambda: Path("b").write_text("x\n"), ["--train_source=a.src", "--train_target=b"], "number of lines"),
        (lambda: Path("b").write_bytes(b"x\n\xff\n"), ["--train_source=a.src", "--train_target=b"], "must be UTF-8"),
        (a_foreign_folder, PAIRS, "`output_dir` must be a new or empty folder"),
        (a_run_with_other_settings, PAIRS, "`max_steps` must be 9 as in the run that 'out' holds, but is -1"),
        (None, [*PAIRS, "--model_name_or_path=none"], "`none` must be the folder of a tokenizer"),
        (a_model_without_weights, [*PAIRS, "--model_name_or_path=model"], "`model` must be a model's folder"),
        (a_model_cut_short, [*PAIRS, "--model_name_or_path=model"], "one is cut short or damaged"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    prepare: Callable[[], object] | None, arguments: list[str], message: str, train: Train
) -> None:
    if prepare is not None:
        prepare()
    status, out, err = train(*arguments, *OUTPUT)
    assert status == 1
    assert out == ""
    last_line = err.splitlines()[-1]
    assert last_line.startswith("Error: ")
    assert message in last_line
    assert "Traceback" not in err
