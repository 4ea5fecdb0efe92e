"""didact compare RECIPE."""

from typing import Any

import click

from didact.cli.words import answer, parse


@click.command("compare", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Build a recipe's network in both engines, NumPy's and PyTorch's, and show how far apart they are.

    The recipe is one of those that run on the NumPy engine (`didact list` shows them).
    """
    from didact.cli.catalogue import chosen, first_word
    from didact.options import Option, Range
    from didact.train.compare import OPTIMIZERS, compare, on_scratch
    from didact.train.session import known_options

    recipe = chosen(first_word("compare", words, fit=on_scratch))
    own = {
        "steps": Option("steps", int, 10, "optimizer steps taken in both engines", range=Range(1, 10_000)),
        "optimizer": Option("optimizer", str, "adam", "rule that moves the weights", choices=tuple(OPTIMIZERS)),
        "lr": Option("lr", float, 1e-3, "learning rate", range=Range(0, open_low=True)),
    }
    options = {**known_options(recipe), **own}
    given, as_json = parse(f"didact compare {recipe.name}", options, list(words[1:]), about=command.help or "")
    settings = {name: given.pop(name) for name in own if name in given}
    found = compare(recipe, given, **settings)
    answer(found, as_json, lambda: show(found))
    if not found["equal"]:
        click.echo(f"didact: the engines differ by {found['max_difference']:.3g}, more than {found['tolerance']:.0e}", err=True)
        raise click.exceptions.Exit(1)


def show(found: dict[str, Any]) -> None:
    width = max(len(row["what"]) for row in found["rows"])
    click.echo(f"{found['recipe']} in {found['dtype']}, {found['steps']} steps of {found['optimizer']}\n")
    click.echo(f"{'':<{width}}  {'shape':<14} {'largest':>10} {'difference':>11}")
    for row in found["rows"]:
        shape = "×".join(map(str, row["shape"])) or "scalar"
        click.echo(f"{row['what']:<{width}}  {shape:<14} {row['largest']:>10.3g} {row['difference']:>11.1e}")
    click.echo(f"\nlargest difference {found['max_difference']:.1e} (tolerance {found['tolerance']:.0e})")
