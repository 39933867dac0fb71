"""The verb `push`: a trained model, with its card and the code that loads it, goes to the Hub."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer


if TYPE_CHECKING:
    from hf_seq2seq.hub import CardFacts, Publication


def push(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A trained model's folder.", metavar="FOLDER")],
    repo_id: Annotated[str, typer.Argument(help="OWNER/NAME on the Hub, or NAME for yourself.", metavar="REPO_ID")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[str | None, typer.Option(help="The branch; by default main.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be uploaded, and send nothing.")] = False,
    source_languages: Annotated[
        list[str] | None,
        typer.Option("--source-language", help='For the card: a language that it reads, such as "en"; or several.'),
    ] = None,
    target_languages: Annotated[
        list[str] | None, typer.Option("--target-language", help="A language that it writes; or several.")
    ] = None,
    license: Annotated[str | None, typer.Option(help='The model\'s licence, such as "cc-by-4.0".')] = None,
    data: Annotated[str | None, typer.Option(help="What it was trained on, in a sentence or two.")] = None,
    data_license: Annotated[str | None, typer.Option(help="The licence of that data.")] = None,
    intended_use: Annotated[str | None, typer.Option(help="What the model is for, in a sentence or two.")] = None,
    hardware: Annotated[str | None, typer.Option(help="What it was trained on: the machine.")] = None,
    scores_file: Annotated[
        Path | None, typer.Option("--scores", help="A file that `hf-seq2seq evaluate --json` printed.")
    ] = None,
    test_set: Annotated[str | None, typer.Option(help="The name of what was translated for these scores.")] = None,
) -> None:
    """Upload a trained model to the Hugging Face Hub: weights, configs, tokenizer, code and model card, nothing else.

    The folder stays as it is. The card tells what its model_card.yaml holds, which `hf-seq2seq train` begins, and what
    the options say; a README.md in the folder takes its place. Without such options a card that the repository has is
    kept. Sign in with `hf auth login` first.
    """
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from hf_seq2seq.hub import CardFacts, publishing

    if not sys.stderr.isatty():
        disable_progress_bars()  # a bar in a log file is many lines
    names = CardFacts.__dataclass_fields__  # an option for the card is called as the fact is
    given = {name: value for name, value in context.params.items() if name in names and value}
    facts = publishing.facts_in(folder)
    if scores_file is not None or test_set is not None:
        given["scores"] = [*facts.scores, *_read_scores(scores_file, test_set)]
    _check_card_is_used(folder, list(given))
    card = replace(facts, **given)
    published = publishing.push(
        folder,
        repo_id,
        card=card if given else None,
        private=True if private else None,
        revision=revision,
        dry_run=dry_run,
    )
    lines = [
        *_list_files(published, revision, dry_run),
        *_describe_card(published, card, folder, may_be_kept=dry_run and not given),
    ]
    if not dry_run:
        branch = "" if revision is None else f" --revision {shlex.quote(revision)}"
        lines += ["Translate with it anywhere:", f"  hf-seq2seq translate {shlex.quote(published.repo_id)}{branch}"]
    typer.echo("\n".join(lines))


def _check_card_is_used(folder: Path, given: list[str]) -> None:
    if given and (folder / "README.md").is_file():
        raise ValueError(
            f"`{folder / 'README.md'}` is the card as it stands, so that what the options say of {', '.join(given)} "
            "would not be in it. Move it away to have a card made, or leave them out."
        )


def _read_scores(path: Path | None, test_set: str | None) -> list[dict[str, Any]]:
    if path is None or test_set is None:
        given, missing = ("--scores", "--test-set") if test_set is None else ("--test-set", "--scores")
        raise ValueError(f"`{missing}` must be given together with `{given}`, but is not.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"`--scores` must be what `hf-seq2seq evaluate --json` printed, but {path} is no JSON."
        ) from error
    from hf_seq2seq.evaluation import METRICS, metrics_in, scores_in
    from hf_seq2seq.hub.card import make_facts

    found = found if isinstance(found, dict) else {}
    scores = scores_in(found)
    if not metrics_in(found):
        raise ValueError(
            f"`--scores` must be what `hf-seq2seq evaluate --json` printed, but {path} holds none of "
            f"{', '.join(METRICS)}."
        )
    number = {"num_sentences": found["num_sentences"]} if "num_sentences" in found else {}
    return make_facts({"scores": [{"test_set": test_set, **number, **scores}]}, f"`{path}`").scores


def _list_files(published: "Publication", revision: str | None, dry_run: bool) -> list[str]:
    branch = "" if revision is None else f", branch {revision}"
    heading = f"{published.url}{branch}"
    width = max(map(len, published.files))
    return [
        f"This would be uploaded to {heading}; nothing was sent." if dry_run else f"Uploaded to {heading}:",
        *(f"  {name:<{width}}  {_size(size)}" for name, size in published.files.items()),
    ]


def _describe_card(published: "Publication", card: "CardFacts", folder: Path, *, may_be_kept: bool) -> list[str]:
    """Returns lines that tell which card the repository has now, and which facts a new card does not tell."""
    if (folder / "README.md").is_file():
        return [f"The card is {folder / 'README.md'}."]
    if "README.md" not in published.files:
        return ["The card there is kept; give card options to write it anew."]
    lines = []
    if may_be_kept:
        lines.append("A card that is there already would be kept, not replaced; give card options to write it anew.")
    unknown = card.unknown()
    if unknown:
        lines.append(f"The card says nothing of: {', '.join(unknown)}. See `hf-seq2seq push --help`.")
    return lines


def _size(num_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"
