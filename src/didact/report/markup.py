"""Markup by construction: only `tag` makes it, and every string that did not come from `tag` is escaped."""

import math
import re
from html import escape
from typing import Any

UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")  # no XML file may hold these
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Html(str):
    """A string that is markup already."""


def text(child: object) -> Html:
    """Markup as it is; a list one after the other; None as nothing; anything else as escaped text."""
    if isinstance(child, Html):
        return child
    if isinstance(child, list | tuple):
        return Html("".join(map(text, child)))
    return Html("" if child is None else escape(UNPRINTABLE.sub("�", str(child))))


def tag(name: str, *children: object, **attributes: Any) -> Html:
    """`tag("a", "R & D", href="#x", class_="y")` -> <a href="#x" class="y">R &amp; D</a>; an attribute None is left out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.6g}" if isinstance(value, float) else value
            words.append(f'{key.rstrip("_").replace("_", "-")}="{text(str(shown))}"')
    return Html(f"<{' '.join(words)}>{text(children)}</{name}>")


def number(value: Any, digits: int = 4) -> str:
    """A number as a person writes it: 12,345 · 0.9741 · 3.1 × 10⁻⁵; what is not finite as a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value):,}".replace("-", "−")
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        mantissa, _, power = f"{value:.{max(0, min(digits, 3) - 1)}e}".partition("e")
        return f"{mantissa} × 10{str(int(power)).translate(SUPERSCRIPT)}".replace("-", "−")
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - whole)}f}".replace("-", "−")


def shorten(words: str, length: int = 16) -> str:
    """Both ends of a long name: what tells names apart is as often at the end."""
    tail = (length - 1) // 2
    return words if len(words) <= length else f"{words[: length - 1 - tail]}…{words[len(words) - tail :]}"
