"""didact list."""

from typing import TYPE_CHECKING, Any

import click

from didact.cli.words import AS_JSON, answer, duration, number
from didact.errors import UsageError

if TYPE_CHECKING:
    from didact.run import Run


@click.command("list")
@click.option("--data", "of_data", is_flag=True, help="Data sets instead of recipes.")
@click.option("--runs", is_flag=False, flag_value="runs", metavar="[FOLDER]", help="Runs instead of recipes: below runs, or this folder.")
@AS_JSON
def command(of_data: bool, runs: str | None, as_json: bool) -> None:
    """Show the catalogue: every recipe with its chapter, sources and abilities; or every data set known by name; or one's own runs."""
    if of_data and runs is not None:
        raise UsageError("--data and --runs are two lists; ask for one after the other")
    if runs is not None:
        trained(runs, as_json)
    elif of_data:
        sets(as_json)
    else:
        recipes(as_json)


def recipes(as_json: bool) -> None:
    from didact.cli.catalogue import catalogue

    keys = ("name", "kind", "chapter", "sources", "abilities", "accepts", "data", "summary")
    rows = [{key: getattr(recipe, key) for key in keys} for recipe in catalogue().values()]

    def show() -> None:
        for chapter in dict.fromkeys(str(row["chapter"]) for row in rows):
            click.secho(chapter, bold=True)
            for row in rows:
                if row["chapter"] == chapter:
                    click.echo(f"  {row['name']:<22} {row['summary']}")
                    can = f"{', '.join(row['abilities'])}; " if row["abilities"] else ""
                    click.secho(f"  {'':<22} {can}{', '.join(row['sources'])}", dim=True)
        click.echo("\n`didact show RECIPE` tells more; `didact list --data` lists the data sets.")

    answer(rows, as_json, show)


def sets(as_json: bool) -> None:
    from didact.data.fetch import missing
    from didact.data.load import sources

    rows = [
        {"name": s.name, "kind": s.kind, "task": s.task, "summary": s.summary, "licence": s.licence, "at_hand": not missing(s)}
        for s in sources().values()
    ]

    def show() -> None:
        wide = {key: max(len(str(row[key])) for row in rows) for key in ("name", "kind", "task")}
        for row in rows:
            where = "" if row["at_hand"] else "   (to be downloaded)"
            click.echo(f"  {'  '.join(f'{row[key]:<{wide[key]}}' for key in wide)}  {row['summary']}{where}")

    answer(rows, as_json, show)


def trained(root: str, as_json: bool) -> None:
    """Every run below a folder, the oldest first. torch is not needed, nor waited for."""
    from pathlib import Path

    from didact.run import Run, folders

    rows = [about(Run(folder)) for folder in folders(Path(root))]

    def show() -> None:
        wide = {key: max((len(str(row.get(key, ""))) for row in rows), default=0) for key in ("run", "status", "data")}
        for row in rows:
            named = "  ".join(f"{row.get(key, '')!s:<{wide[key]}}" for key in wide)
            click.echo(f"{named}  {row['wrong'] if 'wrong' in row else reached(row)}".rstrip())
        if not rows:
            click.echo(f"no runs under {root} yet; `didact train mlp` makes the first")

    answer(rows, as_json, show)


def about(run: "Run") -> dict[str, Any]:
    """One run in a few words; a damaged one is in the list as well, and says why."""
    name = f"{run.folder.parent.name}/{run.folder.name}"
    try:
        facts = run.facts
        keys = ("started", "steps", "seconds", "watch", "validation", "test")
        return {"run": name, "status": run.status, "data": facts["data"]["name"], **{k: facts[k] for k in keys if k in facts}}
    except UsageError as error:
        return {"run": name, "status": "damaged", "wrong": str(error)}


def reached(row: dict[str, Any]) -> str:
    """How a finished run did by the metric that chose its model, and how long that took."""
    if "test" not in row or "watch" not in row:
        return ""
    metric = row["watch"][0]
    return f"test {metric} {number(row['test'].get(metric))}" + (f"  in {duration(row['seconds'])}" if "seconds" in row else "")
