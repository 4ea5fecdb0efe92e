"""didact gradcheck "EXPRESSION" x=1 y=2, or didact gradcheck RECIPE."""

from typing import Any

import click

from didact.cli.options import JSON_OPTION, parse_assignments, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("gradcheck")
@click.argument("subject", metavar="EXPRESSION|RECIPE")
@click.argument("values", nargs=-1)
@click.option(
    "--num-samples",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Number of entries that are checked of each parameter of a recipe's network.",
)
@JSON_OPTION
def command(subject: str, values: tuple[str, ...], num_samples: int, as_json: bool) -> None:
    """Gradient check: compute a gradient in several ways and compare.

    An expression (didact gradcheck "x*sin(y)" x=2 y=0.5) is differentiated numerically, symbolically, in forward mode
    and in reverse mode. The gradients of a recipe on the NumPy engine (didact gradcheck scratch_lenet) are compared
    with central differences.
    """
    is_recipe = subject.isidentifier() and not values
    result = _check_recipe(subject, num_samples) if is_recipe else _check_formula(subject, values)
    print_result(result, as_json, lambda: _show(result))
    if not result["passed"]:
        echo(f"didact: the gradients differ by {result['max_difference']:.3g}", err=True)
        raise click.exceptions.Exit(1)


def _check_formula(expression: str, values: tuple[str, ...]) -> dict[str, Any]:
    from didact import scratch

    assigned = parse_assignments(values)
    try:
        gradients = scratch.gradients.compare_gradients(expression, assigned)
    except scratch.ScratchError as error:
        raise UsageError(str(error)) from None
    rows = [{"name": f"d/d{name}", **{method: gradients[method][name] for method in gradients}} for name in assigned]
    max_difference = max(
        (abs(r[method] - r["reverse"]) / (1 + abs(r["reverse"])) for r in rows for method in gradients), default=0.0
    )
    return {"expression": expression, "rows": rows, "max_difference": max_difference, "passed": max_difference < 1e-6}


def _check_recipe(name: str, num_samples: int) -> dict[str, Any]:
    from didact.cli.recipes import get_recipe
    from didact.training.compare_engines import check_gradients

    return check_gradients(get_recipe(name), samples=num_samples)


def _show(result: dict[str, Any]) -> None:
    columns = [key for key in result["rows"][0] if key != "name"] if result["rows"] else []
    width = max([len(r["name"]) for r in result["rows"]], default=0)
    echo(" " * width + "".join(f"  {c:>14}" for c in columns))
    for row in result["rows"]:
        echo(f"{row['name']:<{width}}" + "".join(f"  {row[c]:>14.9g}" for c in columns))
    echo(f"largest difference {result['max_difference']:.1e}")
