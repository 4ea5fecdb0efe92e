"""didact graph "EXPRESSION" x=1 y=2."""

from pathlib import Path
from typing import Any

import click

from didact.cli.options import JSON_OPTION, format_metric, make_output_option, parse_assignments, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("graph")
@click.argument("expression")
@click.argument("values", nargs=-1)
@make_output_option("SVG file of the picture.", default=Path("graph.svg"), show_default=True)
@JSON_OPTION
def command(expression: str, values: tuple[str, ...], output: Path, as_json: bool) -> None:
    """Draw the computation graph of an expression, with the value and the gradient at each node.

    Example: didact graph "(x+y)*z" x=-2 y=5 z=-4
    """
    from didact import scratch

    if output.suffix.lower() != ".svg":
        raise UsageError(f"--output expects a file that ends in .svg, got {output}")
    assigned = parse_assignments(values)
    try:
        result_node = scratch.graph_of(expression, assigned)
        svg_text = scratch.svg(result_node)
        gradients = scratch.gradients.compare_gradients(expression, assigned)["reverse"]
    except scratch.ScratchError as error:
        raise UsageError(str(error)) from None
    try:
        output.write_text(svg_text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}; choose another file with --output") from None
    result: dict[str, Any] = {
        "expression": expression,
        "value": result_node.item(),
        "gradients": gradients,
        "svg": str(output),
    }

    def show() -> None:
        echo(f"{expression} = {format_metric(result['value'])}")
        for name, slope in gradients.items():
            echo(f"d/d{name} = {format_metric(slope)}")
        echo(f"picture {output}")

    print_result(result, as_json, show)
