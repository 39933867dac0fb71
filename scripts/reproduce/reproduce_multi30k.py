"""Trains a model on Multi30k's 29,000 pairs and scores it as papers do, from the raw files in one command.

    scripts/reproduce/reproduce_multi30k.sh --data multi30k --output runs/small [--direction de-en] [--recipe tiny]
    scripts/reproduce/reproduce_multi30k.sh ... --norm_position post    # further options go to `hf-seq2seq train`
    scripts/reproduce/reproduce_multi30k.sh ... --validation-only       # to choose settings: test sets are not read

The folder of `--data` holds train, val, test_2016_flickr, test_2017_flickr and test_2017_mscoco as NAME.LANGUAGE.gz,
the raw files of https://github.com/multi30k/dataset. The recipes are in scripts/reproduce/recipes/.

Started again with the same arguments, it goes on where it was stopped: finished steps are not repeated, and training
resumes from its last checkpoint. With other arguments it refuses. In the end the folder of `--output` holds `model/`
with the run, `hypotheses/`, scores.json, curves.png, and the model card card.md with its facts in card.yaml, as
model_cards/ holds them.

There are two scores, which cannot be compared. `bleu` is cased, detokenised sacreBLEU (13a). `bleu_tok_lc` is BLEU of
lower-cased text with normalised punctuation, tokenised by Moses' rules (sacremoses), as most papers on this corpus
have it. A recipe with `text: lc.norm.tok` also trains on such text, as those papers do, and then has no cased score.

A recipe with `start_from` trains another recipe's model further. That recipe runs first, without the further options,
in the folder of its name inside that of `--output`. If a finished run of that recipe and seed is there, it is used.
"""

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.errors import StrictDataclassError
from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from hf_seq2seq import Seq2SeqTransformerConfig, Translator
from hf_seq2seq.atomic_writing import write_text
from hf_seq2seq.commands.main import main as run_command
from hf_seq2seq.data import load_parallel, read_lines
from hf_seq2seq.evaluation import score
from hf_seq2seq.hub import CardFacts
from hf_seq2seq.hub.card import FACTS_FILE, make_card, read_facts
from hf_seq2seq.inspection import draw_training_curves, training_curves, write_view
from hf_seq2seq.training.command_line import parse_arguments as parse_train_arguments
from hf_seq2seq.training.command_line import to_options
from scripts.run_arguments import keep_arguments


RECIPES = Path(__file__).with_name("recipes")
SCORES_FILE = "scores.json"
TOKENIZED = "lc.norm.tok"  # the corpus's name for text that is lower-cased, with normalised punctuation, and tokenized
VALIDATION = "validation"
SETS = {
    VALIDATION: "val",
    "Test2016": "test_2016_flickr",
    "Test2017": "test_2017_flickr",
    "MSCOCO": "test_2017_mscoco",
}
# Options of `train` that this script sets itself.
OWN_OPTIONS = {
    *("train_source", "train_target", "train_file", "dataset_name", "validation_source", "validation_target"),
    *("validation_file", "streaming", "model_name_or_path", "output_dir", "push_to_hub", "dry_run"),
}

Pairs = tuple[list[str], list[str]]
Files = dict[str, list[Path]]  # the source and the target file of each part


def lower_and_tokenize(lines: Sequence[str], language: str) -> list[str]:
    """Returns lines as the corpus's lc.norm.tok files have them. Every line of the test sets comes out equal."""
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True) for line in lines]


def read_recipe(name: str) -> dict[str, Any]:
    """Returns a recipe: its settings for `train` and for `translate`, and the kind of text.

    Raises:
        ValueError: If it asks for an unknown kind of text.
    """
    recipe: dict[str, Any] = yaml.safe_load((RECIPES / f"multi30k_{name}.yaml").read_text(encoding="utf-8"))
    text = recipe.get("text", TOKENIZED)
    if text != TOKENIZED:
        raise ValueError(f"`text` of recipe {name} must be {TOKENIZED!r} or left out, but is {text!r} instead.")
    return recipe


def read_raw(data: Path, files: Files, languages: Sequence[str], *, is_tokenized: bool) -> dict[str, Pairs]:
    """Returns the lines of both sides of each part, without white space at their ends.

    Args:
        data: The folder with the raw files.
        files: The files that will be made from them.
        languages: The languages of source and target.
        is_tokenized: Whether to lower-case and tokenize the text.

    Raises:
        OSError: If a file is missing or cannot be read.
        ValueError: If it is damaged, **or** if the sides of a part have different numbers of lines.
    """
    texts: dict[str, Pairs] = {}
    for part, sides in files.items():
        pairs = list(load_parallel(*(data / f"{file.name}.gz" for file in sides), streaming=True))
        source, target = ([pair[side].strip() for pair in pairs] for side in ("source", "target"))
        if is_tokenized:
            source, target = (lower_and_tokenize(*side) for side in zip((source, target), languages, strict=True))
        texts[part] = source, target
    return texts


