"""Who waits while something is drawn: told how far it is, however deep the drawing lies in a training, a gallery or
a judgement."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from didact.samplers.text_generation import ProgressCallback, ignore_progress

PROGRESS_CALLBACK: ContextVar[ProgressCallback] = ContextVar("pace of drawing", default=ignore_progress)


def report_progress(done: int, total: int) -> None:
    """Steps of one drawing that are taken, and of how many."""
    PROGRESS_CALLBACK.get()(done, total)


@contextmanager
def use_progress_callback(callback: ProgressCallback) -> Iterator[None]:
    """Whoever draws in here tells `pace`."""
    token = PROGRESS_CALLBACK.set(callback)
    try:
        yield
    finally:
        PROGRESS_CALLBACK.reset(token)


@contextmanager
def subtask(index: int, count: int) -> Iterator[None]:
    """Whoever draws in here does the k-th of so many equal shares of a work."""
    outer = PROGRESS_CALLBACK.get()
    with use_progress_callback(lambda done, total: outer(index * total + done, count * total)):
        yield
