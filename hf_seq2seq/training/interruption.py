"""Ctrl-C and termination: the run saves a checkpoint and ends, so that the same command can go on from it."""

import logging
import signal
import threading
from types import FrameType
from typing import Any, Self

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from .checkpoints import checkpoint_folder, last_whole_checkpoint, mark_as_saved_at_a_signal


logger = logging.getLogger(__name__)

# Ctrl-C, and what torchrun, Slurm and cloud machines send some time before they kill.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def train_unless_stopped(trainer: Trainer, checkpoint: str | None) -> None:
    """Trains to the end, or until a signal stops it.

    Args:
        trainer: What trains.
        checkpoint: The checkpoint to go on from, if there is one.

    Raises:
        KeyboardInterrupt: If a signal ended the training before. The message tells how to go on.
    """
    with StopOnSignal() as stop:
        trainer.add_callback(stop)
        trainer.train(resume_from_checkpoint=checkpoint)
    state = trainer.state
    if stop.stopped and state.global_step < state.max_steps:
        last = last_whole_checkpoint(str(trainer.args.output_dir))
        raise KeyboardInterrupt(
            f"Stopped after update {state.global_step:,} of {state.max_steps:,}. The same command goes on "
            f"{'from the start' if last is None else f'from {last}'}."
        )


class StopOnSignal(TrainerCallback):
    """Saves a checkpoint and ends training after the update in which a signal comes.

    It is a context manager around `train`. A second signal acts as if this were not there. Several processes all stop
    after the same update, whichever of them got the signal.

    Attributes:
        stopped: Whether a signal has come.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._received = False
        self._was_due = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Python hands signals to its main thread only.
        for number in SIGNALS if threading.current_thread() is threading.main_thread() else ():
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        self._restore()
        logger.warning(
            "%s: a checkpoint will be saved after this update; once more stops at once.", signal.Signals(number).name
        )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Asks the trainer to save and stop, if any process got a signal."""
        received = self._received
        if args.world_size > 1:
            flag = torch.tensor(float(received), device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            received = bool(flag)
        if received:
            is_end_of_epoch = state.epoch is not None and state.epoch == int(state.epoch)
            self._was_due = control.should_save or (is_end_of_epoch and args.save_strategy == SaveStrategy.EPOCH)
            self.stopped = control.should_save = control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Cancels what is due at the end of an epoch, where training stops within it."""
        if self.stopped and state.epoch is not None and state.epoch != int(state.epoch):
            control.should_evaluate = control.should_save = False

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Marks the checkpoint if it was saved only because of the signal."""
        if self.stopped and not self._was_due and state.is_world_process_zero:
            mark_as_saved_at_a_signal(checkpoint_folder(str(args.output_dir), state.global_step))
