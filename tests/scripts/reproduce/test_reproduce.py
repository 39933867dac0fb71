"""The reproduction goes from raw files to scores and goes on where it stopped, on a model so small that seconds do."""

import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import yaml
from safetensors.torch import load_file

from hf_seq2seq.training.checkpoints import last_whole_checkpoint
from scripts.render_model_cards import render
from scripts.reproduce import reproduce
from scripts.reproduce.corpora import CORPORA, lower_and_tokenize, read_parts
from scripts.reproduce.reproduce import RECIPES, main


PAIRS = [("A dog runs.", "Ein Hund rennt."), ("Two men  sit. ", "Zwei Männer sitzen.\t"), ("A cat", "Eine Katze")]
TINY = "--d_model 16 --encoder_layers 1 --decoder_layers 1 --encoder_ffn_dim 16 --decoder_ffn_dim 16 --vocab_size 300"
SETS = CORPORA["multi30k"].sets
SMALL = ["--recipe", "multi30k_small"]
SHORT = "--max_steps 2 --logging_steps 1 --save_strategy steps --save_steps 2 --average_checkpoints 0"
NO_EVALUATION = "--eval_strategy no --predict_with_generate false"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    for part in ("train", *SETS.values()):
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in PAIRS * 4)
            (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def test_all_steps_are_gone_through_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    arguments = ["--data", str(data), "--output", str(output), *SMALL, "--direction", "de-en", *TINY.split()]
    arguments += [*SHORT.split(), *NO_EVALUATION.split()]
    main(arguments)
    assert (output / "data" / "val.en").read_text().splitlines()[:3] == ["A dog runs.", "Two men  sit.", "A cat"]
    results = json.loads((output / "model" / "training_results.json").read_text())
    assert results["num_steps"] == 2
    scores = json.loads((output / "scores.json").read_text())
    assert list(scores) == list(SETS)
    for name in SETS:
        hypotheses = (output / "hypotheses" / f"{name}.txt").read_text().splitlines()
        assert len(hypotheses) == 12
        references = [pair[0].strip() for pair in PAIRS * 4]
        expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
        assert scores[name]["bleu"] == pytest.approx(expected)
        sides = [lower_and_tokenize(lines, "en") for lines in (hypotheses, references)]
        expected = sacrebleu.corpus_bleu(sides[0], [sides[1]], tokenize="none", force=True).score
        assert scores[name]["bleu_tok_lc"] == pytest.approx(expected)
    assert "| Test2016 | " in capsys.readouterr().out
    assert (output / "curves.png").stat().st_size > 1000
    card = (output / "card.md").read_text()
    assert f"BLEU tok-lc {scores['MSCOCO']['bleu_tok_lc']:.2f}" in card
    shutil.copy(output / "card.yaml", tmp_path / "copied.yaml")
    assert render(tmp_path / "copied.yaml") == card  # what is put into model_cards/ says the same

    monkeypatch.setattr(reproduce, "Translator", None)  # nothing is translated again
    (output / "scores.json").unlink()
    main(arguments)
    assert json.loads((output / "scores.json").read_text()) == scores


def test_settings_are_chosen_without_a_look_at_the_test_sets(data: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(data), "--output", str(tmp_path / "out"), *SMALL, *TINY.split(), *SHORT.split()]
    arguments += NO_EVALUATION.split()
    tests = list(data.glob("test_*"))
    for file in tests:
        file.rename(tmp_path / file.name)
    main([*arguments, "--validation-only"])
    assert list(json.loads((tmp_path / "out" / "scores.json").read_text())) == ["validation"]
    for file in tests:
        (tmp_path / file.name).rename(file)
    main(arguments)
    assert list(json.loads((tmp_path / "out" / "scores.json").read_text())) == list(SETS)
    given = json.loads((tmp_path / "out" / "arguments.json").read_text())
    assert given["direction"] == "en-de"
    assert given["options"].startswith("--d_model 16 ")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--direction", "de-en", "`direction` must be 'en-de' as in the run that .* holds, but is 'de-en' instead"),
        ("--recipe", "multi30k_tiny", "`recipe` must be 'multi30k_small' as in"),
        ("--seed", "2", "`seed` must be 1 as in"),
        ("--d_model", "16", "`options` must be '' as in .* but is '--d_model 16' instead"),
    ],
)
def test_a_folder_with_another_run_is_an_error(
    option: str, value: str, message: str, data: Path, tmp_path: Path
) -> None:
    given = '{"direction": "en-de", "recipe": "multi30k_small", "seed": 1, "options": ""}'
    checkpoint = tmp_path / "out" / "model" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").touch()
    (tmp_path / "out" / "arguments.json").write_text(given)
    with pytest.raises(ValueError, match=message):
        main(["--data", str(data), "--output", str(tmp_path / "out"), *SMALL, option, value])
    assert (tmp_path / "out" / "arguments.json").read_text() == given
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["arguments.json", "model"]

    (tmp_path / "out" / "arguments.json").write_text("{")
    with pytest.raises(ValueError, match=r"arguments.json` must hold what the run was given, as JSON, but does not"):
        main(["--data", str(data), "--output", str(tmp_path / "out"), *SMALL])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--recipe multi30k_best --learnig_rate 1", "`learnig_rate` in the command line must be a field"),
        ("--text lower", "`text` in the command line must be a field"),
        ("--train-file=more.tsv", "`train_file` must be left to this script"),
        ("--output-dir elsewhere", "`output_dir` must be left to this script, but is given"),
        ("--learning_rate", "expected one argument"),
        ("--d_model 7", "^`d_model` must be a multiple of `encoder_attention_heads`"),
    ],
)
def test_wrong_options_are_found_before_anything_is_made(
    options: str, message: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        main(["--data", str(data), "--output", str(tmp_path / "out"), *SMALL, *options.split()])
    assert not (tmp_path / "out").exists()


def test_raw_files_are_checked_before_anything_is_made(data: Path, tmp_path: Path) -> None:
    file = data / "test_2016_flickr.de.gz"
    file.write_bytes(gzip.compress(b"Ein Hund\n"))
    with pytest.raises(ValueError, match=r"raw/test_2016_flickr.en.gz has 12 and .*raw/test_2016_flickr.de.gz has 1 "):
        main(["--data", str(data), "--output", str(tmp_path / "out"), *SMALL])
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"test_2016_flickr.de.gz` must be a file, but does not exist"):
        main(["--data", str(data), "--output", str(tmp_path / "out"), *SMALL])
    assert not (tmp_path / "out").exists()


