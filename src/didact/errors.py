"""The caller's mistakes: what was expected, what came, what to do. One line each, exit code 2."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class UsageError(ValueError):
    """A mistake of the caller, told in one line. Everything else that is raised is our bug and keeps its traceback."""


@contextmanager
def refuse_damaged(path: Path | str, expected: str) -> Iterator[None]:
    """Refuse a file that a library cannot read, whatever the library raises.

    Only around calls of a reader that we did not write: what they raise over damaged files is documented nowhere
    and has
    a dozen kinds.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        said = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), "")
        reason = f" ({said[:120].rstrip('.: ')})" if said else ""
        raise UsageError(f"{path} cannot be read{reason}; it is damaged or not {expected}") from error


def format_count(n: int, noun: str) -> str:
    """1 channel, 3 channels, 1,500 steps."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def shorten(text: str, most: int = 100) -> str:
    """Both ends of a text that is too long for a message."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def suggest_nearest(name: str, choices: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, or else all of them."""
    choices = sorted(choices)
    close = get_close_matches(name, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if not choices:
        return "there is none"
    listing = ", ".join(choices[:12]) + (", …" if len(choices) > 12 else "")
    return f"choose from: {listing}"


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Look a name up, or say which one was probably meant."""
    if name not in table:
        raise UsageError(f"no {kind} named {shorten(name)!r}; {suggest_nearest(name, table)}")
    return table[name]
