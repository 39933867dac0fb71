"""Trains a recipe's model on its corpus and scores it as papers do, from the files of the corpus in one command.

    scripts/reproduce/reproduce.sh --recipe scan_simple --data scan/simple --output runs/scan_simple
    scripts/reproduce/reproduce.sh --recipe multi30k_small --direction de-en --data multi30k --output runs/small
    scripts/reproduce/reproduce.sh ... --norm_position post    # further options go to `hf-seq2seq train`
    scripts/reproduce/reproduce.sh ... --validation-only       # to choose settings: test sets are not read

The recipes are in scripts/reproduce/recipes/, and scripts/reproduce/corpora.py says which files the folder of `--data`
holds.

Started again with the same arguments, it goes on where it was stopped: finished steps are not repeated, and training
resumes from its last checkpoint. With other arguments it refuses. In the end the folder of `--output` holds `model/`
with the run, `hypotheses/`, scores.json, curves.png, and the model card card.md with its facts in card.yaml, as
model_cards/ holds them.

Multi30k has two scores, which cannot be compared. `bleu` is cased, detokenised sacreBLEU (13a). `bleu_tok_lc` is BLEU
of lower-cased text with normalised punctuation, tokenised by Moses' rules (sacremoses), as most papers on this corpus
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
from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from hf_seq2seq import Seq2SeqTransformerConfig, Translator
from hf_seq2seq.atomic_writing import write_text
from hf_seq2seq.commands.main import main as run_command
from hf_seq2seq.data import read_lines
from hf_seq2seq.evaluation import METRICS, score, scores_in
from hf_seq2seq.hub import CardFacts
from hf_seq2seq.hub.card import FACTS_FILE, make_card, read_facts
from hf_seq2seq.inspection import draw_training_curves, training_curves, write_view
from hf_seq2seq.training.command_line import parse_arguments as parse_train_arguments
from hf_seq2seq.training.command_line import to_options
from scripts.reproduce.corpora import CORPORA, TOKENIZED, VALIDATION, Corpus, Part, lower_and_tokenize, read_parts
from scripts.run_arguments import keep_arguments


RECIPES = Path(__file__).with_name("recipes")
SCORES_FILE = "scores.json"
_NOT_PUBLISHED = "The weights are not published; the command below makes them again."

# Options of `train` that this script sets itself.
OWN_OPTIONS = {
    *("train_source", "train_target", "train_file", "dataset_name", "validation_source", "validation_target"),
    *("validation_file", "streaming", "model_name_or_path", "output_dir", "push_to_hub", "dry_run"),
}

Files = dict[str, list[Path]]  # the source and the target file of each part


def read_recipe(name: str) -> dict[str, Any]:
    """Returns a recipe: its corpus, its settings for `train` and `translate`, its metrics, and how text is prepared.

    Raises:
        ValueError: If it asks for an unknown kind of text.
    """
    recipe: dict[str, Any] = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
    text = recipe.get("text", TOKENIZED)
    if text != TOKENIZED:
        raise ValueError(f"`text` of recipe {name} must be {TOKENIZED!r} or left out, but is {text!r} instead.")
    return recipe


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
    for kind, part in (("train", "train"), ("validation", "val")):
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
    parts: dict[str, Part], folder: Path, recipe: dict[str, Any], language: str
) -> dict[str, dict[str, Any]]:
    """Returns the scores of each set by its name."""
    scores = {}
    for name, part in parts.items():
        hypotheses = list(read_lines(folder / f"{name}.txt"))
        found = scores_in(score(hypotheses, part.references, recipe.get("metrics")))
        if recipe["corpus"] == "multi30k":
            found = _with_tok_lc(found, hypotheses, part.pairs[1], language, is_tokenized="text" in recipe)
        scores[name] = found | {"num_sentences": len(part.sources)}
    return scores


def _with_tok_lc(
    scores: dict[str, Any], hypotheses: list[str], references: list[str], language: str, *, is_tokenized: bool
) -> dict[str, Any]:
    """Adds BLEU tok-lc. Text that is lower-cased and tokenized already has no score with 13a."""
    if not is_tokenized:
        return scores | score_tok_lc(*(lower_and_tokenize(side, language) for side in (hypotheses, references)))
    kept = {key: value for key, value in scores.items() if not key.startswith("bleu")}
    return kept | score_tok_lc(hypotheses, references)


def describe(
    options: argparse.Namespace, scores: dict[str, Any], recipe: dict[str, Any], further: Sequence[str]
) -> CardFacts:
    """Returns the facts of the model's card: those that the run left, and those that the recipe and its corpus add."""
    corpus = CORPORA[recipe["corpus"]]
    command = ["scripts/reproduce/reproduce.sh", "--recipe", options.recipe]
    if len(corpus.directions) > 1:
        command += ["--direction", options.direction]
    command += ["--seed", str(options.seed), "--data", "DATA", "--output", options.output.resolve().name, *further]
    title = [f"{corpus.title} {options.direction.upper()}" if len(corpus.directions) > 1 else corpus.title]
    start = recipe.get("start_from")
    sentences = [corpus.card["summary"], recipe.get("summary"), _NOT_PUBLISHED]
    summary = " ".join(sentence for sentence in sentences if sentence)
    if start:
        summary += f" It is recipe {start}'s, trained further; updates and settings are of that second training."
    source, target = options.direction.split("-")
    facts: dict[str, Any] = {
        "source_languages": [source] if len(corpus.directions) > 1 else [],
        "target_languages": [target] if len(corpus.directions) > 1 else [],
        "intended_use": "To compare with published results on this corpus.",
        **corpus.card,
        "title": ", ".join([*title, f"recipe {options.recipe}", f"seed {options.seed}"]),
        "summary": summary,
        "command": shlex.join(command),
        "scores": [_score_of_card(f"{corpus.title} {name}", found) for name, found in scores.items()],
    }
    return replace(read_facts(options.output / "model" / FACTS_FILE), **facts)