def train_commands(name: str, seed: int, files: Files, output: Path, further: Sequence[str]) -> list[list[str]]:
    """Returns the commands that train a recipe's model, in `output/model`.

    If the recipe starts from another's model, the first command trains that one.

    Raises:
        ValueError: If one of the further options is unknown or wrong, **or** if this script sets it itself.
    """
    recipe = read_recipe(name)
    settings, commands = recipe["train"] | {"seed": seed}, []
    if "start_from" in recipe:
        start = output / recipe["start_from"]
        commands = train_commands(recipe["start_from"], seed, files, start, ())
        settings["model_name_or_path"] = str((start / "model").resolve())
    settings["output_dir"] = str(output / "model")
    for kind, part in (("train", "train"), ("validation", SETS[VALIDATION])):
        settings |= {f"{kind}_{side}": str(file) for side, file in zip(("source", "target"), files[part], strict=True)}
    for option in further:
        field = option.partition("=")[0].lstrip("-").replace("-", "_")
        if option.startswith("--") and field in OWN_OPTIONS:
            raise ValueError(f"`{field}` must be left to this script, but is given. Leave it out.")
    command = [*to_options(settings), *further]
    try:
        parse_train_arguments(command)
    except StrictDataclassError as error:  # its cause is the error of the check, in one line
        raise ValueError(str(error.__cause__ or error)) from None
    return [*commands, ["train", *command]]


def train(commands: Sequence[Sequence[str]]) -> None:
    """Runs each command, or goes on with its run. Ends this process if one fails or is stopped."""
    for command in commands:
        try:
            run_command(command)
        except SystemExit as end:
            if end.code:
                raise


def translate(model: Path, sources: dict[str, list[str]], search: dict[str, Any], folder: Path) -> None:
    """Writes the translations of each set, unless those of this model, search and source are there already."""
    weights = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    translator = None
    for name, lines in sources.items():
        made_from = json.dumps([weights, search, lines])
        file, mark = folder / f"{name}.txt", folder / f"{name}.sha256"
        if file.exists() and mark.exists() and mark.read_text() == _checksum(made_from, file):
            continue
        translator = translator or Translator.from_pretrained(model)
        translations = tqdm(translator.stream(lines, **search), name, total=len(lines), unit=" sentences")
        write_text(file, _to_text(translations))
        write_text(mark, _checksum(made_from, file))


def _checksum(made_from: str, file: Path) -> str:
    return hashlib.sha256(made_from.encode() + file.read_bytes()).hexdigest()


def _to_text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def score_tok_lc(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Returns BLEU of texts that are lower-cased and tokenized already, and its signature."""
    metric = BLEU(lowercase=True, tokenize="none", force=True)
    value = metric.corpus_score(hypotheses, [references]).score
    signature = f"{metric.get_signature()}|norm|sacremoses:{version('sacremoses')}"
    return {"bleu_tok_lc": value, "bleu_tok_lc_signature": signature}


def score_all(
    references: dict[str, list[str]], folder: Path, language: str, *, is_tokenized: bool
) -> dict[str, dict[str, Any]]:
    """Returns the scores of each set. Text that is lower-cased and tokenized already has no score with 13a."""
    scores = {}
    for name, lines in references.items():
        hypotheses = list(read_lines(folder / f"{name}.txt"))
        found = score(hypotheses, lines)
        if is_tokenized:
            found = {key: value for key, value in found.items() if not key.startswith("bleu")}
            found |= score_tok_lc(hypotheses, lines)
        else:
            found |= score_tok_lc(*(lower_and_tokenize(side, language) for side in (hypotheses, lines)))
        scores[name] = found | {"num_sentences": len(lines)}
    return scores


def describe(
    options: argparse.Namespace, folder: Path, scores: dict[str, Any], start: str | None, further: Sequence[str]
) -> CardFacts:
    """Returns the facts of the model's card: those that the run left, and those that this script adds."""
    command = [
        "scripts/reproduce/reproduce_multi30k.sh",
        "--data",
        "multi30k",
        "--output",
        options.output.resolve().name,
    ]
    for name in ("direction", "recipe", "seed"):
        command += [f"--{name}", str(getattr(options, name))]
    source, target = options.direction.split("-")
    return replace(
        read_facts(folder / FACTS_FILE),
        title=f"Multi30k {source.upper()}-{target.upper()}, recipe {options.recipe}, seed {options.seed}",
        summary="Captions of photographs, translated from their text alone. The weights are not published; the "
        "command below makes them again."
        + (
            f" It is recipe {start}'s, trained further; updates and settings are of that second training."
            if start
            else ""
        ),
        source_languages=[source],
        target_languages=[target],
        data="the training pairs of [Multi30k](https://github.com/multi30k/dataset), task 1, and no other data.",
        data_license="that of Flickr30k: non-commercial research and education",
        command=shlex.join([*command, *further]),
        scores=[_score_of_card(name, found) for name, found in scores.items()],
        intended_use="To compare with published results on this corpus.",
        limits="Short captions of everyday scenes are all that it has seen; other text it translates badly.",
    )


def _score_of_card(name: str, found: dict[str, Any]) -> dict[str, Any]:
    note = f"BLEU tok-lc {found['bleu_tok_lc']:.2f} (`{found['bleu_tok_lc_signature']}`)"
    note += "" if "bleu" in found else "; the other scores are of lower-cased and tokenized text too"
    kept = {key: value for key, value in found.items() if not key.startswith("bleu_tok_lc")}
    return {"test_set": f"Multi30k {name}", "note": note, "num_sentences": found["num_sentences"], **kept}


def write_card(facts: CardFacts, model: Path, output: Path) -> None:
    """Writes the card, and the facts from which `scripts/render_model_cards.py` can write it again."""
    config = Seq2SeqTransformerConfig.from_pretrained(model)
    base = Seq2SeqTransformerConfig.from_paper("base")
    names = [name for name in Seq2SeqTransformerConfig.__annotations__ if name in config.__dataclass_fields__]
    differences = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(base, name)}
    write_text(output / "card.yaml", facts.to_yaml() + yaml.safe_dump({"config": differences}))
    write_text(output / "card.md", f"{make_card(facts, config)}\n")


