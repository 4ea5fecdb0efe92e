"""Who waits while something is drawn: told how far it is, however deep the drawing lies in a training, a gallery or a judgement."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from didact.objectives.writing import Pace, unhurried

LISTENER: ContextVar[Pace] = ContextVar("pace of drawing", default=unhurried)


def drawing(done: int, total: int) -> None:
    """Steps of one drawing that are taken, and of how many."""
    LISTENER.get()(done, total)


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Whoever draws in here tells `pace`."""
    before = LISTENER.set(pace)
    try:
        yield
    finally:
        LISTENER.reset(before)


@contextmanager
def share(k: int, of: int) -> Iterator[None]:
    """Whoever draws in here does the k-th of so many equal shares of a work."""
    whole = LISTENER.get()
    with paced(lambda done, total: whole(k * total + done, of * total)):
        yield
