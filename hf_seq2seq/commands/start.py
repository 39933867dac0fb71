"""Where the process of `hf-seq2seq` starts, and what Ctrl-C does to it.

This file imports nothing that takes time, since an interrupt before `main` is called is a traceback.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


INTERRUPTED = 130  # the exit status that shells give a process that Ctrl-C ended


class _Interrupts:
    """What Ctrl-C does to the process that makes this object: only a verb at work has something to tidy up."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def end_at_once(self, number: int, frame: FrameType | None) -> NoReturn:
        """Ends the process, with one line unless it is a forked one."""
        if os.getpid() == self._process:
            os.write(2, b"\nInterrupted.\n")
        os._exit(INTERRUPTED)

    def interrupt_work(self, number: int, frame: FrameType | None) -> NoReturn:
        """Raises KeyboardInterrupt, which an import might turn into another error, or lose."""
        if _is_importing(frame):
            self.end_at_once(number, frame)
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Lets Ctrl-C raise KeyboardInterrupt as long as the `with` lasts."""
    handler = signal.getsignal(signal.SIGINT)
    interrupts = getattr(handler, "__self__", None)
    if not isinstance(interrupts, _Interrupts):  # called from Python, where others decide
        yield
        return
    signal.signal(signal.SIGINT, interrupts.interrupt_work)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def main() -> None:
    """Runs the command line of this process.

    Raises:
        SystemExit: Always, with the exit status.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have its background jobs ignore it
        signal.signal(signal.SIGINT, _Interrupts().end_at_once)
    from .main import main

    main()
