"""Several processes share the translation of a file, each on a device of its own."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import repeat

from .segment import Segment
from .windows import in_lists


Window = list[Segment]


class Processes:
    """The processes that torchrun or `accelerate launch` started together, or the only one.

    Attributes:
        number: How many there are.
        rank: Which of them this is, from 0; known after `join`.
    """

    def __init__(self) -> None:
        self.number, self.rank = int(os.environ.get("WORLD_SIZE", "1")), 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def join(self, device: str | None) -> str | None:
        """Waits for the others and returns this process's device.

        Args:
            device: The device, or kind of device, that was asked for; None for an accelerator where there is one.
        """
        if self.number == 1:
            return device
        import torch
        from accelerate import PartialState

        state = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
        self.rank = state.process_index
        return str(state.device)

    def map(self, translate: Callable[[Window], Window], windows: Iterable[Window]) -> Generator[Window]:
        """Yields what `translate` returns for each window, in order; in the first process those of all.

        Args:
            translate: Translates the lines of a window.
            windows: The windows, the same ones in each process.
        """
        if self.number == 1:
            yield from map(translate, windows)
            return
        from accelerate import PartialState

        try:
            yield from self._share(translate, windows)
        except GeneratorExit:  # nobody reads on, while the others wait for the next turn
            self._goes_on(False)
            raise
        finally:
            PartialState().destroy_process_group()

    def _share(self, translate: Callable[[Window], Window], windows: Iterable[Window]) -> Iterator[Window]:
        """Yields what all processes make of a turn, in which each has one window."""
        from accelerate.utils import gather_object

        turns = in_lists(windows, repeat(self.number))
        while True:
            try:
                turn = next(turns, None)
            except ValueError:  # a line that no process can read: the first one has to write those before it
                self._goes_on(True)
                raise
            # As the first process may have to say no after the last turn too, it is asked once more.
            if not self._goes_on(True) or turn is None:
                return
            mine = turn[self.rank] if self.rank < len(turn) else []
            gathered: list[Window] = gather_object([translate(mine)])
            if self.is_first:
                yield from gathered[: len(turn)]  # in the last turn some processes have nothing

    @staticmethod
    def _goes_on(wants_to: bool) -> bool:
        """Returns in every process whether the first one wants to go on."""
        from accelerate.utils import broadcast_object_list

        answer: list[bool] = broadcast_object_list([wants_to])
        return answer[0]
