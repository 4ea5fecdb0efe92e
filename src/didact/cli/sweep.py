"""didact sweep RECIPE axis=value,value …"""

from pathlib import Path
from typing import Any

import click

from didact.cli.words import answer, number, parse
from didact.errors import UsageError


@click.command("sweep", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Train a recipe over a grid: `didact sweep mlp lr=1e-4,1e-3 dropout=0,0.3 --data wine --seeds 3`."""
    from didact import report
    from didact.cli.catalogue import chosen, first_word
    from didact.cli.lines import Lines
    from didact.objectives.pace import paced
    from didact.objectives.writing import unhurried
    from didact.options import Option, Range
    from didact.run import Run
    from didact.train.distributed import join, leave
    from didact.train.interrupt import Interrupted
    from didact.train.loop import silent
    from didact.train.session import known_options
    from didact.train.sweep import cells, choose_metric, read_axes, sweep

    recipe = chosen(first_word("sweep", words))
    grid = [w for w in words[1:] if "=" in w and not w.startswith("-")]
    own = {
        "seeds": Option("seeds", int, 1, "how many seeds each cell is trained under", range=Range(1, 1000)),
        "beside": Option("beside", int, 1, "trainings at once, each in a process of its own", range=Range(1, 64)),
        "metric": Option("metric", str, None, "metric of the table (what the recipe watches if not given)", optional=True),
    }
    about = f"{command.help}\n\nAxes of {recipe.name} by itself: {dict(recipe.grid) or 'none'}"
    given, as_json = parse(f"didact sweep {recipe.name}", known_options(recipe) | own, [w for w in words[1:] if w not in grid], about=about,
                           usage="axis=value,value…")
    axes = read_axes(recipe, grid)
    metric, seeds, many = given.pop("metric", None), given.pop("seeds", 1), given.pop("beside", 1)
    group, screen = join(), Lines()
    told = screen if group.leads else silent

    def done(row: dict[str, Any]) -> None:
        if "diverged" not in row:
            report.write(Run(Path(row["run"])))
        screen.row(row, recipe.compare)

    try:
        with paced(screen.drawing if group.leads else unhurried):
            folder, rows = sweep(recipe, axes, seeds=seeds, metric=metric, beside=many, tell=told, done=done, **given)
        group.wait()
    except Interrupted:
        raise UsageError("stopped; what was trained is kept, what was under way is begun anew: the same command goes on") from None
    finally:
        screen.close()
        leave()
    if not group.leads:
        return
    metric = choose_metric(rows, metric, recipe.compare)
    beside = [name for name in recipe.compare if name != metric]
    table = cells(rows, metric, beside)
    page = report.sweep_page(f"{recipe.name}: {metric}", axes, rows, metric, folder / "report.html", beside)
    answer({"recipe": recipe.name, "axes": axes, "metric": metric, "table": table, "runs": rows, "report": str(page)}, as_json,
           lambda: show(table, metric, beside, str(page)))


def show(table: list[dict[str, Any]], metric: str, beside: list[str], page: str) -> None:
    from rich.table import Table

    from didact.cli.progress import paper
    from didact.options import written

    drawn = Table(box=None, pad_edge=False, padding=(0, 2))
    heads = {"validation": f"validation {metric}", "validation_spread": "±", "test": f"test {metric}", "test_spread": "±"}
    heads |= {name: f"validation {name}" for name in beside}
    shown = [k for k in table[0] if k != "diverged" or any(row[k] for row in table)]
    for name in shown:
        drawn.add_column(heads.get(name, name), justify="right")
    for row in table:
        drawn.add_row(*["" if row[k] is None else number(row[k]) if k in (*heads, "seconds") else written(row[k]) for k in shown])
    paper().print(drawn)
    click.echo(f"report {page}")
