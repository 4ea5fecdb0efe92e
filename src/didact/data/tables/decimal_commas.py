"""Decimal and thousands commas: 120,50 is 120.5, but 2,471 may be 2471."""

import re
from collections.abc import Sequence

_DECIMAL, _THOUSANDS = "decimal", "thousands"
_FRACTION_PATTERN = re.compile(r"[-+]?\d+,\d+")                           # 120,50
_GROUPS_PATTERN = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")       # 1,234,567.5
_PLAIN_NUMBER_PATTERN = re.compile(r"[-+]?\d+(\.\d+)?")                   # no comma at all


def infer_comma(name: str, cells: Sequence[str]) -> tuple[str, str]:
    """What the commas of most cells mean ("": they are not in numbers), and a note.

    A cell that can be read in one way only decides. Where each can be read in both, as 2,471, commas divide thousands
    if the cells without a comma are all below a thousand.
    """
    commas = [word for word in cells if "," in word]
    fractions, groups = (
        [word for word in commas if pattern.fullmatch(word)] for pattern in (_FRACTION_PATTERN, _GROUPS_PATTERN)
    )
    if not fractions and not groups:
        return "", ""
    plain_numbers = [float(word) for word in cells if _PLAIN_NUMBER_PATTERN.fullmatch(word)]
    num_ambiguous = sum(_FRACTION_PATTERN.fullmatch(word) is not None for word in groups)
    if 2 * (len(plain_numbers) + len(fractions) + len(groups) - num_ambiguous) <= len(cells):
        return "", ""
    if len(fractions) > len(groups):                # 120,50 can only be a fraction, 1,234,567 only groups
        return _DECIMAL, ""
    example = groups[0]
    if len(groups) > len(fractions) or (plain_numbers and max(map(abs, plain_numbers)) < 1000):
        return (
            _THOUSANDS,
            f"column {name!r} has commas between thousands: {example} is read as {strip_commas(example, _THOUSANDS)}",
        )
    note = f"column {name!r} has three digits behind each comma: {example} is read as {strip_commas(example, _DECIMAL)}"
    return _DECIMAL, f"{note}; if they are thousands, write them without commas"


def strip_commas(word: str, comma_meaning: str) -> str:
    """The number without its commas; a word that is no number stays."""
    if comma_meaning == _DECIMAL and _FRACTION_PATTERN.fullmatch(word.strip()):
        return word.replace(",", ".")
    if comma_meaning == _THOUSANDS and _GROUPS_PATTERN.fullmatch(word.strip()):
        return word.replace(",", "")
    return word
