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
    "exercise": "ex|exercises?",
    "equation": r"eqs?|equations?",
    "definition": "defs?|definitions?",
    "theorem": "ths?|thm|theorems?",
    "remark": "rems?|remarks?",
    "proposition": "props?|propositions?",
    "property": "property|properties",
    "lemma": "lemmas?",
    "example": "examples?",
    "table": "tables?",
    "figure": "figs?|figures?",
    "chapter": "chapters?|ch",
    "section": "sections?|code|§",
}
KIND_PATTERN = rf"(?:(?P<kind>{'|'.join(KINDS.values())})\.?\s*)?"
NUMBER_PATTERN = r"\d{1,2}(?:\.\d{1,2})*(?![\d])"
CITATION_ITEM = re.compile(
    rf"{KIND_PATTERN}\(?(?P<first>{NUMBER_PATTERN})\)?(?:\s*(?:-|–|to\s)\s*(?P<last>{NUMBER_PATTERN}))?", re.IGNORECASE
)
COURSE_PATTERN = re.compile(rf"\b(?P<course>{'|'.join(COURSES)})(?:['’]s\b)?,?\s+", re.ASCII)
SEPARATOR = re.compile(r"\s*(?:,|;|and\b|vs\b)\s*")
# a bare 12 after a comma is a chapter only if nothing is counted by it
CITATION_END = re.compile(r"\s*(?:[|,;)\"'.]|$)")


class Citation(NamedTuple):
    course: str
    kind: str
    number: str


def find_citations(text: str) -> Iterator[Citation]:
    """Every citation in a text."""
    for match in COURSE_PATTERN.finditer(text):
        yield from parse_citation_list(match["course"], text, match.end())[0]


def parse_course_citations(course: str, text: str) -> Iterator[Citation]:
    """Every number in a text that is all about one course: §2.2 Fig. 2.2–2.3."""
    position = 0
    while item := CITATION_ITEM.search(text, position):
        citations, position = parse_citation_list(course, text, item.start())
        yield from citations


def parse_citation_list(course: str, text: str, position: int) -> tuple[list[Citation], int]:
    """What is cited of a course from a place of the text on, and where that ends."""
    kind, citations, end = "", list[Citation](), position
    while item := CITATION_ITEM.match(text, position):
        is_bare_number = not item["kind"] and "." not in item["first"]
        if is_bare_number and citations and not CITATION_END.match(text, item.end()):
            break
        if item["kind"]:
            kind = next(name for name, pattern in KINDS.items() if re.fullmatch(pattern, item["kind"], re.IGNORECASE))
        for number in expand_range(item["first"], item["last"]):
            section_kind = "section" if "." in number else "chapter"
            # Ex 1.1, 2.6.1: no exercise has three numbers
            is_subsection = number.count(".") > 1 and not item["kind"]
            citations.append(
                Citation(course, section_kind if is_subsection or kind in ("", "section", "chapter") else kind, number)
            )
        end = item.end()
        separator = SEPARATOR.match(text, end)
        if not separator:
            break
        position = separator.end()
    return citations, end


def expand_range(first: str, last: str | None) -> list[str]:
    """6.2 to 6.4, one by one; of numbers that do not go on from each other, both."""
    if last is None:
        return [first]
    *prefix, first_number = first.split(".")
    *last_prefix, last_number = last.split(".")
    if prefix != last_prefix or int(last_number) <= int(first_number):
        return [first, last]
    return [".".join([*prefix, str(n)]) for n in range(int(first_number), int(last_number) + 1)]


@cache
def load_headings() -> dict[Citation, str]:
    """What the courses have, from headings.tsv: the heading, of what stands inside a section that of the section."""
    _, *lines = (Path(__file__).parent / "headings.tsv").read_text(encoding="utf-8").splitlines()
    headings_by_citation = {}
    for course, kind, number, heading in (line.split("\t") for line in lines):
        section = Citation(course, "section" if "." in heading else "chapter", heading)
        for n in expand_range(*number.split("-")) if "-" in number else [number]:
            headings_by_citation[Citation(course, kind, n)] = headings_by_citation.get(section, heading)
    return headings_by_citation
