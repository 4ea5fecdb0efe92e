"""didact reproduce [TABLE]."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from didact.charts.format import format_duration
from didact.cli.options import JSON_OPTION, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.claims.measured_table import CellVerdict, MeasuredTable, MeasurementRecord

_DEFAULT_SEEDS = 3
_VERDICT_COLORS = {"holds": "green", "wrong": "red", "conditional": "yellow"}


@click.command("reproduce")
@click.argument("name", required=False, metavar="[TABLE]")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Number of seeds per configuration  [default: 3]")
@click.option("--device", help="auto, cpu, cuda, cuda:1 or mps  [default: auto]")
@click.option("--runs", metavar="FOLDER", help="Folder of the runs  [default: runs]")
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), help="Parallel trainings, each in a process of its own  [default: 1]"
)
@click.option(
    "--compile",
    "use_compile",
    is_flag=True,
    help="torch.compile the losses: half a minute each at first, then faster on a GPU.",
)
@click.option("--add-seeds", is_flag=True, help="Train only the seeds that the saved measurement lacks, and add them.")
@click.option("--save", is_flag=True, help="Save the measurement: `didact check` shows it.")
@click.option("--saved", "show_saved", is_flag=True, help="Show the saved measurement, cell by cell; train nothing.")
@JSON_OPTION
def command(
    name: str | None,
    seeds: int | None,
    device: str | None,
    runs: str | None,
    jobs: int | None,
    use_compile: bool,
    add_seeds: bool,
    save: bool,
    show_saved: bool,
    as_json: bool,
) -> None:
    """Measure a table of the courses again: train its configurations over several seeds and compare cell by cell.

    \b
    didact reproduce                             all tables: measured, or not and why
    didact reproduce 1.6 --saved                 the saved measurement, cell by cell
    didact reproduce 1.6 --seeds 3               the same command continues after an interruption
    didact reproduce 1.6 --seeds 8 --add-seeds --save    seeds 3 to 7, added to the three that are saved
    didact reproduce 9.9 --device cuda --jobs 8  eight small networks at once on a GPU
    didact reproduce 6.12 --device cuda          a claim about time: a benchmark
    """
    import didact.recipes  # noqa: F401 (registers the recipes)
    from didact.claims.measured_table import get_table, judge_table, load_records
    from didact.claims.measured_tables import TABLES

    values = {"--save": save, "--add-seeds": add_seeds, "--seeds": seeds, "--device": device, "--runs": runs,
              "--jobs": jobs, "--compile": use_compile}
    given_flags = [flag for flag, value in values.items() if value]
    if name is None:
        if given_flags or show_saved:
            flag = given_flags[0] if given_flags else "--saved"
            raise UsageError(f"{flag} expects a table, as in didact reproduce 1.6 {flag}; got none")
        rows = [_describe_table(table) for table in TABLES.values()]
        print_result(rows, as_json, lambda: _show_list(rows))
        return
    table = get_table(name)
    if show_saved:
        if given_flags:
            raise UsageError(f"--saved shows the saved measurement and measures nothing; leave out {given_flags[0]}")
        if table.name not in load_records():
            raise UsageError(f"table {name} is not yet measured; run {table.command} --save")
        record, judged_cells = load_records()[table.name], judge_table(table, load_records()[table.name])
        print_result(_to_json(table, record, judged_cells), as_json, lambda: _show(table, record, judged_cells))
        return
    if table.is_benchmark and ((jobs or 1) > 1 or use_compile):
        flag = "--compile, which changes them" if use_compile else f"--jobs {jobs}, which would disturb them"
        raise UsageError(f"table {name} is of times; leave out {flag}")
    settings = {
        key: value
        for key, value in (("device", device), ("runs", runs), ("compile", use_compile or None))
        if value is not None
    }
    record = _measure(table, seeds or _DEFAULT_SEEDS, jobs or 1, add_seeds, settings)
    judged_cells = judge_table(table, record)
    if save:
        from didact.claims import reproduce

        echo(f"saved {reproduce.save_record(record)}", err=True)
    print_result(_to_json(table, record, judged_cells), as_json, lambda: _show(table, record, judged_cells))


def _describe_table(table: "MeasuredTable") -> dict[str, Any]:
    """A table's title, size, command and saved measurement."""
    from didact.claims.measured_table import judge_table, load_records
    from didact.claims.reproduce import why_not_measurable

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
    """Measure a table over these seeds; with `only_missing`, over those that the saved record lacks, and add them."""
    from didact.claims.measured_table import load_records
    from didact.claims.reproduce import (
        estimate_seconds,
        list_missing_seeds,
        measure_table,
        resolve_table_device,
        why_not_measurable,
    )
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
        raise UsageError("stopped while estimating the time; nothing was trained yet") from None
    resume_note = "" if table.is_benchmark else "; finished trainings are not repeated"
    order_note = f" one after another; {num_workers} run in parallel" if num_workers > 1 else ""
    echo(
        f"{num_jobs} {noun}{'s' * (num_jobs > 1)}, {expected}{' or more' * table.is_benchmark} "
        f"expected{order_note}{resume_note}",
        err=True,
    )
    try:
        with use_progress_callback(screen.show_sampling):
            record = measure_table(
                table, seeds=seeds, num_workers=num_workers, on_event=screen, on_row=screen.report_row, **settings
            )
    except Interrupted:
        raise UsageError(
            "stopped; finished trainings are saved, unfinished ones start again: the same command continues"
        ) from None
    finally:
        screen.close()
    return load_records()[table.name].merge(record) if only_missing else record


def _to_json(table: "MeasuredTable", record: "MeasurementRecord", judged_cells: "list[CellVerdict]") -> dict[str, Any]:
    from dataclasses import asdict

    from didact.claims.measured_table import VERDICT_RULE

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

    from didact.claims.measured_table import VERDICT_RULE
    from didact.claims.registry import format_counts
    from didact.cli.console import make_console

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
            f"[{_VERDICT_COLORS.get(j.verdict, 'dim')}]{j.displayed_verdict}[/]",
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

    from didact.claims.registry import format_counts
    from didact.cli.console import make_console

    rich_table = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("table", "shows", "cells", "state"):
        rich_table.add_column(heading, overflow="fold")
    for row in rows:
        measured_text = f"measured: {format_counts(row['verdicts'])} ({row['measured']})"
        state_text = measured_text if row["measured"] else f"not yet measured: {row['lacks'] or row['command']}"
        rich_table.add_row(row["table"], escape(row["title"]), str(row["cells"]), escape(state_text))
    make_console().print(rich_table)
