"""didact show RECIPE."""

from typing import Any

import click

from didact.cli.words import answer, parse


@click.command("show", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Show one recipe: what it is, where from, its options, and the layers it builds for the data."""
    from didact.cli.catalogue import chosen, first_word
    from didact.train.session import describe_recipe, known_options

    name = first_word("show", words)
    recipe = chosen(name)
    given, as_json = parse(f"didact show {name}", known_options(recipe), list(words[1:]), about=recipe.function.__doc__ or "")
    facts = describe_recipe(recipe, given)
    answer(facts, as_json, lambda: tell(facts))


def tell(facts: dict[str, Any]) -> None:
    from rich.table import Table

    from didact.cli.progress import describe_health, layer_table, paper

    console = paper()
    click.secho(facts["recipe"], bold=True)
    click.echo(facts["about"])
    click.echo(f"\nchapter {facts['chapter']}; sources {', '.join(facts['sources'])}; can {', '.join(facts['abilities'])}")
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("option", "type", "default", ""):
        table.add_column(column, overflow="fold")
    for o in facts["options"]:
        table.add_row(f"--{o['flag']}", o["type"], o["default"], o["help"])
    console.print(table)
    click.echo(f"\non {facts['data']}:")
    for line in [*describe_health(facts["health"]), *facts["notes"]]:
        click.echo(f"  {line}")
    sights = any("field" in row for row in facts["layers"]["rows"])
    console.print(layer_table(facts["layers"], sights=sights))
    if sights:
        click.echo("  sees: pixels of the image that one output looks at; jump: pixels between two neighbours; neither where all is mixed")
    click.echo(f"  {facts['layers']['total']:,} parameters, {facts['layers']['trainable']:,} trainable, {facts['layers']['tied']:,} tied")
