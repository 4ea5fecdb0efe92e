"""didact engines RECIPE."""

from typing import Any

import click

from didact.cli.options import parse_options, print_result
from didact.cli.terminal import echo


@click.command("engines", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Compare two engines: build a recipe's network in NumPy and in PyTorch and show how far apart they are.

    The recipe is one of those on the NumPy engine (scratch_mlp, scratch_lenet, …).
    """
    from didact.cli.recipes import get_recipe, parse_recipe_name
    from didact.options import Option, Range
    from didact.training.compare_engines import OPTIMIZERS, compare_engines, is_scratch_recipe
    from didact.training.prepare import known_options

    recipe = get_recipe(parse_recipe_name("engines", arguments, is_suitable=is_scratch_recipe))
    own_options = {
        "steps": Option("steps", int, 10, "optimizer steps in both engines", range=Range(1, 10_000)),
        "optimizer": Option("optimizer", str, "adam", "optimizer", choices=tuple(OPTIMIZERS)),
        "lr": Option("lr", float, 1e-3, "learning rate", range=Range(0, open_low=True)),
    }
    options = {**known_options(recipe), **own_options}
    user_options, as_json = parse_options(
        f"didact engines {recipe.name}",
        options,
        list(arguments[1:]),
        about=command.help or "",
        own_names={*recipe.options, *own_options},
    )
    settings = {name: user_options.pop(name) for name in own_options if name in user_options}
    comparison = compare_engines(recipe, user_options, **settings)
    print_result(comparison, as_json, lambda: _show(comparison))
    if not comparison["equal"]:
        echo(
            f"didact: the engines differ by {comparison['max_difference']:.3g}, more than "
            f"{comparison['tolerance']:.0e}",
            err=True,
        )
        raise click.exceptions.Exit(1)


def _show(comparison: dict[str, Any]) -> None:
    width = max(len(row["name"]) for row in comparison["rows"])
    echo(
        f"{comparison['recipe']} in {comparison['dtype']}, {comparison['steps']} steps of {comparison['optimizer']}\n"
    )
    echo(f"{'':<{width}}  {'shape':<14} {'largest':>10} {'difference':>11}")
    for row in comparison["rows"]:
        shape = "×".join(map(str, row["shape"])) or "scalar"
        echo(f"{row['name']:<{width}}  {shape:<14} {row['largest']:>10.3g} {row['difference']:>11.1e}")
    echo(f"\nlargest difference {comparison['max_difference']:.1e} (tolerance {comparison['tolerance']:.0e})")
