"""The verb `inspect`: each view as a picture and as numbers, and what is wrong in one line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import inspection


Command = Callable[..., tuple[int, str, str]]

TEXT = ["--text", "a b c"]
VIEWS: dict[str, list[str]] = {
    "positions": ["--number", "20"],
    "masks": [*TEXT, "--text", "d"],
    "attention": [*TEXT, "--stack", "decoder", "--layer", "1", "--head", "2"],
    "alignment": TEXT,
    "scores": [*TEXT, "--target", "e f", "--stack", "decoder", "--head", "2"],
    "neighbours": ["--token", "a", "--token", "b", "--number", "3"],
    "projection": ["--token", "a", "--token", "b", "--token", "c"],
    "steps": [*TEXT, "--number", "2"],
    "beams": [*TEXT, "--beam-size", "2", "--length-penalty", "1"],
    "training": [],
}


@pytest.fixture
def folder(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """A folder that holds a model, its tokenizer, and the log of its training."""
    path = tmp_path / "model"
    tiny_model(vocab_size=len(letter_tokenizer)).save_pretrained(path)
    letter_tokenizer.save_pretrained(path)
    state = {"log_history": [{"step": 1, "loss": 2.0}], "global_step": 1}
    (path / "trainer_state.json").write_text(json.dumps(state))
    return path


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_a_picture_and_numbers(view: str, folder: Path, command: Command, tmp_path: Path) -> None:
    picture, numbers = tmp_path / "view.png", tmp_path / "view.json"
    assert command("inspect", folder, view, *VIEWS[view], "--output", picture) == (0, f"Written: {picture}\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert command("inspect", folder, view, *VIEWS[view], "--output", numbers)[0] == 0
    status, out, err = command("inspect", folder, view, *VIEWS[view])
    assert (status, err) == (0, "")
    assert json.loads(out) == json.loads(numbers.read_text(encoding="utf-8"))


def test_options_reach_the_numbers(folder: Path, command: Command, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny_model(vocab_size=len(letter_tokenizer))
    traced = inspection.trace(model, letter_tokenizer, ["a b c"])[0]
    pair = inspection.trace(model, letter_tokenizer, ["a b c"], ["e f"])[0]
    views = {
        "positions": inspection.position_vectors(model, 20),
        "masks": inspection.attention_masks(inspection.trace(model, letter_tokenizer, ["a b c", "d"])),
        "attention": inspection.attention_maps(traced, "decoder", 1, 2),
        "scores": inspection.head_scores(pair, "decoder", None, 2),
        "neighbours": [inspection.nearest_neighbours(model, letter_tokenizer, token, 3) for token in "ab"],
        "projection": inspection.project_tokens(model, letter_tokenizer, ["a", "b", "c"]),
        "steps": inspection.greedy_steps(model, letter_tokenizer, "a b c", 2),
        "beams": inspection.beam_tree(model, letter_tokenizer, "a b c", beam_size=2, length_penalty=1.0),
    }
    for view, expected in views.items():
        _, out, _ = command("inspect", folder, view, *VIEWS[view])
        assert json.loads(out) == json.loads(inspection.as_json(expected)), view


@pytest.mark.parametrize("head", ["all", "mean"])
def test_heads_can_be_drawn_together(head: str, folder: Path, command: Command) -> None:
    _, out, _ = command("inspect", folder, "attention", *TEXT, "--head", head)
    assert len(json.loads(out)["weights"]) == (2 if head == "all" else 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention", *TEXT, "--layer", "3"], "`layer` must be at least 1 and at most 2 for the cross-attention"),
        (["attention", *TEXT, "--head", "-1"], "`head` must be at least 1 and at most 2 for the cross-attention"),
        (["attention", *TEXT, "--head", "last"], "`head` must be a number from 1, or all, or mean, but is 'last'"),
        (["scores", "--text", ""], "`text` must be a text that is not blank, but is '' instead"),
        (["alignment", "--text", " "], "`text` must be a text that is not blank, but is ' ' instead"),
        (["masks", *TEXT, "--target", "a", "--target", "b"], "`target` must be given once for each text (1)"),
        (["neighbours", "--token", "ab"], "`token` must be one token of the vocabulary, but 'ab' is cut into '<unk>'"),
        (["steps", *TEXT, "--number", "0"], "`number` must be at least 1 and at most 30, but is 0 instead"),
        (["beams", *TEXT, "--beam-size", "1"], "`beam_size` must be at least 2 for a tree, but is 1 instead"),
        (
            ["positions", "--output", "view.gif"],
            "`output` must be a file whose name ends in .png, .svg, .json",
        ),
        (
            ["positions", "--output", "no/view.png"],
            "`output` must be a file in an existing folder, but is no/",
        ),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: list[str], message: str, folder: Path, command: Command) -> None:
    status, out, err = command("inspect", folder, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: {message}")
    assert err.count("\n") == 1


def test_the_output_is_checked_before_a_model_is_looked_for(command: Command) -> None:
    _, _, err = command("inspect", "nowhere", "positions", "--output", "view.gif")
    assert err.startswith("Error: `output` must be a file whose name ends in")
    _, _, err = command("inspect", "nowhere", "positions")
    assert err.startswith("Error: `nowhere` must be the folder of a model")


def test_pictures_without_matplotlib_are_one_line_and_numbers_go_on(
    folder: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, out, err = command("inspect", folder, "attention", *TEXT, "--output", tmp_path / "view.png")
    assert (status, out) == (1, "")
    assert err == (
        "Error: Pictures need the library matplotlib, which is not installed: pip install 'hf-seq2seq[inspect]'\n"
    )
    assert command("inspect", folder, "attention", *TEXT, "--output", tmp_path / "view.json")[0] == 0


def test_help_tells_of_every_view_and_how_layers_are_counted(command: Command) -> None:
    status, out, _ = command("inspect", "--help")
    assert status == 0
    assert all(f"\n  {view}" in out for view in VIEWS)
    assert "Layers and heads are counted from 1." in " ".join(out.split())
    for view in VIEWS:
        status, out, _ = command("inspect", "nowhere", view, "--help")
        assert status == 0
        assert "--output" in out


def test_help_imports_neither_matplotlib_nor_the_views() -> None:
    code = (
        "import sys, runpy; sys.argv = ['hf_seq2seq', 'inspect', '--help']\n"
        "try: runpy.run_module('hf_seq2seq', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in ('matplotlib', 'hf_seq2seq.inspection') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")
