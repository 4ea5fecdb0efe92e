"""didact show RECIPE."""

from typing import Any

import click

from didact.cli.options import parse_options, print_result
from didact.cli.terminal import echo


@click.command("show", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Show one recipe: its equation, sources, options, and the layers that it builds for the data."""
    from didact.cli.recipes import get_recipe, parse_recipe_name
    from didact.training.prepare import describe_recipe, known_options

    name = parse_recipe_name("show", arguments)
    recipe = get_recipe(name)
    user_options, as_json = parse_options(
        f"didact show {name}", known_options(recipe), list(arguments[1:]), about=recipe.function.__doc__ or ""
    )
    description = describe_recipe(recipe, user_options)
    print_result(description, as_json, lambda: _show(description))


def _show(description: dict[str, Any]) -> None:
    from rich.table import Table

    from didact.cli.progress import describe_health, make_console, make_layer_table

    console = make_console()
    echo(description["recipe"], bold=True)
    echo(description["about"])
    echo(
        f"\nchapter {description['chapter']}; sources {', '.join(description['sources'])}; can "
        f"{', '.join(description['abilities'])}"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("option", "type", "default", ""):
        table.add_column(column, overflow="fold")
    for o in description["options"]:
        table.add_row(f"--{o['flag']}", o["type"], o["default"], o["help"])
    console.print(table)
    echo(f"\non {description['data']}:")
    for line in [*describe_health(description["health"]), *description["notes"]]:
        echo(f"  {line}")
    with_receptive_fields = any("field" in row for row in description["layers"]["rows"])
    console.print(make_layer_table(description["layers"], with_receptive_fields=with_receptive_fields))
    if with_receptive_fields:
        echo(
            "  sees: pixels of the image that one output looks at; jump: pixels between two neighbours; neither where "
            "all is mixed"
        )
    echo(
        f"  {description['layers']['total']:,} parameters, {description['layers']['trainable']:,} trainable, "
        f"{description['layers']['tied']:,} tied"
    )
