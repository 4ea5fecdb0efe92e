"""didact gradcheck "<expression>" x=1 y=2, or didact gradcheck RECIPE."""

from typing import Any

import click

from didact.cli.words import AS_JSON, answer, assignments
from didact.errors import UsageError


@click.command("gradcheck")
@click.argument("what")
@click.argument("values", nargs=-1)
@click.option("--samples", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries of each parameter that are checked.")
@AS_JSON
def command(what: str, values: tuple[str, ...], samples: int, as_json: bool) -> None:
    """Compute a gradient in several ways and compare them.

    Of a formula (didact gradcheck "x*sin(y)" x=2 y=0.5): numerically, symbolically, in forward and in reverse mode. Of a recipe on the
    NumPy engine (didact gradcheck scratch_lenet): its network's gradients against central differences.
    """
    found = of_recipe(what, samples) if what.isidentifier() and not values else of_formula(what, values)
    answer(found, as_json, lambda: show(found))
    if not found["passed"]:
        click.echo(f"didact: the gradients differ by {found['max_difference']:.3g}", err=True)
        raise click.exceptions.Exit(1)


def of_formula(expression: str, values: tuple[str, ...]) -> dict[str, Any]:
    from didact import scratch

    given = assignments(values)
    try:
        ways = scratch.ways.four_ways(expression, given)
    except scratch.ScratchError as error:
        raise UsageError(str(error)) from None
    rows = [{"what": f"d/d{name}", **{way: ways[way][name] for way in ways}} for name in given]
    worst = max((abs(r[way] - r["reverse"]) / (1 + abs(r["reverse"])) for r in rows for way in ways), default=0.0)
    return {"expression": expression, "rows": rows, "max_difference": worst, "passed": worst < 1e-6}


def of_recipe(name: str, samples: int) -> dict[str, Any]:
    from didact.cli.catalogue import chosen
    from didact.train.compare import check_gradients

    return check_gradients(chosen(name), samples=samples)


def show(found: dict[str, Any]) -> None:
    columns = [key for key in found["rows"][0] if key != "what"] if found["rows"] else []
    width = max([len(r["what"]) for r in found["rows"]], default=0)
    click.echo(" " * width + "".join(f"  {c:>14}" for c in columns))
    for row in found["rows"]:
        click.echo(f"{row['what']:<{width}}" + "".join(f"  {row[c]:>14.9g}" for c in columns))
    click.echo(f"largest difference {found['max_difference']:.1e}")
