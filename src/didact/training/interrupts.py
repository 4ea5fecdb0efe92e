"""Ctrl-C ends the round, saves, and says how to go on. A second one ends at once."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from didact.errors import UsageError
from didact.run import Run


class Interrupted(Exception):
    """Training was asked to stop; everything is saved. Not an error: the person wanted it."""

    def __init__(self, run: Run | None, step: int, total: int):
        hint = f"; go on with: didact resume {run.folder}" if run is not None else ""
        super().__init__(f"stopped at step {step} of {total}{hint}")


class InterruptHandler:
    """Inside, SIGINT and SIGTERM only set `asked`; the loop looks at it between rounds.

    Under torchrun a single Ctrl-C arrives twice: as SIGINT from the terminal, then as SIGTERM from torchrun.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there can handlers be set
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._handle_signal)
        return self

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop_requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)


class DivergedError(UsageError):
    """The loss or a gradient stopped being finite; the state before that is kept."""

    def __init__(self, message: str, run: Run | None = None):
        super().__init__(message)
        self.run = run
