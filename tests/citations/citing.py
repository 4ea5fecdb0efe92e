"""Citations of the courses, as they stand in code and documents, read into (course, kind, number).

    Gaba 4.9, Ex 4.4                 section 4.9, exercise 4.4
    Gaba eq. 6.2-6.4, Groudiev 6.1.2     equations 6.2, 6.3 and 6.4, section 6.1.2
    Groudiev, chapters 4 to 6        chapters 4, 5 and 6

A number goes on with the kind of the one before it: eq. 10.15, 10.16 are equations.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COURSES = ("Gaba", "Van Schependom", "Groudiev", "Fleuret", "Lhotte")
KINDS = {
    "exercise": "ex|exercises?", "equation": r"eqs?|equations?", "definition": "defs?|definitions?", "theorem": "ths?|thm|theorems?",
    "remark": "rems?|remarks?", "proposition": "props?|propositions?", "property": "property|properties", "lemma": "lemmas?",
    "example": "examples?", "table": "tables?", "figure": "figs?|figures?", "chapter": "chapters?|ch", "section": "sections?|code|§",
}
KIND = rf"(?:(?P<kind>{'|'.join(KINDS.values())})\.?\s*)?"
NUMBER = r"\d{1,2}(?:\.\d{1,2})*(?![\d])"
ITEM = re.compile(rf"{KIND}\(?(?P<first>{NUMBER})\)?(?:\s*(?:-|–|to\s)\s*(?P<last>{NUMBER}))?", re.IGNORECASE)
COURSE = re.compile(rf"\b(?P<course>{'|'.join(COURSES)})(?:['’]s\b)?,?\s+", re.ASCII)
JOINED = re.compile(r"\s*(?:,|;|and\b|vs\b)\s*")
ENDS = re.compile(r"\s*(?:[|,;)\"'.]|$)")            # a bare 12 after a comma is a chapter only if nothing is counted by it


class Citation(NamedTuple):
    course: str
    kind: str
    number: str


def cited(text: str) -> Iterator[Citation]:
    """Every citation in a text."""
    for found in COURSE.finditer(text):
        yield from row(found["course"], text, found.end())[0]


def places(course: str, text: str) -> Iterator[Citation]:
    """Every number in a text that is all about one course: §2.2 Fig. 2.2–2.3."""
    at = 0
    while item := ITEM.search(text, at):
        citations, at = row(course, text, item.start())
        yield from citations


def row(course: str, text: str, at: int) -> tuple[list[Citation], int]:
    """What is cited of a course from a place of the text on, and where that ends."""
    kind, found, end = "", list[Citation](), at
    while item := ITEM.match(text, at):
        bare = not item["kind"] and "." not in item["first"]
        if bare and found and not ENDS.match(text, item.end()):
            break
        if item["kind"]:
            kind = next(name for name, words in KINDS.items() if re.fullmatch(words, item["kind"], re.IGNORECASE))
        for number in numbers(item["first"], item["last"]):
            plain = "section" if "." in number else "chapter"
            deep = number.count(".") > 1 and not item["kind"]       # Ex 1.1, 2.6.1: no exercise has three numbers
            found.append(Citation(course, plain if deep or kind in ("", "section", "chapter") else kind, number))
        end = item.end()
        joined = JOINED.match(text, end)
        if not joined:
            break
        at = joined.end()
    return found, end


def numbers(first: str, last: str | None) -> list[str]:
    """6.2 to 6.4, one by one; of numbers that do not go on from each other, both."""
    if last is None:
        return [first]
    *place, start = first.split(".")
    *other, end = last.split(".")
    if place != other or int(end) <= int(start):
        return [first, last]
    return [".".join([*place, str(n)]) for n in range(int(start), int(end) + 1)]


@cache
def headings() -> dict[Citation, str]:
    """What the courses have, from headings.tsv: the heading, of what stands inside a section that of the section."""
    _, *lines = (Path(__file__).parent / "headings.tsv").read_text(encoding="utf-8").splitlines()
    found = {}
    for course, kind, number, heading in (line.split("\t") for line in lines):
        section = Citation(course, "section" if "." in heading else "chapter", heading)
        for n in numbers(*number.split("-")) if "-" in number else [number]:
            found[Citation(course, kind, n)] = found.get(section, heading)
    return found