def test_a_run_that_fails_ends_the_script(data: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(data), "--output", str(tmp_path / "out"), *SMALL, "--validation-only"]
    arguments += [*TINY.split(), *SHORT.split(), *NO_EVALUATION.split()]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--min_characters", "100000"])  # which leaves no pair
    assert end.value.code == 1
    assert not (tmp_path / "out" / "hypotheses").exists()
    main(arguments)  # nothing is lost by mending it
    assert (tmp_path / "out" / "scores.json").exists()


def test_translations_are_made_anew_where_they_are_not_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Shouter:
        @classmethod
        def from_pretrained(cls, folder: Path) -> "Shouter":
            return cls()

        def stream(self, lines: list[str], beam_size: int) -> list[str]:
            made.append(f"{lines} {beam_size}")
            return [line.upper() for line in lines]

    monkeypatch.setattr(reproduce, "Translator", Shouter)
    weights, folder = tmp_path / "model.safetensors", tmp_path / "hypotheses"
    weights.write_bytes(b"weights")
    sources = {"one": ["a", "b"], "two": ["c"]}

    def num_made(**changed: Any) -> int:
        made.clear()
        reproduce.translate(tmp_path, sources | changed, {"beam_size": 4}, folder)
        return len(made)

    assert num_made() == 2
    assert num_made() == 0
    assert num_made(two=["d"]) == 1
    (folder / "one.txt").write_text("A\n")  # a copy that was cut short
    assert num_made(two=["d"]) == 1
    assert (folder / "one.txt").read_text() == "A\nB\n"
    weights.write_bytes(b"others")
    assert num_made(two=["d"]) == 2
    reproduce.translate(tmp_path, {"two": ["d"]}, {"beam_size": 5}, folder)
    assert made[-1] == "['d'] 5"


def test_text_is_lowered_normalised_and_tokenized_as_in_the_corpus() -> None:
    raw = ["Der „Hund“ rennt, schnell.", "Eine U-Bahn: 1.000 T-Shirts in d'Avila & Söhne"]
    expected = [
        "der &quot; hund &quot; rennt , schnell .",
        "eine u-bahn : 1.000 t-shirts in d &apos; avila &amp; söhne",
    ]
    assert lower_and_tokenize(raw, "de") == expected


