"""didact list."""

from typing import TYPE_CHECKING, Any

import click

from didact.charts.format import format_duration
from didact.cli.options import JSON_OPTION, format_metric, print_result
from didact.cli.terminal import echo, wrap_items
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.run import Run


_LINE_WIDTH = 100
_NAME_WIDTH = 21   # of the longest name of a recipe


@click.command("list")
@click.option("--data", "show_datasets", is_flag=True, help="List the datasets instead.")
@click.option(
    "--runs",
    is_flag=False,
    flag_value="runs",
    metavar="[FOLDER]",
    help="List your runs instead, in this folder  [default: runs]",
)
@JSON_OPTION
def command(show_datasets: bool, runs: str | None, as_json: bool) -> None:
    """List all recipes by chapter; with --data the datasets, with --runs your runs."""
    if show_datasets and runs is not None:
        raise UsageError("--data and --runs are two lists; give one of them")
    if runs is not None:
        _list_runs(runs, as_json)
    elif show_datasets:
        _list_datasets(as_json)
    else:
        _list_recipes(as_json)


def _list_recipes(as_json: bool) -> None:
    from didact.cli.recipes import load_recipes

    keys = ("name", "kind", "chapter", "sources", "abilities", "accepts", "data", "summary")
    rows = [{key: getattr(recipe, key) for key in keys} for recipe in load_recipes().values()]

    def show() -> None:
        for chapter in dict.fromkeys(str(row["chapter"]) for row in rows):
            echo(chapter, bold=True)
            for row in rows:
                if row["chapter"] == chapter:
                    echo(f"  {row['name']:<{_NAME_WIDTH}} {row['summary']}")
                    indent = " " * (_NAME_WIDTH + 3)
                    for line in wrap_items(row["abilities"], row["sources"], width=_LINE_WIDTH - len(indent)):
                        echo(indent + line, dim=True)
        echo("\n`didact show RECIPE` says more; `didact list --data` lists the datasets.")

    print_result(rows, as_json, show)


def _list_datasets(as_json: bool) -> None:
    from didact.data.datasets.download import find_missing_files
    from didact.data.load import list_datasets

    rows = [
        {
            "name": s.name,
            "kind": s.kind,
            "task": s.task,
            "summary": s.summary,
            "license": s.license,
            "available": not find_missing_files(s),
        }
        for s in list_datasets().values()
    ]

    def show() -> None:
        widths = {key: max(len(str(row[key])) for row in rows) for key in ("name", "kind", "task")}
        for row in rows:
            note = "" if row["available"] else "   (to be downloaded)"
            echo(f"  {'  '.join(f'{row[key]:<{widths[key]}}' for key in widths)}  {row['summary']}{note}")

    print_result(rows, as_json, show)


def _list_runs(root: str, as_json: bool) -> None:
    """All runs in a folder, the oldest first. Does not import torch."""
    from pathlib import Path

    from didact.run import Run, folders

    rows = [_describe_run(Run(folder)) for folder in folders(Path(root))]

    def show() -> None:
        widths = {
            key: max((len(str(row.get(key, ""))) for row in rows), default=0) for key in ("run", "status", "data")
        }
        for row in rows:
            columns = "  ".join(f"{row.get(key, '')!s:<{widths[key]}}" for key in widths)
            echo(f"{columns}  {row['error'] if 'error' in row else _format_result(row)}".rstrip())
        if not rows:
            echo(f"no runs in {root} yet; `didact train mlp` makes the first")

    print_result(rows, as_json, show)


def _describe_run(run: "Run") -> dict[str, Any]:
    """One run of the list; a damaged one is listed too, with its error."""
    name = f"{run.folder.parent.name}/{run.folder.name}"
    try:
        metadata = run.metadata
        keys = ("started", "steps", "seconds", "monitor", "validation", "test")
        return {
            "run": name,
            "status": run.status,
            "data": metadata["data"]["name"],
            **{k: metadata[k] for k in keys if k in metadata},
        }
    except UsageError as error:
        return {"run": name, "status": "damaged", "error": str(error)}


def _format_result(row: dict[str, Any]) -> str:
    """The test metric of a finished run, and its training time."""
    if "test" not in row or "monitor" not in row:
        return ""
    metric = row["monitor"][0]
    return f"test {metric} {format_metric(row['test'].get(metric))}" + (
        f"  in {format_duration(row['seconds'])}" if "seconds" in row else ""
    )
