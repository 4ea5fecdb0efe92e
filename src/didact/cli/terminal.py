"""Lines printed for people, in which control characters of names and texts are escaped.

A class folder may be named with an ESC sequence, and a language model may generate one: printed as it is, it would
color the terminal, move its cursor or set its title. Everything that the command line prints is escaped, here or in
`console`, where tables and progress bars come from (apart, because `didact --help` needs no rich).
"""

import re
import textwrap
from collections.abc import Iterable
from typing import Any

import click

# C0 but tab and line ends, DEL, C1; surrogates: a byte of a file name that is not UTF-8, which no terminal can show
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|\r(?!\n)")


def escape_control(text: str) -> str:
    r"""The text with control characters written out: \x1b[31m for a sequence that would color the terminal."""
    return _CONTROL_CHARACTERS.sub(lambda match: _write_out(ord(match[0])), text)


def _write_out(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:                   # as Python reads such a byte of a file name
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def escape_control_in_json(document: str) -> str:
    r"""A JSON document with what JSON leaves as it is (DEL, C1, surrogates) as \u009b."""
    return re.sub("[\x7f-\x9f\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", document)


def wrap_items(*groups: Iterable[str], width: int) -> list[str]:
    """Lines of "a, b; c, d", broken only between items: "Gaba 5.2" stays whole."""
    texts = (", ".join(item.replace(" ", "\N{NO-BREAK SPACE}") for item in group) for group in groups)
    lines = textwrap.wrap("; ".join(filter(None, texts)), width, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def echo(text: str = "", *, err: bool = False, newline: bool = True, **style: Any) -> None:
    """Print a line, in a style of `click.style`."""
    click.secho(escape_control(text), err=err, nl=newline, **style)