def test_a_recipe_of_tokenized_text_trains_on_it_and_has_no_cased_score(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {
        "corpus": "multi30k",
        "text": "lc.norm.tok",
        "train": {"learning_rate": 1e-3},
        "translate": {"beam_size": 1},
    }
    (tmp_path / "lower.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(reproduce, "RECIPES", tmp_path)
    output = tmp_path / "out"
    arguments = ["--data", str(data), "--output", str(output), "--recipe", "lower", *TINY.split(), *SHORT.split()]
    main(arguments)
    assert (output / "data" / "train.en").read_text().splitlines()[:2] == ["a dog runs .", "two men sit ."]
    references = (output / "data" / "val.de").read_text().splitlines()
    hypotheses = (output / "hypotheses" / "validation.txt").read_text().splitlines()
    found = json.loads((output / "scores.json").read_text())["validation"]
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    assert found["bleu_tok_lc"] == pytest.approx(expected)
    assert "bleu" not in found
    assert "| test set | BLEU tok-lc | chrF |" in capsys.readouterr().out
    assert "of lower-cased and tokenized text too" in (output / "card.md").read_text()


def test_a_recipe_that_starts_from_another_trains_its_model_further(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {name: int(value) for name, value in zip(*[iter(TINY.replace("--", "").split())] * 2, strict=True)}
    recipes = {
        "first": {"corpus": "multi30k", "train": sizes | {"max_steps": 1}, "translate": {}},
        # Nothing is learned at a rate of 0, so that the model stays the first one's.
        "second": {
            "corpus": "multi30k",
            "start_from": "first",
            "train": {"learning_rate": 0.0},
            "translate": {"beam_size": 1},
        },
    }
    for name, recipe in recipes.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(reproduce, "RECIPES", tmp_path)
    output = tmp_path / "out"
    main(["--data", str(data), "--output", str(output), "--recipe", "second", "--seed", "5", *SHORT.split()])
    first, second = (load_file(folder / "model" / "model.safetensors") for folder in (output / "first", output))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    for folder, num_steps in ((output / "first", 1), (output, 2)):
        assert json.loads((folder / "model" / "training_results.json").read_text())["num_steps"] == num_steps
        assert json.loads((folder / "model" / "training_settings.json").read_text())["seed"] == 5
    assert "It is recipe first's, trained further" in (output / "card.md").read_text()


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_from_which_the_same_command_goes_on(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script, output = Path(reproduce.__file__), tmp_path / "out"
    arguments = ["--data", str(data), "--output", str(output), *SMALL, *TINY.split(), *NO_EVALUATION.split()]
    arguments += ["--validation-only", "--average_checkpoints", "0", "--logging_steps", "1"]
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, script, *arguments, "--max_steps", "400"], stdout=file, stderr=file
        )
        while "'loss'" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert "The same command goes on from" in log.read_text()
    assert last_whole_checkpoint(output / "model") is not None
    caplog.clear()
    main([*arguments, "--max_steps", "400"])
    assert "Going on from" in caplog.text
    assert json.loads((output / "model" / "training_results.json").read_text())["num_steps"] == 400
    assert (output / "scores.json").exists()


# Files of each corpus, as PART: (source, target) lines, the same in every part.
LINES = {
    "cmudict": [("read", "R EH1 D"), ("read", "R IY1 D"), ("cat", "K AE1 T"), ("it", "IH1 T"), ("it", "IH2 T")],
    "scan": [("jump", "I_JUMP")] * 5 + [(f"walk {number}", "I_WALK " * number) for number in range(1, 50)],
    "tatoeba": [("我有一条狗。", "I have a dog."), ("你好", "Hello")],
    "scitldr": [("Dogs run. Cats do not.", "Dogs run."), ("Snow is cold.", "It is cold.")],
}


def write_corpus(folder: Path, name: str) -> Path:
    folder.mkdir()
    corpus = CORPORA[name]
    for part in ("train", *corpus.sets.values()) if corpus.has_validation else ("train", "test"):
        for side, lines in zip(corpus.directions[0].split("-"), zip(*LINES[name], strict=True), strict=True):
            (folder / f"{part}.{side}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        if corpus.has_references:
            (folder / f"{part}.refs.tsv.gz").write_bytes(gzip.compress(b"Dogs run.\tDogs run, cats do not.\nBrr.\n"))
    return folder


def test_pronunciations_of_one_word_are_all_right_and_stress_is_left_out(tmp_path: Path) -> None:
    data, corpus = write_corpus(tmp_path / "raw", "cmudict"), CORPORA["cmudict"]
    part = read_parts(data, corpus, ["word", "phon"], ["test"], {"stress": False})["test"]
    assert part.pairs == (["r e a d", "r e a d", "c a t", "i t"], ["R EH D", "R IY D", "K AE T", "IH T"])
    assert dict(zip(part.sources, part.references, strict=True)) == {
        "r e a d": ["R EH D", "R IY D"],
        "c a t": ["K AE T"],
        "i t": ["IH T"],
    }
    part = read_parts(data, corpus, ["word", "phon"], ["test"], {"stress": True})["test"]
    assert part.references[2] == ["IH1 T", "IH2 T"]


def test_where_there_are_no_validation_pairs_some_training_pairs_that_occur_once_are_taken(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "raw", "scan")
    parts = read_parts(data, CORPORA["scan"], ["command", "action"], ["train", "val", "test"], {})
    assert parts["val"].sources == ["walk 1", "walk 21", "walk 41"]
    assert len(parts["train"].sources) == 54 - 3
    assert set(parts["train"].sources).isdisjoint(parts["val"].sources)
    assert parts["train"].sources.count("jump") == 5
    assert len(parts["test"].sources) == 54


def test_summaries_have_several_references_which_must_fit(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "raw", "scitldr")
    part = read_parts(data, CORPORA["scitldr"], ["abstract", "tldr"], ["test"], {})["test"]
    assert part.references == [["Dogs run.", "Dogs run, cats do not."], ["Brr."]]
    (data / "test.refs.tsv.gz").write_bytes(gzip.compress(b"Dogs run.\n\n"))
    with pytest.raises(ValueError, match=r"test.refs.tsv.gz` must have a line for each of 2 pairs, with a text"):
        read_parts(data, CORPORA["scitldr"], ["abstract", "tldr"], ["test"], {})


def test_a_direction_that_the_corpus_lacks_is_an_error(tmp_path: Path) -> None:
    arguments = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--recipe", "tatoeba"]
    with pytest.raises(ValueError, match="`--direction` must be zh-en or en-zh for Tatoeba, but is 'en-fr' instead"):
        main([*arguments, "--direction", "en-fr"])


def test_a_recipe_is_scored_by_its_own_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, output = write_corpus(tmp_path / "raw", "cmudict"), tmp_path / "out"
    arguments = ["--data", str(data), "--output", str(output), "--recipe", "cmudict", "--vocab_size", "40"]
    main([*arguments, *TINY.split()[:-2], *SHORT.split(), *NO_EVALUATION.split()])
    found = json.loads((output / "scores.json").read_text())["test"]
    hypotheses = (output / "hypotheses" / "test.txt").read_text().splitlines()
    references = [["R EH D", "R IY D"], ["K AE T"], ["IH T"]]
    num_wrong = sum(text not in right for text, right in zip(hypotheses, references, strict=True))
    assert found["g2p_wer"] == pytest.approx(100 * num_wrong / 3)
    assert (list(found), found["num_sentences"]) == (
        ["per", "per_signature", "g2p_wer", "g2p_wer_signature", "num_sentences"],
        3,
    )
    assert "| test set | PER | words wrong |" in capsys.readouterr().out
    card = (output / "card.md").read_text()
    assert "pipeline_tag: text2text-generation" in card
    assert "scripts/reproduce/reproduce.sh --recipe cmudict --seed 1 --data DATA --output out" in card


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES.glob("*.yaml")])
def test_the_command_knows_every_recipe(recipe: str, data: Path, tmp_path: Path) -> None:
    settings = reproduce.read_recipe(recipe)
    if settings["corpus"] != "multi30k":
        data = write_corpus(tmp_path / "corpus", settings["corpus"])
    arguments = ["--data", str(data), "--output", str(tmp_path / "out"), "--recipe", recipe]
    if "start_from" not in settings:  # whose model has its sizes already
        arguments += [*TINY.split(), "--encoder_attention_heads", "2", "--decoder_attention_heads", "2"]
    main([*arguments, *SHORT.split(), *NO_EVALUATION.split(), "--max_steps", "1"])
    assert (tmp_path / "out" / "scores.json").exists()
    assert settings["train"].get("metrics") == settings.get("metrics", settings["train"].get("metrics"))