def _score_of_card(name: str, found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if not key.startswith("bleu_tok_lc")}
    if "bleu_tok_lc" in found:
        note = f"BLEU tok-lc {found['bleu_tok_lc']:.2f} (`{found['bleu_tok_lc_signature']}`)"
        others = "" if "bleu" in found else "; the other scores are of lower-cased and tokenized text too"
        kept["note"] = note + others
    return {"test_set": name, **kept}


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
    titles = {"bleu": "BLEU 13a cased", "bleu_tok_lc": "BLEU tok-lc"}
    titles = {name: titles.get(name) or METRICS[name].title for name in ("bleu", "bleu_tok_lc", *METRICS)}
    columns = [name for name in titles if any(name in found for found in scores.values())]
    rows = [["test set", *(titles[name] for name in columns)], ["---"] * (1 + len(columns))]
    rows += [[name, *(f"{found[column]:.2f}" for column in columns)] for name, found in scores.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def parse_arguments(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Returns the arguments of this script, and the options that it hands on to `train`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    recipes = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    add("--recipe", choices=recipes, required=True, help="what is trained, and how")
    add("--data", type=Path, required=True, metavar="DIR", help="folder with the files of the corpus")
    add("--output", type=Path, required=True, metavar="DIR", help="folder for everything that is made")
    add("--direction", metavar="SOURCE-TARGET", help="such as de-en, where the corpus has two directions")
    add("--validation-only", action="store_true", help="leave out the test sets")
    add("--seed", type=int, default=1, help="of weights, dropout and the order of batches (default 1)")
    return parser.parse_known_args(arguments)


def _choose_direction(given: str | None, corpus: Corpus) -> str:
    if given is not None and given not in corpus.directions:
        raise ValueError(
            f"`--direction` must be {' or '.join(corpus.directions)} for {corpus.title}, but is {given!r} instead."
        )
    return given or corpus.directions[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Does all steps that are not done yet."""
    options, further = parse_arguments(arguments)
    output, recipe = options.output, read_recipe(options.recipe)
    corpus, hypotheses = CORPORA[recipe["corpus"]], output / "hypotheses"
    options.direction = _choose_direction(options.direction, corpus)
    sides = options.direction.split("-")
    sets = {name: part for name, part in corpus.sets.items() if name == VALIDATION or not options.validation_only}
    names = ["train", *sets.values()]
    files = {name: [output / "data" / f"{name}.{side}" for side in sides] for name in names}

    # Mistakes are found before hours are spent.
    commands = train_commands(options.recipe, options.seed, files, output, further)
    parts = read_parts(options.data, corpus, sides, names, recipe)
    given = {name: getattr(options, name) for name in ("direction", "recipe", "seed")} | {
        "options": shlex.join(further)
    }
    keep_arguments(output, given, is_begun=any((output / "model").glob("**/model.safetensors")))

    for name in ("train", "val"):
        for file, text in zip(files[name], map(_to_text, parts[name].pairs), strict=True):
            if not file.exists() or file.read_bytes() != text.encode():  # `train` goes by the date
                write_text(file, text)
    train(commands)
    scored = {name: parts[part] for name, part in sets.items()}
    sources = {name: part.sources for name, part in scored.items()}
    translate(output / "model", sources, recipe["translate"], hypotheses)
    scores = score_all(scored, hypotheses, recipe, sides[1])
    write_text(output / SCORES_FILE, f"{json.dumps(scores, indent=2)}\n")
    print(table(scores))
    write_card(describe(options, scores, recipe, further), output / "model", output)
    write_view(training_curves(output / "model"), draw_training_curves, output / "curves.png")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on.", file=sys.stderr)
        sys.exit(130)
