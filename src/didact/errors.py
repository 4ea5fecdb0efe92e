"""Errors of the caller: one line that says what was expected, what came and what to do; exit code 2."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class UsageError(ValueError):
    """A mistake of the caller, reported in one line. Any other exception is our bug and keeps its traceback."""


class ImageTooSmallError(UsageError):
    """Images are smaller than a network takes; `min_size` is the smallest side that it does."""

    def __init__(self, message: str, min_size: int):
        super().__init__(message)
        self.min_size = min_size


@contextmanager
def refuse_damaged(path: Path | str, expected: str) -> Iterator[None]:
    """Turn any exception into a UsageError about a damaged file.

    For calls of third-party readers only: what they raise on damaged files is undocumented and of a dozen types.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        message = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), "")
        reason = f" ({message[:120].rstrip('.: ')})" if message else ""
        raise UsageError(f"{path} cannot be read{reason}; it is damaged or not {expected}") from error


def format_count(n: int, noun: str) -> str:
    """A number with its noun: 1 channel, 3 channels, 1,500 steps."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def shorten(text: str, max_length: int = 100) -> str:
    """The text, or its two ends if it is too long for a message."""
    half = max_length // 2
    return text if len(text) <= max_length else f"{text[:half]}…{text[-half:]}"


def suggest_nearest(name: str, choices: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, else the list of them."""
    choices = sorted(choices)
    close = get_close_matches(name, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if not choices:
        return "there is none"
    listing = ", ".join(choices[:12]) + (", …" if len(choices) > 12 else "")
    return f"choose from: {listing}"


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Look up a name; an error suggests the nearest one."""
    if name not in table:
        raise UsageError(f"no {kind} named {shorten(name)!r}; {suggest_nearest(name, table)}")
    return table[name]
