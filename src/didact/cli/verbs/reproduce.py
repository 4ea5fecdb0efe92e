"""didact reproduce [TABLE]."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from didact.cli.options import JSON_OPTION, format_duration, print_result
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.claims.table import CellVerdict, MeasuredTable, MeasurementRecord

DEFAULT_SEEDS = 3
VERDICT_COLORS = {"holds": "green", "wrong": "red", "conditional": "yellow"}


@click.command("reproduce")
@click.argument("name", required=False, metavar="[TABLE]")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Trainings of each configuration.  [default: 3]")
@click.option("--device", help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", help="Folder that the runs are made in.")
@click.option(
    "--beside", type=click.IntRange(1, 64), help="Trainings at once, each in a process of its own.  [default: 1]"
)
@click.option(
    "--compile",
    "compiled",
    is_flag=True,
    help="torch.compile the losses: half a minute each at first, then faster on a GPU.",
)
@click.option("--more", is_flag=True, help="Train only the seeds that what was kept lacks, and put them together.")
@click.option("--keep", is_flag=True, help="Keep what was measured: `didact check` shows it.")
@click.option(
    "--kept", "shown", is_flag=True, help="Show what was measured and kept before, cell by cell; nothing is trained."
)
@JSON_OPTION
def command(
    name: str | None,
    seeds: int | None,
    device: str | None,
    runs: str | None,
    beside: int | None,
    compiled: bool,
    more: bool,
    keep: bool,
    shown: bool,
    as_json: bool,
) -> None:
    """Measure a table of the course anew: its configurations trained over several seeds, cell by cell beside what
    is stated.

    \b
    didact reproduce                  the tables: measured, or not and why
    didact reproduce 1.6 --kept       what was measured before, cell by cell
    didact reproduce 1.6 --seeds 3    stopped and called again, it goes on where it was
    didact reproduce 1.6 --seeds 8 --more --keep     seeds 3 to 7, beside the three that were kept
    didact reproduce 9.9 --device cuda --beside 8    small networks leave room on a GPU
    didact reproduce 6.12 --device cuda    a claim about time, with a clock
    """
    import didact.recipes  # noqa: F401 (registers the recipes)
    from didact.claims.table import get_table, judge_table, load_records
    from didact.claims.tables import TABLES

    flags = {"--keep": keep, "--more": more, "--seeds": seeds, "--device": device, "--runs": runs, "--beside": beside,
             "--compile": compiled}
    given_flags = [flag for flag, value in flags.items() if value]
    if name is None:
        if given_flags or shown:
            flag = given_flags[0] if given_flags else "--kept"
            raise UsageError(f"{flag} expects a table, as in didact reproduce 1.6 {flag}; got none")
        rows = [_describe_table(table) for table in TABLES.values()]
        print_result(rows, as_json, lambda: _show_list(rows))
        return
    table = get_table(name)
    if shown:
        if given_flags:
            raise UsageError(f"--kept shows what was measured before and measures nothing; leave out {given_flags[0]}")
        if table.name not in load_records():
            raise UsageError(f"table {name} is not yet measured; run {table.command} --keep")
        record, judged_cells = load_records()[table.name], judge_table(table, load_records()[table.name])
        print_result(_to_json(table, record, judged_cells), as_json, lambda: _show(table, record, judged_cells))
        return
    if table.is_benchmark and ((beside or 1) > 1 or compiled):
        flag = "--compile, which changes them" if compiled else f"--beside {beside}, which would disturb them"
        raise UsageError(f"table {name} is of times; leave out {flag}")
    settings = {
        key: value
        for key, value in (("device", device), ("runs", runs), ("compile", compiled or None))
        if value is not None
    }
    record = _measure(table, seeds or DEFAULT_SEEDS, beside or 1, more, settings)
    judged_cells = judge_table(table, record)
    if keep:
        from didact.claims import reproduce

        click.echo(f"kept {reproduce.save_record(record)}", err=True)
    print_result(_to_json(table, record, judged_cells), as_json, lambda: _show(table, record, judged_cells))


def _describe_table(table: "MeasuredTable") -> dict[str, Any]:
    """What a table is and whether it was measured."""
    from didact.claims.reproduce import why_not_measurable
    from didact.claims.table import judge_table, load_records

    record = load_records().get(table.name)
    fields = {
        "table": table.name,
        "title": table.title,
        "claims": table.claims,
        "cells": len(table.cells),
        "command": table.command,
        "unstated": table.unstated_choices,
        "measured": record.description if record else None,
        "lacks": why_not_measurable(table) or None,
    }
    verdicts = [j.displayed_verdict for j in judge_table(table, record)] if record else []
    return fields | {"verdicts": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}}


def _measure(
    table: "MeasuredTable", num_seeds: int, num_workers: int, only_missing: bool, settings: dict[str, Any]
) -> "MeasurementRecord":
    """So many seeds, or with `more` those of them that the kept record lacks, joined with it."""
    from didact.claims.reproduce import (
        estimate_seconds,
        list_missing_seeds,
        measure_table,
        resolve_table_device,
        why_not_measurable,
    )
    from didact.claims.table import load_records
    from didact.cli.sweep_progress import SweepProgress
    from didact.progress import use_progress_callback
    from didact.training.interrupts import Interrupted

    if reason := why_not_measurable(table):
        raise UsageError(f"table {table.name} cannot be measured yet: {reason}")
    resolve_table_device(table, settings.get("device", "auto"))
    screen = SweepProgress()
    seeds = list_missing_seeds(table, num_seeds) if only_missing else list(range(num_seeds))
    num_jobs, noun = (
        len(seeds) * sum(len(grid.configurations) for grid in table.grids),
        "measurement" if table.is_benchmark else "training",
    )
    try:
        expected = format_duration(estimate_seconds(table, len(seeds), on_event=screen, **settings))
    except Interrupted:
        raise UsageError("stopped while the expected time was taken; nothing was trained yet") from None
    resume_note = "" if table.is_benchmark else "; what is trained already is not trained again"
    order_note = f" one after another; {num_workers} are trained at once" if num_workers > 1 else ""
    click.echo(
        f"{num_jobs} {noun}{'s' * (num_jobs > 1)}, {expected}{' or more' * table.is_benchmark} "
        f"expected{order_note}{resume_note}",
        err=True,
    )
    try:
        with use_progress_callback(screen.show_drawing):
            record = measure_table(
                table, seeds=seeds, num_workers=num_workers, on_event=screen, on_row=screen.report_row, **settings
            )
    except Interrupted:
        raise UsageError(
            "stopped; what was trained is kept, what was under way is begun anew: the same command goes on"
        ) from None
    finally:
        screen.close()
    return load_records()[table.name].merged_with(record) if only_missing else record


def _to_json(table: "MeasuredTable", record: "MeasurementRecord", judged_cells: "list[CellVerdict]") -> dict[str, Any]:
    from dataclasses import asdict

    from didact.claims.table import VERDICT_RULE

    return {
        "table": table.name,
        "title": table.title,
        "rule": VERDICT_RULE,
        "unstated": table.unstated_choices,
        "cells": [asdict(j) for j in judged_cells],
        "record": asdict(record),
    }


def _show(table: "MeasuredTable", record: "MeasurementRecord", judged_cells: "list[CellVerdict]") -> None:
    from rich.markup import escape
    from rich.table import Table as Drawn

    from didact.claims.core import format_counts
    from didact.claims.table import VERDICT_RULE
    from didact.cli.progress import make_console

    rich_table = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("claim", "cell", "stated", "measured", "verdict"):
        rich_table.add_column(heading, overflow="fold")
    for j in judged_cells:
        note = f"\n[dim]{escape(j.reason)}[/]" if j.reason else ""
        rich_table.add_row(
            j.claim,
            escape(j.name),
            j.stated,
            escape(j.measured) + note,
            f"[{VERDICT_COLORS.get(j.verdict, 'dim')}]{j.displayed_verdict}[/]",
        )
    console = make_console()
    console.print(f"[bold]{table.citation}[/]: {escape(table.title)}\n")
    console.print(rich_table)
    console.print(
        f"\n{format_counts(Counter(j.displayed_verdict for j in judged_cells))} ({record.description}; "
        f"{format_duration(record.seconds)})\n{VERDICT_RULE}",
        soft_wrap=True,
    )
    console.print(f"not stated: {table.unstated_choices}", soft_wrap=True)


def _show_list(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table as Drawn

    from didact.claims.core import format_counts
    from didact.cli.progress import make_console

    rich_table = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("table", "shows", "cells", "state"):
        rich_table.add_column(heading, overflow="fold")
    for row in rows:
        measured_text = f"measured: {format_counts(row['verdicts'])} ({row['measured']})"
        state_text = measured_text if row["measured"] else f"not yet measured: {row['lacks'] or row['command']}"
        rich_table.add_row(row["table"], escape(row["title"]), str(row["cells"]), escape(state_text))
    make_console().print(rich_table)
