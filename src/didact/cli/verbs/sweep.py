"""didact sweep RECIPE axis=value,value …"""

import inspect
from pathlib import Path
from typing import Any

import click

from didact.cli.options import format_metric, parse_options, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("sweep", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Train a recipe over a grid of option values and rank the cells on validation.

    Example: didact sweep mlp lr=1e-4,1e-3 dropout=0,0.3 --data wine --seeds 3
    """
    from didact import report
    from didact.cli.recipes import get_recipe, parse_recipe_name
    from didact.cli.sweep_progress import SweepProgress
    from didact.options import Option, Range, format_value
    from didact.progress import ignore_progress, use_progress_callback
    from didact.run import Run
    from didact.training.distributed.process_group import join_group, leave_group
    from didact.training.experiment import ignore_events
    from didact.training.interrupts import Interrupted
    from didact.training.prepare import known_options
    from didact.training.sweeps.sweep import choose_metric, read_axes, summarize_cells, sweep

    recipe = get_recipe(parse_recipe_name("sweep", arguments))
    grid = [w for w in arguments[1:] if "=" in w and not w.startswith("-")]
    own_options = {
        "seeds": Option("seeds", int, 1, "number of seeds per cell", range=Range(1, 1000)),
        "jobs": Option(
            "jobs", int, 1, "parallel trainings, each in a process of its own", range=Range(1, 64), aliases=("-j",)
        ),
        "metric": Option(
            "metric", str, None, "metric of the table (the one that the recipe monitors if not given)", is_optional=True
        ),
    }
    axes_text = " ".join(f"{name}={format_value(values)}" for name, values in recipe.grid.items())
    about = inspect.cleandoc(command.help or "")
    about += f"\n\nDefault grid of {recipe.name}: {axes_text or 'none'}"
    user_options, as_json = parse_options(
        f"didact sweep {recipe.name}",
        known_options(recipe) | own_options,
        [w for w in arguments[1:] if w not in grid],
        about=about,
        own_names={*recipe.options, *own_options},
        usage="axis=value,value…",
    )
    axes = read_axes(recipe, grid)
    metric, seeds, num_workers = (
        user_options.pop("metric", None),
        user_options.pop("seeds", 1),
        user_options.pop("jobs", 1),
    )
    group, screen = join_group(), SweepProgress()
    on_event = screen if group.is_main else ignore_events

    def on_row(row: dict[str, Any]) -> None:
        if "diverged" not in row:
            report.write_report(Run(Path(row["run"])))
        screen.report_row(row, recipe.comparison_metrics)

    try:
        with use_progress_callback(screen.show_sampling if group.is_main else ignore_progress):
            folder, rows = sweep(
                recipe,
                axes,
                seeds=seeds,
                metric=metric,
                num_workers=num_workers,
                on_event=on_event,
                on_row=on_row,
                **user_options,
            )
        group.barrier()
    except Interrupted:
        raise UsageError(
            "stopped; finished trainings are saved, unfinished ones start again: the same command continues"
        ) from None
    finally:
        screen.close()
        leave_group()
    if not group.is_main:
        return
    metric = choose_metric(rows, metric, recipe.comparison_metrics)
    extra_metrics = [name for name in recipe.comparison_metrics if name != metric]
    table = summarize_cells(rows, metric, extra_metrics)
    page = report.write_sweep_page(
        f"{recipe.name}: {metric}", axes, rows, metric, folder / "report.html", extra_metrics
    )
    print_result(
        {"recipe": recipe.name, "axes": axes, "metric": metric, "table": table, "runs": rows, "report": str(page)},
        as_json,
        lambda: _show(table, metric, extra_metrics, str(page)),
    )


def _show(table: list[dict[str, Any]], metric: str, extra_metrics: list[str], page: str) -> None:
    from rich.table import Table

    from didact.cli.console import make_console
    from didact.options import format_value

    rich_table = Table(box=None, pad_edge=False, padding=(0, 2))
    headers = {
        "validation": f"validation {metric}",
        "validation_spread": "±",
        "test": f"test {metric}",
        "test_spread": "±",
    }
    headers |= {name: f"validation {name}" for name in extra_metrics}
    columns = [k for k in table[0] if k != "diverged" or any(row[k] for row in table)]
    for name in columns:
        rich_table.add_column(headers.get(name, name), justify="right")
    for row in table:
        rich_table.add_row(
            *[
                "" if row[k] is None else format_metric(row[k]) if k in (*headers, "seconds") else format_value(row[k])
                for k in columns
            ]
        )
    make_console().print(rich_table)
    echo(f"report {page}")
