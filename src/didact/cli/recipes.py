"""The registry of recipes, loaded when a verb needs it."""

from collections.abc import Callable

import click

from didact.cli.terminal import echo
from didact.errors import UsageError, look_up
from didact.registry import CHAPTERS, RECIPES, Recipe


def load_recipes() -> dict[str, Recipe]:
    """All recipes, chapter by chapter."""
    import didact.recipes  # noqa: F401 (registers them)

    order = {chapter: i for i, chapter in enumerate(CHAPTERS)}
    return dict(sorted(RECIPES.items(), key=lambda item: order.get(item[1].chapter, len(order))))


def get_recipe(name: str) -> Recipe:
    return look_up("recipe", name, load_recipes())


def parse_recipe_name(
    verb: str, arguments: tuple[str, ...], *, is_suitable: Callable[[Recipe], bool] = lambda _: True
) -> str:
    """The recipe's name, which is the first argument; with --help, print the suitable recipes and exit."""
    if arguments and arguments[0] in ("-h", "--help"):
        echo(
            f"Usage: didact {verb} RECIPE [--option value …]\n\n`didact {verb} RECIPE --help` lists a recipe's "
            "options. Recipes:\n"
        )
        for recipe in filter(is_suitable, load_recipes().values()):
            echo(f"  {recipe.name:<21} {recipe.summary}")
        raise click.exceptions.Exit(0)
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"didact {verb} expects a recipe's name first; `didact list` shows them")
    return arguments[0]
