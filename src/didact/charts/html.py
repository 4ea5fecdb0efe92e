"""HTML by construction: only `tag` makes it, and every other string is escaped."""

import math
import re
from html import escape
from typing import Any

UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")  # characters that XML forbids
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Html(str):
    """A string that is markup already."""


def to_html(child: object) -> Html:
    """Markup as it is; the items of a list one after the other; None as nothing; anything else escaped."""
    if isinstance(child, Html):
        return child
    if isinstance(child, list | tuple):
        return Html("".join(map(to_html, child)))
    return Html("" if child is None else escape(UNPRINTABLE.sub("�", str(child))))


def tag(name: str, *children: object, **attributes: Any) -> Html:
    """`tag("a", "R & D", href="#x", class_="y")` -> <a href="#x" class="y">R &amp; D</a>; attributes of None are left
    out.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else value
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{to_html(str(text))}"')
    return Html(f"<{' '.join(parts)}>{to_html(children)}</{name}>")


def format_number(value: Any, digits: int = 4) -> str:
    """A number as text: 12,345 · 0.9741 · 3.1 × 10⁻⁵; a dash if it is not finite."""
    if value is None or not math.isfinite(value):
        return "–"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value):,}".replace("-", "−")
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        mantissa, _, power = f"{value:.{max(0, min(digits, 3) - 1)}e}".partition("e")
        return f"{mantissa} × 10{str(int(power)).translate(SUPERSCRIPT)}".replace("-", "−")
    integer_digits = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - integer_digits)}f}".replace("-", "−")


def ellipsize(text: str, max_length: int = 16) -> str:
    """Both ends of a long name: names often differ at the end."""
    tail = (max_length - 1) // 2
    return text if len(text) <= max_length else f"{text[: max_length - 1 - tail]}…{text[len(text) - tail :]}"
