"""didact train RECIPE [--option value …]."""

from collections.abc import Callable
from typing import Any

import click

from didact.cli.words import answer, number, parse
from didact.errors import UsageError


@click.command("train", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Train a recipe; `didact train RECIPE --help` lists its options."""
    from didact.cli.catalogue import chosen, first_word
    from didact.train.session import known_options, train

    name = first_word("train", words)
    recipe = chosen(name)
    given, as_json = parse(f"didact train {name}", known_options(recipe), list(words[1:]), about=recipe.function.__doc__ or "")
    watched(lambda tell: train(recipe, tell=tell, **given), as_json)


def watched(work: Callable[[Any], Any], as_json: bool) -> None:
    """Train or resume while showing it, write the report, and answer with the metrics."""
    from didact import report
    from didact.cli.progress import Screen
    from didact.objectives.pace import paced
    from didact.objectives.writing import unhurried
    from didact.train.distributed import join, leave
    from didact.train.interrupt import Interrupted
    from didact.train.loop import silent

    group, screen = join(), Screen()
    try:
        with paced(screen.drawing if group.leads else unhurried):
            run = work(screen if group.leads else silent)
        if group.leads:
            page = report.write(run)
            result = {"run": str(run.folder), "report": str(page), **results(run.facts)}
            answer(result, as_json, lambda: show(result))
        group.wait()  # one that left while the others still write would look like a failure to torchrun
    except Interrupted as stop:
        raise UsageError(str(stop)) from None
    finally:
        screen.close()
        leave()


def results(facts: dict[str, Any]) -> dict[str, Any]:
    keys = ("recipe", "arguments", "seconds", "validation", "test", "stopped", "best_step", "steps")
    return {key: facts[key] for key in keys}


def show(result: dict[str, Any]) -> None:
    """The metrics of the best validation state on the test split, and where everything lies."""
    from didact.report.words import formula

    metrics = "  ".join(f"{name} {number(value)}" for name, value in result["test"].items())
    click.echo(f"test   {metrics}")
    for name in result["test"]:
        if how := formula(name, result["test"]):
            click.echo(f"       {name} = {how}")
    click.echo(f"run    {result['run']}")
    click.echo(f"report {result['report']}")
