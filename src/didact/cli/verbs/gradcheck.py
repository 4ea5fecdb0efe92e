"""didact gradcheck "EXPRESSION" x=1 y=2, or didact gradcheck RECIPE."""

from typing import Any

import click

from didact.cli.options import JSON_OPTION, parse_assignments, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("gradcheck")
@click.argument("what")
@click.argument("values", nargs=-1)
@click.option(
    "--num-samples",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Number of entries that are checked of each parameter of a recipe's network.",
)
@JSON_OPTION
def command(what: str, values: tuple[str, ...], num_samples: int, as_json: bool) -> None:
    """Gradient check: compute a gradient in several ways and compare.

    WHAT is an expression (didact gradcheck "x*sin(y)" x=2 y=0.5), differentiated numerically, symbolically, in forward
    mode and in reverse mode; or a recipe on the NumPy engine (didact gradcheck scratch_lenet), whose gradients are
    compared with central differences.
    """
    result = _check_recipe(what, num_samples) if what.isidentifier() and not values else _check_formula(what, values)
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
    rows = [{"what": f"d/d{name}", **{method: gradients[method][name] for method in gradients}} for name in assigned]
    max_difference = max(
        (abs(r[method] - r["reverse"]) / (1 + abs(r["reverse"])) for r in rows for method in gradients), default=0.0
    )
    return {"expression": expression, "rows": rows, "max_difference": max_difference, "passed": max_difference < 1e-6}


def _check_recipe(name: str, num_samples: int) -> dict[str, Any]:
    from didact.cli.recipes import get_recipe
    from didact.training.compare_engines import check_gradients

    return check_gradients(get_recipe(name), samples=num_samples)


def _show(result: dict[str, Any]) -> None:
    columns = [key for key in result["rows"][0] if key != "what"] if result["rows"] else []
    width = max([len(r["what"]) for r in result["rows"]], default=0)
    echo(" " * width + "".join(f"  {c:>14}" for c in columns))
    for row in result["rows"]:
        echo(f"{row['what']:<{width}}" + "".join(f"  {row[c]:>14.9g}" for c in columns))
    echo(f"largest difference {result['max_difference']:.1e}")
