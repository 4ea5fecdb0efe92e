"""The claims as one self-contained HTML page: what is stated, what is computed, and the code that computes it."""

import inspect
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from didact import __version__
from didact.charts.html import Html, tag
from didact.claims.measured_table import CellVerdict
from didact.claims.registry import Outcome, count_verdicts, find_computation, format_counts
from didact.claims.typeset import typeset
from didact.report.page import make_document, make_section
from didact.run import git_state

_STYLE = """
.claims { display: grid; grid-template-columns: minmax(0, 1fr); gap: .75rem; margin-top: 1rem; }
.claim { background: var(--paper); border: 1px solid var(--line); border-left-width: 5px; border-radius: 8px;
  padding: .8rem 1.1rem; }
.claim.holds { border-left-color: var(--good); }
.claim.wrong { border-left-color: var(--bad); color: inherit; font-weight: inherit; }
.claim.conditional { border-left-color: #b98512; }
.claim header { display: grid; grid-template-columns: auto 1fr auto; gap: 0 .8rem; align-items: baseline; }
@media (max-width: 640px) { .claim header small { grid-area: 2 / 1 / 3 / 4; }
  .claim header .verdict { grid-column: 3; } }
.claim header b { font-family: var(--mono); font-size: .85rem; }
.claim header small { color: var(--soft); }
.claim h3 { font: 600 1.05rem/1.4 var(--serif); margin: .15rem 0 .5rem; }
.claim :is(sub, sup) { font-size: .75em; line-height: 0; }
.claim dl { display: grid; grid-template-columns: 5.5rem minmax(0, 1fr); gap: .1rem .8rem; margin: 0;
  font-size: .93rem; }
.claim pre { overflow-x: auto; background: var(--tint); border-radius: 6px; padding: .7rem .9rem; margin: .5rem 0 0; }
.claim pre { font: .74rem/1.55 var(--mono); }
.claim .cells { overflow-x: auto; } .claim .cells table { border-collapse: collapse; font-size: .88rem; }
.claim .cells :is(th, td) { text-align: left; padding: .1rem 1.1rem .1rem 0; vertical-align: top; }
.claim .cells th { color: var(--soft); }
.claim .cells td:last-child { white-space: normal; min-width: 9rem; }
.claim details { margin-top: .5rem; font-size: .85rem; }
.verdict { font-size: .85rem; font-weight: 600; color: var(--soft); }
.holds .verdict { color: var(--good); } .wrong .verdict { color: var(--bad); } .conditional .verdict { color: #b98512; }
.scores { display: flex; flex-wrap: wrap; gap: .75rem; margin-top: 1.6rem; }
.scores .tile { flex: 1 1 8rem; }
.scores .tile { cursor: pointer; } .scores .tile:has(:checked) { outline: 2px solid var(--ink, currentColor); }
.scores input { position: absolute; opacity: 0; } .scores .tile:has(:focus-visible) { outline: 3px solid; }
.chapters { margin-top: 1.4rem; font-size: .95rem; }
.chapters div { display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin: .2rem 0; }
.chapters b { min-width: 9rem; font-weight: 600; }
"""
_FILTER_RULE = "body:has(#only-{0}:checked) :is(.claim:not(.{0}), .chapter:not(:has(.{0}))) {{ display: none; }}\n"
_INTRODUCTION = (
    "What five courses state and a program can check, computed again. No verdict on this page was written by hand: "
    "each is the comparison of the stated value with what the code next to it computes. A method with a name is what "
    "the paper that introduced it defines, whatever a library does; what the paper leaves open is computed both ways. "
    "Choose a count to see only those claims."
)
_VERDICT_LABELS = {
    "holds": "✓ holds",
    "wrong": "✗ wrong",
    "conditional": "◐ holds with a condition",
    "answered": "answered",
    "not checkable": "not checkable",
    "not measured": "not measured",
}
COURSES = ("Gaba", "Van Schependom", "Groudiev", "Fleuret", "Lhotte")
_NOTE_LABELS = {
    "holds": "remark",
    "wrong": "correction",
    "conditional": "condition",
    "answered": "why",
    "not checkable": "why",
    "not measured": "why",
}


def _format_version() -> str:
    """Date and version of didact: the results of the checks depend on it."""
    source = git_state(Path(__file__).parents[1], excluded="claims/measured")
    commit = f" · commit {source['commit'][:7]}{' with changes' * source['dirty']}" if source else ""
    return f"didact {__version__} · check · {time.strftime('%Y-%m-%d')}{commit}"


