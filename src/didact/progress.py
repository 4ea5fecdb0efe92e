"""Progress of sampling: a callback that a sampler finds however deep in a training or an evaluation it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ProgressCallback = Callable[[int, int], object]    # steps done, and of how many


def ignore_progress(done: int, total: int) -> None:
    """The callback of those who do not watch."""


_PROGRESS_CALLBACK: ContextVar[ProgressCallback] = ContextVar("progress of sampling", default=ignore_progress)


def report_progress(done: int, total: int) -> None:
    """Tell the callback how many steps of a sampler are done."""
    _PROGRESS_CALLBACK.get()(done, total)


@contextmanager
def use_progress_callback(callback: ProgressCallback) -> Iterator[None]:
    """Inside, samplers report their progress to `callback`."""
    token = _PROGRESS_CALLBACK.set(callback)
    try:
        yield
    finally:
        _PROGRESS_CALLBACK.reset(token)


@contextmanager
def subtask(index: int, count: int) -> Iterator[None]:
    """Inside, progress counts as the part `index` (from 0) of `count` equal parts of a task."""
    outer = _PROGRESS_CALLBACK.get()
    with use_progress_callback(lambda done, total: outer(index * total + done, count * total)):
        yield
