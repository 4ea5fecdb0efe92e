"""didact check [CLAIM…]."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from didact.charts.format import format_duration
from didact.cli.options import JSON_OPTION, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.claims.registry import Outcome

_FILE_TYPE = click.Path(dir_okay=False, writable=True, path_type=Path)
_VERDICT_COLORS = {"holds": "green", "wrong": "red", "conditional": "yellow"}


@click.command("check")
@click.argument("ids", nargs=-1, metavar="[CLAIM]…")
@click.option("--course", help="Only claims of this course: Gaba, Van Schependom, Groudiev, Fleuret or Lhotte.")
@click.option("--chapter", help="Only claims of this chapter, by its number.")
@click.option(
    "--kind",
    help="Only claims of this kind: exact arithmetic, numerical identity, printed output or measured; the first word "
    "is enough.",
)
@click.option("--wrong", is_flag=True, help="Show only claims that are wrong.")
@click.option("--html", metavar="FILE", type=_FILE_TYPE, help="Write one HTML page, with the code of each check.")
@JSON_OPTION
def command(
    ids: tuple[str, ...],
    course: str | None,
    chapter: str | None,
    kind: str | None,
    wrong: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Check the claims of the courses: compute each and compare it with what is stated.

    A claim holds, is wrong, or is conditional. A question that a course only asks is answered. Measured tables are
    those of `didact reproduce`.

    \b
    didact check C4.8 CE43             two claims
    didact check --course gaba --wrong
    didact check --html claims.html    all of them, as a page
    """
    # the sums are small: threads would only wait for each other
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import didact.claims  # noqa: F401 (registers the checks)
    from didact.claims.page import render_page
    from didact.claims.registry import count_verdicts, format_summary, select_statements

    if html and not (html.parent.is_dir() and os.access(html.parent, os.W_OK)):
        raise UsageError(
            f"--html expects a file in a folder that can be written to, got {html}; make {html.parent} first"
        )
    statements = select_statements(ids, course=course, chapter=chapter, kind=kind)
    if not statements:
        raise UsageError("no claim is of that course, chapter and kind at once; leave out one of them")
    outcomes = _run_checks([s.id for s in statements])
    displayed = [o for o in outcomes if o.verdict == "wrong"] if wrong else outcomes
    if html:
        html.write_text(render_page(displayed), encoding="utf-8")
        echo(f"wrote {html}: {format_summary(count_verdicts(displayed))}", err=True)
    if as_json or not html:
        print_result([o.to_dict() for o in displayed], as_json, lambda: _show(displayed, outcomes))


def _run_checks(ids: list[str]) -> "list[Outcome]":
    from didact.claims.registry import check_claim
    from didact.cli.console import make_console

    console, outcomes = make_console(stderr=True), []
    with console.status("checking …") as status:
        for n, id in enumerate(ids, start=1):
            status.update(f"checking {id}, {n} of {len(ids)}")
            outcomes.append(check_claim(id))
    return outcomes


def _show(displayed: "list[Outcome]", outcomes: "list[Outcome]") -> None:
    from rich.markup import escape
    from rich.table import Table

    from didact.claims.registry import count_verdicts, format_summary
    from didact.cli.console import TEXT_WIDTH, make_console

    summary = f"{format_summary(count_verdicts(outcomes))} ({format_duration(sum(o.seconds for o in outcomes))})"
    if not displayed:
        echo(f"nothing wrong among {summary}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, ratio in (("id", None), ("claim", 4), ("stated", 3), ("computed", 4), ("verdict", None)):
        table.add_column(name, ratio=ratio, overflow="fold", no_wrap=ratio is None)
    table.add_column("seconds", justify="right", no_wrap=True)
    for o in displayed:
        color = _VERDICT_COLORS.get(o.verdict, "dim")
        note = f"\n[dim]{escape(o.note)}[/]" if o.note else ""
        seconds = f"{o.seconds:.2f}" if o.seconds else ""
        stated = escape(o.statement.stated) if o.statement.has_value else f"[dim]{escape(_get_formula(o))}[/]"
        table.add_row(
            o.statement.id,
            escape(o.statement.claim),
            stated,
            escape(_format_computed(o)) + note,
            f"[{color}]{o.verdict}[/]",
            seconds,
        )
    console = make_console(pipe_width=TEXT_WIDTH)
    console.width = max(TEXT_WIDTH, console.width)  # five columns of text need it
    console.print(table)
    echo(f"\n{summary}")


def _format_computed(o: "Outcome") -> str:
    """The computed value, without parentheses where the course prints it without: 5, 7."""
    unbracketed = o.computed.strip("()")
    return unbracketed if unbracketed == o.statement.stated else o.computed


def _get_formula(o: "Outcome") -> str:
    """The formula that is checked, for a claim that states no value."""
    from didact.claims.registry import find_computation

    checked = find_computation(o.statement.id)
    return checked.formula if checked else ""
