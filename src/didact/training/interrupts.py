"""Ctrl-C: the first ends the round and saves, the second ends at once."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from didact.errors import UsageError
from didact.run import Run


class Interrupted(Exception):
    """Training was stopped by the user; everything is saved. Not an error."""

    def __init__(self, run: Run | None, step: int, total: int):
        hint = f"; continue with: didact resume {run.folder}" if run is not None else ""
        super().__init__(f"stopped at step {step} of {total}{hint}")


class InterruptHandler:
    """Inside, SIGINT and SIGTERM only set `stop_requested`; the loop looks at it between rounds.

    Under torchrun one Ctrl-C arrives twice: as SIGINT from the terminal, then as SIGTERM from torchrun.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # signal handlers can only be set there
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
    """The loss or a gradient stopped being finite; the state before is saved."""

    def __init__(self, message: str, run: Run | None = None):
        super().__init__(message)
        self.run = run
