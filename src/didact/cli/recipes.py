"""The registry of recipes, loaded when a verb needs it."""

import os
import shlex
from collections.abc import Callable, Sequence

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


def choose_recipe_name(verb: str, arguments: tuple[str, ...]) -> tuple[str, list[str]]:
    """The recipe's name and the options behind it. Where data stand in its place (a file, a folder, the name of a
    dataset, or --data alone), a recipe is chosen for them, and a line on stderr says which and why.
    """
    is_option = not arguments or (arguments[0].startswith("-") and arguments[0] != "-")
    data = _find_option(arguments, "--data") if is_option else arguments[0]
    if data is None or data in load_recipes() or (data != arguments[0] and {"-h", "--help"} & set(arguments)):
        return parse_recipe_name(verb, arguments), list(arguments[1:])
    from didact.data.load import list_datasets
    from didact.data.tables.table_file import STANDARD_INPUT, TableFile, keep_standard_input

    options = list(arguments[1:]) if data == arguments[0] else _without_option(arguments, "--data")
    if data == STANDARD_INPUT:
        data = str(keep_standard_input(data, _find_option(arguments, "--runs") or "runs"))
    is_name = data.isidentifier() and data not in list_datasets()
    if is_name and not TableFile.parse(os.path.expanduser(data)).exists():
        get_recipe(data)                         # refused with the nearest name
    from didact.recipes._choose_recipe import choose_recipe

    target, text = (_find_option(arguments, name) for name in ("--target", "--text"))
    choice = choose_recipe(data, target=target, text=text)
    echo(choice.describe(data, shlex.join(options)), err=True)
    given = {word.partition("=")[0] for word in options}
    chosen = {f"--{name.replace('_', '-')}": str(value) for name, value in choice.options.items()}
    chosen_words = [word for flag, value in chosen.items() if flag not in given for word in (flag, value)]
    return choice.recipe, ["--data", data, *chosen_words, *options]


def _find_option(arguments: Sequence[str], flag: str) -> str | None:
    """The value of an option, as it was typed."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _without_option(arguments: Sequence[str], flag: str) -> list[str]:
    words = [word for word in arguments if not word.startswith(f"{flag}=")]
    if flag in words:
        at = words.index(flag)
        del words[at : at + 2]
    return words


def parse_recipe_name(
    verb: str, arguments: tuple[str, ...], *, is_suitable: Callable[[Recipe], bool] = lambda _: True
) -> str:
    """The recipe's name, which is the first argument; with --help, print the suitable recipes and exit."""
    if arguments and arguments[0] in ("-h", "--help"):
        chosen = f" `didact {verb} FILE` chooses a recipe for your data." if verb in ("train", "show") else ""
        echo(
            f"Usage: didact {verb} RECIPE [--option value …]\n\n`didact {verb} RECIPE --help` lists a recipe's "
            f"options.{chosen} Recipes:\n"
        )
        for recipe in filter(is_suitable, load_recipes().values()):
            echo(f"  {recipe.name:<21} {recipe.summary}")
        raise click.exceptions.Exit(0)
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"didact {verb} expects a recipe's name first; `didact list` shows them")
    return arguments[0]
