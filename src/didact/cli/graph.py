"""didact graph "<expression>" x=1 y=2."""

from pathlib import Path
from typing import Any

import click

from didact.cli.words import AS_JSON, answer, assignments, number
from didact.errors import UsageError


@click.command("graph")
@click.argument("expression")
@click.argument("values", nargs=-1)
@click.option("--to", type=click.Path(path_type=Path), default=Path("graph.svg"), show_default=True, help="File of the picture.")
@AS_JSON
def command(expression: str, values: tuple[str, ...], to: Path, as_json: bool) -> None:
    """Draw the graph of a formula, with the value and the gradient at every node: didact graph "(x+y)*z" x=-2 y=5 z=-4."""
    from didact import scratch

    if to.suffix.lower() != ".svg":
        raise UsageError(f"--to expects a file that ends in .svg, got {to}")
    given = assignments(values)
    try:
        output = scratch.graph_of(expression, given)
        picture = scratch.svg(output)
        gradients = scratch.ways.four_ways(expression, given)["reverse"]
    except scratch.ScratchError as error:
        raise UsageError(str(error)) from None
    try:
        to.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {to}: {error.strerror}; choose another file with --to") from None
    found: dict[str, Any] = {"expression": expression, "value": output.item(), "gradients": gradients, "svg": str(to)}

    def show() -> None:
        click.echo(f"{expression} = {number(found['value'])}")
        for name, slope in gradients.items():
            click.echo(f"d/d{name} = {number(slope)}")
        click.echo(f"picture {to}")

    answer(found, as_json, show)
