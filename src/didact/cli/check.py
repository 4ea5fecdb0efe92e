"""didact check [CLAIM…]."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from didact.cli.words import AS_JSON, answer, duration
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.claims.core import Outcome

FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
COLOURS = {"holds": "green", "wrong": "red", "conditional": "yellow"}


@click.command("check")
@click.argument("ids", nargs=-1, metavar="[CLAIM]…")
@click.option("--course", help="Gaba, Van Schependom, Groudiev, Fleuret or Lhotte.")
@click.option("--chapter", help="Of one chapter, by its number.")
@click.option("--kind", help="exact arithmetic, numerical identity, printed output or measured; the first word is enough.")
@click.option("--wrong", is_flag=True, help="Show what is wrong, and nothing else.")
@click.option("--html", type=FILE, help="Write the answer as one page, with the code of each check.")
@AS_JSON
def command(
    ids: tuple[str, ...], course: str | None, chapter: str | None, kind: str | None, wrong: bool, html: Path | None, as_json: bool
) -> None:
    """Compute what the courses state and judge it: holds, wrong, conditional; answered where a course only asks; or why it cannot be said.

    \b
    didact check C4.8 CE43             two claims
    didact check --course gaba --wrong
    didact check --html claims.html    all of them, as a page
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):     # small sums: where others work too, threads wait for each other
        os.environ.setdefault(name, "1")
    import didact.claims  # noqa: F401 (registers the checks)
    from didact.claims.core import choose, in_words, tally
    from didact.claims.page import page

    if html and not (html.parent.is_dir() and os.access(html.parent, os.W_OK)):
        raise UsageError(f"--html expects a file in a folder that can be written to, got {html}; make {html.parent} first")
    chosen = choose(ids, course=course, chapter=chapter, kind=kind)
    if not chosen:
        raise UsageError("no claim is of that course, chapter and kind at once; leave one of them out")
    outcomes = judged([s.id for s in chosen])
    shown = [o for o in outcomes if o.verdict == "wrong"] if wrong else outcomes
    if html:
        html.write_text(page(shown), encoding="utf-8")
        click.echo(f"wrote {html}: {in_words(tally(shown))}", err=True)
    if as_json or not html:
        answer([o.row() for o in shown], as_json, lambda: show(shown, outcomes))


def judged(ids: list[str]) -> "list[Outcome]":
    from rich.console import Console

    from didact.claims.core import run

    console, found = Console(stderr=True), []
    with console.status("checking …") as status:
        for n, id in enumerate(ids, start=1):
            status.update(f"checking {id}, {n} of {len(ids)}")
            found.append(run(id))
    return found


def show(shown: "list[Outcome]", outcomes: "list[Outcome]") -> None:
    import shutil

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from didact.claims.core import in_words, tally

    counted = f"{in_words(tally(outcomes))} ({duration(sum(o.seconds for o in outcomes))})"
    if not shown:
        click.echo(f"nothing wrong among {counted}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, share in (("id", None), ("claim", 4), ("stated", 3), ("computed", 4), ("verdict", None)):
        table.add_column(name, ratio=share, overflow="fold", no_wrap=share is None)
    table.add_column("seconds", justify="right", no_wrap=True)
    for o in shown:
        colour = COLOURS.get(o.verdict, "dim")
        note = f"\n[dim]{escape(o.note)}[/]" if o.note else ""
        seconds = f"{o.seconds:.2f}" if o.seconds else ""
        stated = escape(o.statement.stated) if o.statement.prints else f"[dim]{escape(formula(o))}[/]"
        table.add_row(o.statement.id, escape(o.statement.claim), stated, escape(computed(o)) + note, f"[{colour}]{o.verdict}[/]", seconds)
    Console(width=max(100, shutil.get_terminal_size((140, 24)).columns), highlight=False).print(table)
    click.echo(f"\n{counted}")


def computed(o: "Outcome") -> str:
    """Without brackets where the page prints the very same without: 5, 7."""
    bare = o.computed.strip("()")
    return bare if bare == o.statement.stated else o.computed


def formula(o: "Outcome") -> str:
    """What the check sets against what, where the claim is the whole statement and the page prints no value."""
    from didact.claims.core import computation

    made = computation(o.statement.id)
    return made.formula if made else ""
