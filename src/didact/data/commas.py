"""What a comma means in a column of numbers: 120,50 is 120.5, but 2,471 may well be 2471."""

import re
from collections.abc import Sequence

DECIMAL, THOUSANDS = "decimal", "thousands"
FRACTION = re.compile(r"[-+]?\d+,\d+")                             # 120,50
GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")         # 1,234,567.5
BARE = re.compile(r"[-+]?\d+(\.\d+)?")                             # no comma at all


def meaning(name: str, words: Sequence[str]) -> tuple[str, str]:
    """What the commas of most cells mean ("": they are not in numbers) and what to say of it.

    A cell that can be read in one way only decides. Where each can be read in both, as 2,471, cells below a thousand that have
    no comma tell that it divides thousands.
    """
    commas = [word for word in words if "," in word]
    fractions, groups = ([word for word in commas if kind.fullmatch(word)] for kind in (FRACTION, GROUPS))
    bare = [float(word) for word in words if BARE.fullmatch(word)]
    either = sum(FRACTION.fullmatch(word) is not None for word in groups)
    if not fractions + groups or 2 * (len(bare) + len(fractions) + len(groups) - either) <= len(words):
        return "", ""
    if len(fractions) > len(groups):                # 120,50 can only be a fraction, 1,234,567 only groups
        return DECIMAL, ""
    example = groups[0]
    if len(groups) > len(fractions) or (bare and max(map(abs, bare)) < 1000):
        return THOUSANDS, f"column {name!r} has commas between thousands: {example} is read as {plain(example, THOUSANDS)}"
    told = f"column {name!r} has three digits behind each comma: {example} is read as {plain(example, DECIMAL)}"
    return DECIMAL, f"{told}; if they are thousands, write them without commas"


def plain(word: str, comma: str) -> str:
    """The number without its commas, or the word as it is where it is none."""
    if comma == DECIMAL and FRACTION.fullmatch(word.strip()):
        return word.replace(",", ".")
    if comma == THOUSANDS and GROUPS.fullmatch(word.strip()):
        return word.replace(",", "")
    return word