def render_page(outcomes: Sequence[Outcome]) -> str:
    """The whole page, chapter by chapter."""
    counts = count_verdicts(outcomes)
    tiles = [
        _verdict_tile("all", len(outcomes), checked=True),
        *(_verdict_tile(verdict, n) for verdict, n in counts.items() if n),
    ]
    chapters: dict[tuple[str, str], list[Outcome]] = {}
    for o in sorted(outcomes, key=_sort_key):
        chapters.setdefault((o.statement.course, o.statement.chapter), []).append(o)
    body = [
        tag("style", Html(_STYLE + "".join(_FILTER_RULE.format(_to_slug(verdict)) for verdict in _VERDICT_LABELS))),
        tag(
            "header",
            tag("p", _format_version(), class_="overline"),
            tag("h1", "What the courses state"),
            tag("p", _INTRODUCTION, class_="summary"),
            tag("div", tiles, class_="scores"),
            _table_of_contents(list(chapters)),
        ),
    ]
    for (course, chapter), group in chapters.items():
        cards = tag("div", [_claim_card(o) for o in group], class_="claims")
        name = f"{course}, {f'chapter {chapter}' if chapter.isdigit() else chapter}"
        body.append(
            tag(
                "div",
                make_section(name, cards, lead=format_counts(count_verdicts(group))),
                id=_to_anchor(course, chapter),
                class_="chapter",
            )
        )
    return make_document("What the courses state", *body)


def _sort_key(o: Outcome) -> tuple[int, float]:
    """Courses in the order of the list, chapters by number; statements without a chapter last."""
    chapter = o.statement.chapter
    return COURSES.index(o.statement.course), int(chapter) if chapter.isdigit() else inf


def _table_of_contents(chapters: Sequence[tuple[str, str]]) -> Html:
    """One line a course, with a link for each chapter."""
    rows = [
        tag(
            "div",
            tag("b", course),
            [tag("a", chapter, href=f"#{_to_anchor(course, chapter)}") for c, chapter in chapters if c == course],
        )
        for course in dict.fromkeys(c for c, _ in chapters)
    ]
    return tag("nav", rows, class_="chapters")


def _to_anchor(course: str, chapter: str) -> str:
    return f"{course}-{chapter}".lower().replace(" ", "-")


def _to_slug(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _verdict_tile(verdict: str, n: int, *, checked: bool = False) -> Html:
    """A count that filters the page by its verdict when chosen.

    CSS alone, without a script, so that the page stays one file.
    """
    attributes = {"type": "radio", "name_": "verdict", "id": f"only-{_to_slug(verdict)}"} | (
        {"checked": "checked"} if checked else {}
    )
    return tag(
        "label",
        Html(tag("input", **attributes).removesuffix("</input>")),
        tag("span", verdict),
        tag("strong", f"{n:,}"),
        class_="tile",
    )


def _typeset_text(value: object) -> object:
    return typeset(value) if isinstance(value, str) and not isinstance(value, Html) else value


def _cell_table(cells: Sequence[CellVerdict]) -> Html:
    """A statement of several numbers: each as stated and as measured; a reading that all share stands in the header."""
    readings = {j.reading for j in cells}
    names = [
        j.name.removesuffix(f", {j.reading}") if len(readings) == 1 and j.name != j.reading else j.name for j in cells
    ]
    header = tag(
        "tr",
        [
            tag("th", _typeset_text(head))
            for head in ("; ".join(readings) if len(readings) == 1 else "", "stated", "measured", "")
        ],
    )
    rows = [
        tag("tr", [tag("td", _typeset_text(text)) for text in (name, j.stated, j.measured, _format_cell_verdict(j))])
        for name, j in zip(names, cells, strict=True)
    ]
    return tag("div", tag("table", header, rows), class_="cells")


def _cell_rows(o: Outcome) -> dict[str, object]:
    """The table, and below it the reason where all cells share one."""
    reasons = {j.reason for j in o.cells}
    shared_reason = reasons.pop() if len(reasons) == 1 else ""
    cells = [replace(j, reason="") for j in o.cells] if shared_reason else o.cells
    return {"cells": _cell_table(cells), "why": shared_reason, "measured": o.provenance}


def _format_cell_verdict(cell: CellVerdict) -> str:
    """✓ holds; undecided, with the reason."""
    if cell.displayed_verdict not in _VERDICT_LABELS:
        return cell.reason
    return _VERDICT_LABELS[cell.displayed_verdict] + (f": {cell.reason}" if cell.reason else "")


def _claim_card(o: Outcome) -> Html:
    s, check = o.statement, find_computation(o.statement.id)
    label = (
        "measured"
        if o.computed and not check
        else "command"
        if o.note.startswith("didact ")
        else _NOTE_LABELS.get(o.verdict, "")
    )
    rows: dict[str, object] = {"compares": check.formula if check else "", "stated": s.stated if s.has_value else ""}
    rows |= _cell_rows(o) if o.cells else {"computed": o.computed, label: o.note}
    definitions = tag(
        "dl",
        [
            (tag("dt", k), tag("dd", tag("code", v) if k == "command" else _typeset_text(v)))
            for k, v in rows.items()
            if v
        ],
    )
    code = None
    if check:
        noun = "answer" if o.verdict == "answered" else "check"
        code = tag(
            "details", tag("summary", f"the {noun}, {o.seconds:.2f} s"), tag("pre", inspect.cleandoc(check.source))
        )
    head = tag(
        "header",
        tag("b", s.id),
        tag("small", f"{s.course} {s.where} · {s.kind}"),
        tag("span", _VERDICT_LABELS[o.verdict], class_="verdict"),
    )
    return tag(
        "article", head, tag("h3", typeset(s.claim)), definitions, code, class_=f"claim {_to_slug(o.verdict)}", id=s.id
    )
