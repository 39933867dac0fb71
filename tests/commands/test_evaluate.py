"""The verb `evaluate`: the scores are those of the model's own translations."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from reference.tiny_models import tiny_model
from transformers import AutoConfig, PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.evaluation import score
from hf_seq2seq.hub.card import make_card, make_facts


Command = Callable[..., tuple[int, str, str]]

SOURCES = ["a b c", "d", "", "e f g h"]


def as_text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def model_folder(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    model = tiny_model(vocab_size=len(letter_tokenizer), encoder_layers=1, decoder_layers=1, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[3] = -1e4  # <unk>
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    letter_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def files(model_folder: Path, tmp_path: Path) -> list[object]:
    """Arguments that name the sources and references, of which half are what the model writes."""
    translations = Translator.from_pretrained(model_folder, device="cpu")(SOURCES)
    references = [*translations[:1], "x y z", *translations[2:3], translations[3] + " z"]
    (tmp_path / "source").write_text(as_text(SOURCES))
    (tmp_path / "reference.gz").write_bytes(gzip.compress(as_text(references).encode()))
    return ["--source", tmp_path / "source", "--reference", tmp_path / "reference.gz"]


def test_the_scores_are_those_of_the_translations(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    status, out, err = command("evaluate", model_folder, *files, "--json", "--output", tmp_path / "hypotheses")
    assert (status, err) == (0, "")
    translations = Translator.from_pretrained(model_folder, device="cpu")(SOURCES)
    assert (tmp_path / "hypotheses").read_text() == as_text(translations)
    references = gzip.decompress((tmp_path / "reference.gz").read_bytes()).decode().splitlines()
    assert json.loads(out) == score(translations, references) | {"num_sentences": 4}
    assert json.loads(out)["exact_match"] == 50


def test_the_chosen_scores_alone_are_computed_and_compared(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    """https://github.com/roy-ht/pyter/issues/8"""
    (tmp_path / "other").write_text(as_text(SOURCES))
    options = ["--metrics", "chrf,exact_match", "--against", tmp_path / "other", "--json"]
    status, out, _ = command("evaluate", model_folder, *files, *options)
    scores = json.loads(out)
    assert status == 0
    assert list(scores) == ["chrf", "chrf_signature", "exact_match", "num_sentences", "comparison"]
    assert list(scores["comparison"]) == ["against", "chrf", "exact_match"]


def test_a_line_has_several_references_in_several_files_and_in_the_cells_of_one(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    translations = Translator.from_pretrained(model_folder, device="cpu")(SOURCES)
    (tmp_path / "more.tsv").write_text("q\t\n" + f"q\t{translations[1]}\tr\n" + "\n" + "a b\n")
    options = ["--reference", tmp_path / "more.tsv", "--metrics", "exact_match,wer,bleu", "--json"]
    status, out, err = command("evaluate", model_folder, *files, *options)
    assert (status, err) == (0, "")
    first = gzip.decompress((tmp_path / "reference.gz").read_bytes()).decode().splitlines()
    cells = [["q"], ["q", translations[1], "r"], [""], ["a b"]]
    references = [[one, *more] for one, more in zip(first, cells, strict=True)]
    assert json.loads(out) == score(translations, references, "exact_match,wer,bleu") | {"num_sentences": 4}
    assert json.loads(out)["exact_match"] == 75

    (tmp_path / "more.tsv").write_text("q\n")
    status, _, err = command("evaluate", model_folder, *files, *options)
    assert status == 1
    assert re.search(r"`--source` and `--reference` must have the same number .*more.tsv has 1 instead", err)


def test_a_metric_of_the_users_own_gets_the_sources_and_stands_on_the_card(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_length.py").write_text("def longer(hypotheses, references, sources):\n    return -len(sources)\n")
    options = ["--metrics", "chrf,my_length:longer", "--json"]
    status, _, err = command("evaluate", model_folder, *files, *options)
    assert status == 1
    assert "name its folder in the environment variable PYTHONPATH" in err
    monkeypatch.syspath_prepend(tmp_path)
    status, out, err = command("evaluate", model_folder, *files, *options)
    assert (status, err) == (0, "")
    assert json.loads(out)["longer"] == -4
    assert json.loads(out)["longer_signature"] == "nrefs:1|function:my_length:longer"

    found = {name: value for name, value in json.loads(out).items() if name != "num_sentences"}
    facts = make_facts({"scores": [{"test_set": "letters", **found}]}, "the scores")
    card = make_card(facts, AutoConfig.from_pretrained(model_folder))
    assert "| longer | -4.0 | `nrefs:1\\|function:my_length:longer` |" in str(card)
    assert card.data["metrics"] == ["chrf", "longer"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--metrics", "bleu,comet"],
            "`metrics` must be names among bleu, chrf, ter, .*exact_match, .* 'comet' instead",
        ),
        (
            ["--metrics", "bleu,no_module:f", "--against", "x"],
            "'no_module:f' has a module that cannot be imported",
        ),
    ],
)
def test_metrics_that_cannot_be_computed_are_named_before_anything_is_translated(
    options: list[str], message: str, files: list[object], command: Command
) -> None:
    status, out, err = command("evaluate", "no-such-model", *files, *options)
    assert (status, out) == (1, "")
    assert re.search(message, err)


