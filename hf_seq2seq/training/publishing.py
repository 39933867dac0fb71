"""The part of the trainer that publishes on the Hub: the model, with its card and the code that loads it."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi
from transformers import Seq2SeqTrainer
from transformers.trainer_utils import HubStrategy
from transformers.utils.hub import PushInProgress

from hf_seq2seq.hub.card import CardFacts
from hf_seq2seq.hub.errors import hub_errors
from hf_seq2seq.hub.publishing import stage, upload

from .card_facts import describe_hyperparameters, describe_progress


logger = logging.getLogger(__name__)


class PublishingTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` whose `push_to_hub` sends what `hf_seq2seq.hub.push` sends.

    The stock trainer sends all of `output_dir` but its checkpoints: settings, logs, a pickle file of its arguments,
    and no code, so that nobody without this package could load the model.

    Takes the arguments of `Seq2SeqTrainer` and, by name:

    Args:
        card: What the card tells beside the architecture, the settings and the updates; an attribute too.
    """

    args: Any
    hub_model_id: Any
    push_in_progress: Any

    def __init__(self, *args: Any, card: CardFacts | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # One after the other: commits to one branch at the same time are refused.
        self._uploads = ThreadPoolExecutor(max_workers=1)
        self.card = card or CardFacts()

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Creates the repository, unless there is one."""
        name = self.args.hub_model_id or Path(str(self.args.output_dir)).absolute().name
        with hub_errors(name):
            super().init_hf_repo(token, private)

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **facts: Any,
    ) -> Any:
        """Saves the model in `output_dir` and publishes it, as `hub.push` does.

        Args:
            commit_message: What the commit is called.
            blocking: Whether to wait for the end of the upload.
            token: By default `args.hub_token`.
            revision: The branch; by default `args.hub_revision`.
            private: Whether a new repository is private; by default `args.hub_private_repo`.
            **facts: What the card tells, in place of the same fields of `card`.

        Returns:
            Where `blocking` is false, in the first process the future of the upload; else None.

        Raises:
            OSError: As `hub.push` does.
            ValueError: As `hub.push` does.
        """
        if self.hub_model_id is None:
            self.init_hf_repo(token=token, private=private)
        self.save_model(_internal_call=True)
        return self.publish_saved(commit_message, blocking, token, revision, **facts)

    def publish_saved(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **facts: Any,
    ) -> Any:
        """Publishes the model that is in `output_dir` as `push_to_hub` does, but does not save it first."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if not self.is_world_process_zero():
            return None
        self._finish_current_push()
        self.card = replace(self.card, **facts)
        job = self._publish(str(self.args.output_dir), commit_message or "End of training", token, revision)
        return job.result() if blocking else job

    def _publish(
        self, folder: str, commit_message: str, token: str | None = None, revision: str | None = None
    ) -> "Future[None]":
        """Uploads the model of a folder in the background.

        The folder has been read when this returns, so that it may change or go.
        """
        card = describe_progress(self.card, self.state.global_step, self.state.epoch, self.card.seconds)
        card = replace(card, hyperparameters=card.hyperparameters or describe_hyperparameters(self.args))
        api = HfApi(token=token or self.args.hub_token, library_name="hf_seq2seq")
        temporary = TemporaryDirectory(prefix="hf_seq2seq_")
        staged = Path(temporary.name) / "model"
        stage(folder, staged, repo_id=self.hub_model_id, card=card)

        def send() -> None:
            with temporary:
                upload(
                    *(api, staged, self.hub_model_id),
                    private=self.args.hub_private_repo,
                    revision=revision or self.args.hub_revision,
                    commit_message=commit_message,
                    way_out=f"The model is saved: `hf-seq2seq push {folder} {self.hub_model_id}` publishes it.",
                )

        return self._uploads.submit(send)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Publishes a checkpoint's model in the background, and the checkpoint too where `hub_strategy` asks for it.

        An upload that fails is logged, and training goes on.
        """
        strategy = self.args.hub_strategy
        if not self.is_world_process_zero() or strategy == HubStrategy.END:
            return
        before = [] if self.push_in_progress is None else self.push_in_progress.jobs
        running = [job for job in before if not job.done()]
        if running and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        message = f"Training in progress, step {self.state.global_step}"
        try:
            jobs = [self._publish(checkpoint_folder, message)]
        except (OSError, ValueError) as error:
            logger.warning("%s was not sent to the Hub: %s", checkpoint_folder, error)
            return
        if strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            jobs.append(self._uploads.submit(self._send_checkpoint, Path(checkpoint_folder), message))
        for job in jobs:
            job.add_done_callback(_tell_of_failure)
        all_jobs: Any = running + jobs
        self.push_in_progress = PushInProgress(all_jobs)

    def _send_checkpoint(self, folder: Path, message: str) -> None:
        with hub_errors(self.hub_model_id):
            HfApi(token=self.args.hub_token, library_name="hf_seq2seq").upload_folder(
                repo_id=self.hub_model_id,
                folder_path=folder,
                path_in_repo="last-checkpoint" if self.args.hub_strategy == HubStrategy.CHECKPOINT else folder.name,
                commit_message=f"{message}, checkpoint",
                ignore_patterns=["training_args.bin"],  # tells of this machine, and nobody needs it to go on
                revision=self.args.hub_revision,
            )


def _tell_of_failure(job: "Future[None]") -> None:
    error = job.exception()
    if error is not None:
        logger.warning("A checkpoint was not sent to the Hub: %s", error)
