"""Publish a model: a folder that loads with or without this package, and its way to the Hub."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub import HfApi, ModelCard, constants
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its list of exports
from transformers import PreTrainedTokenizerBase, TrainerState

from hf_seq2seq.atomic_writing import new_folder
from hf_seq2seq.loading import PathLike, load_model, load_tokenizer
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerPreTrainedModel

from .card import FACTS_FILE, CardFacts, make_card, make_facts, read_facts
from .errors import RUN_AGAIN, hub_errors


README = "README.md"  # the card, as the Hub calls it


@dataclass(frozen=True)
class Publication:
    """What `push` uploaded, or would upload.

    Attributes:
        repo_id: The repository, with its owner where it is known.
        url: Its address.
        files: Name and size in bytes of each file; README.md is not among them where the card there was kept.
    """

    repo_id: str
    url: str
    files: dict[str, int]


def save_for_hub(
    model: Seq2SeqTransformerPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: PathLike,
    *,
    card: CardFacts | None = None,
    repo_id: str | None = None,
) -> None:
    """Saves a model as it is published: weights, configs, tokenizer, the code that loads it, and a model card.

    The folder loads with `AutoConfig`, `AutoModel`, `AutoModelForSeq2SeqLM` and `AutoTokenizer`: where this package is
    imported without a question, and where it is not with `trust_remote_code=True`.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        folder: A new or empty folder.
        card: What the card tells beside the architecture.
        repo_id: Where the card says it is loaded from; by default the folder's name.

    Raises:
        TypeError: If the model is none of this package.
        OSError: If the folder cannot be written, **or**
        ValueError: If it holds something.
    """
    if not isinstance(model, Seq2SeqTransformerPreTrainedModel):
        raise TypeError(
            f"`model` must be a model of hf_seq2seq, but is a {type(model).__name__} instead. Merge adapters into the "
            "model, and save that."
        )
    facts = card or CardFacts()
    if facts.tokenizer is None:
        facts = replace(facts, tokenizer=_describe_tokenizer(tokenizer))
    text = make_card(facts, model.config, repo_id=repo_id or Path(folder).resolve().name)
    carried, model.carries_code = model.carries_code, True
    try:
        with new_folder(folder) as unfinished:
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
            text.save(unfinished / README)
    finally:
        model.carries_code = carried


def push(
    folder: PathLike,
    repo_id: str,
    *,
    card: CardFacts | None = None,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    commit_message: str = "Upload model",
    dry_run: bool = False,
    way_out: str = RUN_AGAIN,
) -> Publication:
    """Uploads the model of a folder to the Hub, as `save_for_hub` saves it, in one commit.

    Nothing else in the folder is uploaded, such as checkpoints, logs or settings, and nothing in it is changed. A
    README.md in it becomes the card as it stands. Else one is made where `card` is given or the repository has none.

    Args:
        folder: A model's folder with its tokenizer.
        repo_id: The repository, OWNER/NAME, or NAME for one of your own. It is made if there is none.
        card: What the card tells. By default a card that the repository has is kept, and one that is made tells what
            `facts_in` finds in the folder.
        private: Whether a new repository is private; by default as its owner's settings say.
        revision: The branch, which is made if there is none; by default "main".
        token: By default the one that `hf auth login` or HF_TOKEN gave.
        commit_message: What the commit is called.
        dry_run: Whether nothing is sent, and the Hub not asked either.
        way_out: What an error advises where the fault lies with the Hub or the connection.

    Raises:
        OSError: If a file is missing or the Hub refuses, fails or cannot be reached, **or**
        ValueError: If the folder holds no whole model of this package, its README.md is no card, `repo_id` or
            `revision` is no name, or the repository is public and `private` asks for another.
    """
    _check_branch(revision)
    api = HfApi(token=token, library_name="hf_seq2seq")
    with hub_errors(repo_id, way_out=way_out):
        validate_repo_id(repo_id)
        if "/" not in repo_id and not dry_run:
            repo_id = f"{api.whoami()['name']}/{repo_id}"
    with TemporaryDirectory(prefix="hf_seq2seq_") as temporary:
        staged = Path(temporary) / "model"
        stage(folder, staged, repo_id=repo_id, card=card)
        if not dry_run:
            upload(
                *(api, staged, repo_id),
                private=private,
                revision=revision,
                commit_message=commit_message,
                keeps_card=card is None and not (Path(folder) / README).is_file(),
                way_out=way_out,
            )
        files = {path.name: path.stat().st_size for path in sorted(staged.iterdir())}
    return Publication(repo_id, f"{constants.ENDPOINT}/{repo_id}", files)


def stage(folder: PathLike, staged: Path, *, repo_id: str, card: CardFacts | None = None) -> None:
    """Makes a folder of what `push` uploads.

    Args:
        folder: As for `push`.
        staged: A new folder.
        repo_id: The repository.
        card: As for `push`.

    Raises:
        OSError: If a file is missing, or cannot be written, **or**
        ValueError: If the folder holds no whole model of this package, or its README.md is no card.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"`{folder}` must be a model's folder, but there is none. Check the path.")
    own_card = Path(folder) / README
    if own_card.is_file():
        _check_card(own_card)
    facts = facts_in(folder) if card is None else card
    save_for_hub(load_model(folder), load_tokenizer(folder), staged, card=facts, repo_id=repo_id)
    if own_card.is_file():
        shutil.copyfile(own_card, staged / README)


def upload(
    api: HfApi,
    staged: Path,
    repo_id: str,
    *,
    private: bool | None,
    revision: str | None,
    commit_message: str,
    keeps_card: bool = False,
    way_out: str = RUN_AGAIN,
) -> None:
    """Uploads all of a folder, and makes the repository and the branch where there are none.

    The arguments are those of `push`, and so are the errors. With `keeps_card` the card is removed from the folder,
    and not sent, where the branch has one.
    """
    with hub_errors(repo_id, way_out=way_out):
        api.create_repo(repo_id, private=private, exist_ok=True)
        if private and not api.model_info(repo_id).private:
            raise ValueError(
                f"`{repo_id}` must be private as was asked, but is a public repository. Make it private in its "
                "settings on the Hub, or name another."
            )
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        if keeps_card and api.file_exists(repo_id, README, revision=revision):
            (staged / README).unlink()
        api.upload_folder(repo_id=repo_id, folder_path=staged, commit_message=commit_message, revision=revision)


def facts_in(folder: PathLike) -> CardFacts:
    """Returns what a folder tells of its model: model_card.yaml, or the updates in a checkpoint's trainer_state.json.

    Raises:
        ValueError: If one of them is not as it must be.
    """
    path = Path(folder) / FACTS_FILE
    if path.exists():
        return read_facts(path)
    path = Path(folder) / "trainer_state.json"
    if path.exists():
        state = TrainerState.load_from_json(str(path))
        return make_facts({"updates": state.global_step, "epochs": state.epoch}, f"`{path}`")
    return CardFacts()


def _check_branch(revision: str | None) -> None:
    if revision is not None and (not revision.strip() or revision.startswith("refs/")):
        raise ValueError(f"`revision` must be the name of a branch, such as 'v2', but is {revision!r} instead.")


def _check_card(path: Path) -> None:
    try:
        ModelCard.load(path)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"`{path}` must be a model card, UTF-8 text with valid YAML between its first two `---`, but is none: "
            f"{reason}"
        ) from error


def _describe_tokenizer(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    kind = type(tokenizer).__name__ if backend is None else type(backend.model).__name__
    return f"{len(tokenizer):,} tokens ({kind})"
