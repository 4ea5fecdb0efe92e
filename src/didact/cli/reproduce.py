"""didact reproduce [TABLE]."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from didact.cli.words import AS_JSON, answer, duration
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.claims.table import Judged, Record, Table

SEEDS = 3
COLOURS = {"holds": "green", "wrong": "red", "conditional": "yellow"}


@click.command("reproduce")
@click.argument("name", required=False, metavar="[TABLE]")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Trainings of each configuration.  [default: 3]")
@click.option("--device", help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", help="Folder that the runs are made in.")
@click.option("--beside", type=click.IntRange(1, 64), help="Trainings at once, each in a process of its own.  [default: 1]")
@click.option("--compile", "compiled", is_flag=True, help="torch.compile the losses: half a minute each at first, then faster on a GPU.")
@click.option("--more", is_flag=True, help="Train only the seeds that what was kept lacks, and put them together.")
@click.option("--keep", is_flag=True, help="Keep what was measured: `didact check` shows it.")
@click.option("--kept", "shown", is_flag=True, help="Show what was measured and kept before, cell by cell; nothing is trained.")
@AS_JSON
def command(
    name: str | None, seeds: int | None, device: str | None, runs: str | None, beside: int | None, compiled: bool, more: bool, keep: bool,
    shown: bool, as_json: bool,
) -> None:
    """Measure a table of the course anew: its configurations trained over several seeds, cell by cell beside what is stated.

    \b
    didact reproduce                  the tables: measured, or not and why
    didact reproduce 1.6 --kept       what was measured before, cell by cell
    didact reproduce 1.6 --seeds 3    stopped and called again, it goes on where it was
    didact reproduce 1.6 --seeds 8 --more --keep     seeds 3 to 7, beside the three that were kept
    didact reproduce 9.9 --device cuda --beside 8    small networks leave room on a GPU
    didact reproduce 6.12 --device cuda    a claim about time, with a clock
    """
    import didact.recipes  # noqa: F401 (registers the recipes)
    from didact.claims.table import judge, kept, named
    from didact.claims.tables import TABLES

    words = {"--keep": keep, "--more": more, "--seeds": seeds, "--device": device, "--runs": runs, "--beside": beside,
             "--compile": compiled}
    given = [word for word, value in words.items() if value]
    if name is None:
        if given or shown:
            word = given[0] if given else "--kept"
            raise UsageError(f"{word} expects a table, as in didact reproduce 1.6 {word}; got none")
        rows = [state(table) for table in TABLES.values()]
        answer(rows, as_json, lambda: show_list(rows))
        return
    table = named(name)
    if shown:
        if given:
            raise UsageError(f"--kept shows what was measured before and measures nothing; leave out {given[0]}")
        if table.name not in kept():
            raise UsageError(f"table {name} is not yet measured; run {table.command} --keep")
        record, judged = kept()[table.name], judge(table, kept()[table.name])
        answer(as_data(table, record, judged), as_json, lambda: show(table, record, judged))
        return
    if table.benchmark and ((beside or 1) > 1 or compiled):
        word = "--compile, which changes them" if compiled else f"--beside {beside}, which would disturb them"
        raise UsageError(f"table {name} is of times; leave out {word}")
    settings = {key: value for key, value in (("device", device), ("runs", runs), ("compile", compiled or None)) if value is not None}
    record = measured(table, seeds or SEEDS, beside or 1, more, settings)
    judged = judge(table, record)
    if keep:
        from didact.claims import reproduce

        click.echo(f"kept {reproduce.keep(record)}", err=True)
    answer(as_data(table, record, judged), as_json, lambda: show(table, record, judged))


def state(table: "Table") -> dict[str, Any]:
    """What a table is and whether it was measured."""
    from didact.claims.reproduce import lacking
    from didact.claims.table import judge, kept

    record = kept().get(table.name)
    found = {"table": table.name, "title": table.title, "claims": table.claims, "cells": len(table.cells), "command": table.command,
             "unstated": table.unstated, "measured": record.about if record else None, "lacks": lacking(table) or None}
    verdicts = [j.said for j in judge(table, record)] if record else []
    return found | {"verdicts": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}}


def measured(table: "Table", count: int, beside: int, more: bool, settings: dict[str, Any]) -> "Record":
    """So many seeds, or with `more` those of them that the kept record lacks, joined with it."""
    from didact.claims.reproduce import expected_seconds, lacking, measure, place, to_follow
    from didact.claims.table import kept
    from didact.cli.lines import Lines
    from didact.objectives.pace import paced
    from didact.train.interrupt import Interrupted

    if why := lacking(table):
        raise UsageError(f"table {table.name} cannot be measured yet: {why}")
    place(table, settings.get("device", "auto"))
    screen = Lines()
    seeds = to_follow(table, count) if more else list(range(count))
    number, what = len(seeds) * sum(len(grid.configurations) for grid in table.grids), "measurement" if table.benchmark else "training"
    try:
        expected = duration(expected_seconds(table, len(seeds), tell=screen, **settings))
    except Interrupted:
        raise UsageError("stopped while the expected time was taken; nothing was trained yet") from None
    again = "" if table.benchmark else "; what is trained already is not trained again"
    order = f" one after another; {beside} are trained at once" if beside > 1 else ""
    click.echo(f"{number} {what}{'s' * (number > 1)}, {expected}{' or more' * table.benchmark} expected{order}{again}", err=True)
    try:
        with paced(screen.drawing):
            record = measure(table, seeds=seeds, beside=beside, tell=screen, done=screen.row, **settings)
    except Interrupted:
        raise UsageError("stopped; what was trained is kept, what was under way is begun anew: the same command goes on") from None
    finally:
        screen.close()
    return kept()[table.name].joined(record) if more else record


def as_data(table: "Table", record: "Record", judged: "list[Judged]") -> dict[str, Any]:
    from dataclasses import asdict

    from didact.claims.table import RULE

    return {"table": table.name, "title": table.title, "rule": RULE, "unstated": table.unstated, "cells": [asdict(j) for j in judged],
            "record": asdict(record)}


def show(table: "Table", record: "Record", judged: "list[Judged]") -> None:
    from rich.markup import escape
    from rich.table import Table as Drawn

    from didact.claims.core import listed
    from didact.claims.table import RULE
    from didact.cli.progress import paper

    drawn = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("claim", "cell", "stated", "measured", "verdict"):
        drawn.add_column(heading, overflow="fold")
    for j in judged:
        note = f"\n[dim]{escape(j.why)}[/]" if j.why else ""
        drawn.add_row(j.claim, escape(j.name), j.stated, escape(j.measured) + note, f"[{COLOURS.get(j.verdict, 'dim')}]{j.said}[/]")
    console = paper()
    console.print(f"[bold]{table.where}[/]: {escape(table.title)}\n")
    console.print(drawn)
    console.print(f"\n{listed(Counter(j.said for j in judged))} ({record.about}; {duration(record.seconds)})\n{RULE}", soft_wrap=True)
    console.print(f"not stated: {table.unstated}", soft_wrap=True)


def show_list(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table as Drawn

    from didact.claims.core import listed
    from didact.cli.progress import paper

    drawn = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("table", "shows", "cells", "state"):
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        done = f"measured: {listed(row['verdicts'])} ({row['measured']})"
        now = done if row["measured"] else f"not yet measured: {row['lacks'] or row['command']}"
        drawn.add_row(row["table"], escape(row["title"]), str(row["cells"]), escape(now))
    paper().print(drawn)