def table(scores: dict[str, Any]) -> str:
    """Returns the scores as a Markdown table."""
    rows = ["| test set | BLEU 13a cased | BLEU tok-lc | chrF |", "| --- | --- | --- | --- |"]
    for name, found in scores.items():
        values = [f"{found[key]:.2f}" if key in found else "-" for key in ("bleu", "bleu_tok_lc", "chrf")]
        rows.append(f"| {' | '.join([name, *values])} |")
    return "\n".join(rows)


def parse_arguments(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Returns the arguments of this script, and the options that it hands on to `train`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="folder with the raw files")
    add("--output", type=Path, required=True, metavar="DIR", help="folder for everything that is made")
    add("--direction", choices=("en-de", "de-en"), default="en-de", help="source and target language")
    recipes = sorted(path.stem.removeprefix("multi30k_") for path in RECIPES.glob("multi30k_*.yaml"))
    add("--recipe", choices=recipes, default="small", help="size and settings (default small)")
    add("--validation-only", action="store_true", help="leave out the test sets")
    add("--seed", type=int, default=1, help="of weights, dropout and the order of batches (default 1)")
    return parser.parse_known_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Does all steps that are not done yet."""
    options, further = parse_arguments(arguments)
    output, recipe = options.output, read_recipe(options.recipe)
    languages, hypotheses = options.direction.split("-"), output / "hypotheses"
    sets = {name: part for name, part in SETS.items() if name == VALIDATION or not options.validation_only}
    files = {part: [output / "data" / f"{part}.{side}" for side in languages] for part in ("train", *sets.values())}
    is_tokenized = recipe.get("text") == TOKENIZED

    # Mistakes are found before hours are spent.
    commands = train_commands(options.recipe, options.seed, files, output, further)
    texts = read_raw(options.data, files, languages, is_tokenized=is_tokenized)
    given = {name: getattr(options, name) for name in ("direction", "recipe", "seed")} | {
        "options": shlex.join(further)
    }
    keep_arguments(output, given, is_begun=any((output / "model").glob("**/model.safetensors")))

    for part, sides in texts.items():
        for file, text in zip(files[part], map(_to_text, sides), strict=True):
            if not file.exists() or file.read_bytes() != text.encode():  # `train` goes by the date
                write_text(file, text)
    train(commands)
    sources, references = ({name: texts[part][side] for name, part in sets.items()} for side in (0, 1))
    translate(output / "model", sources, recipe["translate"], hypotheses)
    scores = score_all(references, hypotheses, languages[1], is_tokenized=is_tokenized)
    write_text(output / SCORES_FILE, f"{json.dumps(scores, indent=2)}\n")
    print(table(scores))
    write_card(
        describe(options, output / "model", scores, recipe.get("start_from"), further), output / "model", output
    )
    write_view(training_curves(output / "model"), draw_training_curves, output / "curves.png")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on.", file=sys.stderr)
        sys.exit(130)
