"""didact show RECIPE."""

import textwrap
from typing import Any

import click

from didact.cli.options import parse_options, print_result
from didact.cli.terminal import echo, wrap_items


@click.command("show", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Show one recipe: its equation, sources, options, and the layers that it builds for the data."""
    from didact.cli.recipes import choose_recipe_name, get_recipe
    from didact.training.prepare import describe_recipe, known_options

    name, options = choose_recipe_name("show", arguments)
    recipe = get_recipe(name)
    user_options, as_json = parse_options(
        f"didact show {name}",
        known_options(recipe),
        options,
        about=recipe.function.__doc__ or "",
        own_names=recipe.options,
    )
    description = describe_recipe(recipe, user_options)
    print_result(description, as_json, lambda: _show(description))


def _show(description: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from didact.cli.console import TEXT_WIDTH, make_console
    from didact.cli.progress import describe_health, make_layer_table

    console = make_console(pipe_width=TEXT_WIDTH)

    def print_wrapped(text: str, indent: str = "") -> None:
        lines = textwrap.wrap(text, min(console.width, TEXT_WIDTH), initial_indent=indent, subsequent_indent=indent)
        echo("\n".join(lines))

    echo(description["recipe"], bold=True)
    for paragraph in description["about"].split("\n\n"):
        print_wrapped(paragraph)
        echo()
    echo(f"chapter    {description['chapter']}")
    for label in ("sources", "abilities"):
        if lines := wrap_items(description[label], width=TEXT_WIDTH - 11):
            echo(f"{label:<11}" + f"\n{'':<11}".join(lines))
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("option", no_wrap=True)
    table.add_column("default", max_width=16, overflow="fold")
    table.add_column("", min_width=24, overflow="fold")
    for o in description["options"]:
        type_text = o["type"].replace("|", " | ")  # a line can break at the spaces
        table.add_row(f"--{o['flag']}", escape(o["default"]), f"{escape(o['help'])} [dim]· {escape(type_text)}[/]")
    echo()
    console.print(table)
    echo(f"\non {description['data']}:")
    for line in [*describe_health(description["health"]), *description["notes"]]:
        print_wrapped(line, "  ")
    with_receptive_fields = any("field" in row for row in description["layers"]["rows"])
    layer_table = make_layer_table(description["layers"], with_receptive_fields=with_receptive_fields)
    make_console().print(layer_table)  # whole in a pipe: a folded name cannot be searched for in a file
    if with_receptive_fields:
        print_wrapped(
            "field: receptive field of one output, in pixels of the image; jump: pixels between neighboring outputs; "
            "neither where a layer mixes the whole image",
            "  ",
        )
    echo(
        f"  {description['layers']['total']:,} parameters, {description['layers']['trainable']:,} trainable, "
        f"{description['layers']['tied']:,} tied"
    )