def test_the_scores_are_told_with_their_signatures(model_folder: Path, files: list[object], command: Command) -> None:
    _, scores, _ = command("evaluate", model_folder, *files, "--json")
    status, out, err = command("evaluate", model_folder, *files)
    assert (status, err) == (0, "")
    expected = json.loads(scores)
    parts = expected["bleu_parts"]
    precisions = "/".join(f"{one:.1f}" for one in parts["precisions"])
    assert out.splitlines() == [
        "sentences    4",
        f"BLEU         {expected['bleu']:.1f}  {expected['bleu_signature']}",
        f"             precisions {precisions}, brevity penalty {parts['brevity_penalty']:.3f}, length ratio "
        f"{parts['length_ratio']:.3f}, length {parts['length']}, reference length {parts['reference_length']}",
        f"chrF         {expected['chrf']:.1f}  {expected['chrf_signature']}",
        f"TER          {expected['ter']:.1f}  {expected['ter_signature']}",
        "exact match  50.0 %",
    ]


def test_another_system_is_compared_by_paired_bootstrap(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    _, out, _ = command("evaluate", model_folder, *files, "--json")
    alone = json.loads(out)
    (tmp_path / "other").write_text("x\n" * alone["num_sentences"])
    status, out, _ = command("evaluate", model_folder, *files, "--against", tmp_path / "other")
    assert status == 0
    assert f"against {tmp_path / 'other'}, by paired bootstrap (95 % intervals):" in out
    _, out, _ = command("evaluate", model_folder, *files, "--against", tmp_path / "other", "--json")
    assert json.loads(out)["comparison"]["chrf"]["baseline"] < alone["chrf"]
    _, out, _ = command("evaluate", model_folder, *files, "--against", model_folder, "--json")
    comparison = json.loads(out)["comparison"]
    for name in ("bleu", "chrf", "ter"):
        assert comparison[name]["score"] == comparison[name]["baseline"] == alone[name]
        assert comparison[name]["p_value"] == 1  # a system does not differ from itself
        assert "bs:1000" in comparison[name]["signature"]


def test_the_revision_is_the_model_s_and_not_its_rival_s(
    model_folder: Path, files: list[object], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def from_pretrained(model: str, *, revision: str | None, **_: object) -> Translator:
        asked.append((model, revision))
        return translator

    translator = Translator.from_pretrained(model_folder, device="cpu")
    monkeypatch.setattr(Translator, "from_pretrained", from_pretrained)
    assert command("evaluate", "me/m", *files, "--revision", "v2", "--against", "me/m")[0] == 0
    assert asked == [("me/m", "v2"), ("me/m", None)]
    status, _, err = command("evaluate", "me/m", *files, "--revision", "v2", "--backend", "ctranslate2")
    assert status == 1
    assert "Error: `--revision` must be left out with `--backend ctranslate2`" in err


def test_a_file_to_compare_with_must_have_as_many_lines(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("x\n")
    status, _, err = command("evaluate", model_folder, *files, "--against", tmp_path / "other")
    assert status == 1
    assert "`--source` and `--against` must have the same number of lines" in err


def test_a_system_that_is_not_there_is_named_before_anything_is_translated(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "windows", lambda *_, **__: pytest.fail("it has begun to translate"))
    status, _, err = command("evaluate", model_folder, *files, "--against", tmp_path / "othr")
    assert status == 1
    assert "`--against` must be a file of translations, or a model: " in err
    assert f"`{tmp_path / 'othr'}` must be the folder of a model" in err


def test_the_search_is_the_one_asked_for(
    model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    output = tmp_path / "hypotheses.gz"
    assert command("evaluate", model_folder, *files, "--beam-size", 1, "--batch-tokens", 5, "--output", output)[0] == 0
    translations = Translator.from_pretrained(model_folder, device="cpu")(SOURCES, beam_size=1)
    assert gzip.decompress(output.read_bytes()).decode() == as_text(translations)


def test_unequal_numbers_of_lines_are_both_named_before_anything_is_translated(
    files: list[object], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("a\nb\nc\n")
    status, out, err = command("evaluate", tmp_path / "no model", *files)
    assert (status, out) == (1, "")
    assert err == (
        "Error: `--source` and `--reference` must have the same number of lines, but "
        f"{tmp_path / 'source'} has 3 and {tmp_path / 'reference.gz'} has 4 instead.\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's device that is always full")
def test_a_full_disk_is_an_error_that_names_the_file(
    model_folder: Path, files: list[object], command: Command
) -> None:
    status, _, err = command("evaluate", model_folder, *files, "--output", "/dev/full")
    assert status == 1
    assert "No space is left for `/dev/full`" in err


@pytest.mark.parametrize("name", ["source", "reference.gz", "rival"])
def test_the_output_may_be_none_of_the_inputs(
    name: str, model_folder: Path, files: list[object], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "rival").write_text("x\n" * len(SOURCES))
    before = (tmp_path / name).read_bytes()
    arguments = ("--against", tmp_path / "rival", "--output", tmp_path / name)
    status, _, err = command("evaluate", model_folder, *files, *arguments)
    assert status == 1
    assert "`--output` must be another file than the input, but both are" in err
    assert (tmp_path / name).read_bytes() == before
