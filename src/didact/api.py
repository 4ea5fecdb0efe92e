"""What the commands `train` and `resume` do, from Python: the same folder, report.html included."""

from pathlib import Path
from typing import Any

from didact.data.core import Data
from didact.errors import UsageError
from didact.registry import Recipe
from didact.run import Run
from didact.training.distributed.process_group import join_group
from didact.training.experiment import EventCallback, ignore_events
from didact.training.resume import resume as resume_run
from didact.training.run_training import train as train_recipe


def train(
    recipe: Recipe | str | None = None,
    *,
    data: Data | Path | str | None = None,
    on_event: EventCallback = ignore_events,
    **options: Any,
) -> Run:
    """Train a recipe and return its run: `run = didact.train(recipes.mlp, data="iris", hidden=(64,))`.

    `data` is a name, a path, or Data already loaded; every other keyword is an option of the recipe or of all recipes.
    Without a recipe, one is chosen for the data: `didact.train(data="houses.csv", target="price")`.
    """
    if recipe is None:
        recipe, options = _choose_recipe(data, options)
    return _report(train_recipe(recipe, data=data, on_event=on_event, **options))


def _choose_recipe(data: Data | Path | str | None, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The recipe for data, with the options that go with it."""
    from didact.recipes._choose_recipe import choose_recipe

    if not isinstance(data, str | Path):
        raise UsageError("without a recipe, data is a name or a path for which one is chosen, got none of either")
    choice = choose_recipe(str(data), target=options.get("target"), text=options.get("text"))
    chosen = {name: None if value == "none" else value for name, value in choice.options.items()}
    return choice.recipe, {**chosen, **options}


def resume(run: Run, *, on_event: EventCallback = ignore_events) -> Run:
    """Resume a run that was stopped or killed; it ends with the very bytes that an undisturbed one has."""
    return _report(resume_run(run, on_event=on_event))


def _report(run: Run) -> Run:
    """The run with its report, written by one process."""
    from didact.report.page import write_report  # its charts are not needed before

    group = join_group()
    if group.is_main:
        write_report(run)
    group.barrier()
    return run
