"""didact graph "<expression>" x=1 y=2."""

from pathlib import Path
from typing import Any

import click

from didact.cli.options import JSON_OPTION, format_metric, parse_assignments, print_result
from didact.errors import UsageError


@click.command("graph")
@click.argument("expression")
@click.argument("values", nargs=-1)
@click.option(
    "--to", type=click.Path(path_type=Path), default=Path("graph.svg"), show_default=True, help="File of the picture."
)
@JSON_OPTION
def command(expression: str, values: tuple[str, ...], to: Path, as_json: bool) -> None:
    """Draw the graph of a formula, with the value and the gradient at every node: didact graph "(x+y)*z" x=-2 y=5
    z=-4."""
    from didact import scratch

    if to.suffix.lower() != ".svg":
        raise UsageError(f"--to expects a file that ends in .svg, got {to}")
    assigned = parse_assignments(values)
    try:
        output = scratch.graph_of(expression, assigned)
        svg_text = scratch.svg(output)
        gradients = scratch.gradients.compare_gradients(expression, assigned)["reverse"]
    except scratch.ScratchError as error:
        raise UsageError(str(error)) from None
    try:
        to.write_text(svg_text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {to}: {error.strerror}; choose another file with --to") from None
    result: dict[str, Any] = {"expression": expression, "value": output.item(), "gradients": gradients, "svg": str(to)}

    def show() -> None:
        click.echo(f"{expression} = {format_metric(result['value'])}")
        for name, slope in gradients.items():
            click.echo(f"d/d{name} = {format_metric(slope)}")
        click.echo(f"picture {to}")

    print_result(result, as_json, show)
