"""didact list."""

import click

from didact.cli.words import AS_JSON, answer


@click.command("list")
@click.option("--data", "of_data", is_flag=True, help="Data sets instead of recipes.")
@AS_JSON
def command(of_data: bool, as_json: bool) -> None:
    """Show the catalogue: every recipe with its chapter, sources and abilities; or every data set known by name."""
    if of_data:
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
