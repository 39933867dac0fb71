"""Uploads a model to the Hub, as `saving` saves it."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from huggingface_hub import HfApi, ModelCard, constants
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its list of exports
from transformers import TrainerState

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.loading import check_stays_inside, load_model, load_tokenizer

from .card import FACTS_FILE, CardFacts, make_facts, read_facts
from .errors import RUN_AGAIN, hub_errors
from .saving import README, save_for_hub


@dataclass(frozen=True)
class Publication:
    """What `push` uploaded, or with `dry_run` would upload.

    Attributes:
        repo_id: The repository, with its owner if that is known.
        url: The repository's address.
        files: The size in bytes of each file, by name; without README.md if the repository's card was kept.
    """

    repo_id: str
    url: str
    files: dict[str, int]


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
    """Uploads the model in a folder to the Hub, in one commit, as `save_for_hub` would save it.

    Other files in the folder, such as checkpoints, logs and settings, are not uploaded, and the folder is not changed.
    A README.md in the folder is uploaded as the card, unchanged. Without one, a card is made if `card` is given or the
    repository has no card.

    Args:
        folder: A model's folder with its tokenizer.
        repo_id: The repository, OWNER/NAME, or NAME for one of your own. It is created if it does not exist.
        card: What the card tells. By default the repository's card is kept; if it has none, a card is made of what
            `facts_in` finds in the folder.
        private: Whether a new repository is private; by default as its owner's settings say.
        revision: The branch, which is created if it does not exist; by default "main".
        token: The token to sign in with; by default that of `hf auth login` or HF_TOKEN.
        commit_message: The title of the commit.
        dry_run: If True, nothing is sent and the Hub is not asked anything.
        way_out: What an error advises if the Hub or the connection failed.

    Returns:
        What was uploaded.

    Raises:
        OSError: If a file is missing, or the Hub refuses, fails or cannot be reached.
        ValueError: If the folder holds no complete model of this package, its README.md is not a card, `repo_id` or
            `revision` is not a valid name, or `private` is True and the repository is public.
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
    """Writes a folder of the files that `push` uploads.

    Args:
        folder: A model's folder with its tokenizer.
        staged: The new folder.
        repo_id: The name on the Hub that the card's examples load.
        card: What the card tells; by default what `facts_in` finds in `folder`.

    Raises:
        OSError: If a file is missing, or cannot be written.
        ValueError: If the folder holds no complete model of this package, or its README.md is not a card.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"`{folder}` must be a model's folder, but there is none. Check the path.")
    check_stays_inside(folder)
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
    """Uploads all files of a folder. Creates the repository and the branch if they do not exist.

    Args:
        api: The Hub's client, signed in.
        staged: The folder.
        repo_id: The repository, OWNER/NAME.
        private: Whether a new repository is private; by default as its owner's settings say.
        revision: The branch; by default "main".
        commit_message: The title of the commit.
        keeps_card: If True and the branch has a card, the folder's README.md is deleted and not sent.
        way_out: What an error advises if the Hub or the connection failed.

    Raises:
        OSError: If the Hub refuses, fails or cannot be reached.
        ValueError: If a name is not valid, or `private` is True and the repository is public.
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
    """Returns the facts in a model's folder: those of model_card.yaml, or the updates in trainer_state.json.

    Raises:
        ValueError: If a fact is not valid.
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
