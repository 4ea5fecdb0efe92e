"""What options name: runs by their folders, and the data that a run learned from by the options that would choose them."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from didact.errors import UsageError
from didact.registry import Recipe
from didact.run import Run
from didact.train.experiment import Settings

CHOOSE_DATA = ("data", "target", "task", "text", "tokens", "size", "split_seed")


def begins_with(recipe: Recipe) -> list[str]:
    """The options that name a run whose data are read where none are named."""
    return [name for name, option in recipe.options.items() if option.run is not None and option.run.data]


def tells_class(recipe: Recipe) -> list[str]:
    """The options by which a model is told the class of each example."""
    return [name for name, option in recipe.options.items() if option.tells_class]


def asks_no_class(recipe: Recipe, arguments: Mapping[str, Any]) -> bool:
    """Whether nobody will ask which class an example is of: not the recipe, nor its options, nor the run that it begins with."""
    if recipe.labelled or any(arguments[name] for name in tells_class(recipe)):
        return False
    return not any(Run.open(arguments[name]).facts["data"]["labels"] for name in begins_with(recipe) if arguments[name])


def with_runs(recipe: Recipe, arguments: Mapping[str, Any], root: Path | str) -> dict[str, Any]:
    """Names of runs as their folders under this root: `latest` would be another one when this run is resumed."""
    found = dict(arguments)
    for name, option in recipe.options.items():
        if option.run is not None and found[name] is not None:
            try:
                found[name] = str(Run.open(os.path.expanduser(found[name]), root).folder)
            except UsageError:
                if not option.run.or_else:
                    raise
    return found


def with_data_of(recipe: Recipe, arguments: Mapping[str, Any], settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Where no data are named, those of the run that it begins with (`NamesRun(data=True)`), read as there but for what was given."""
    runs = [arguments[name] for name in begins_with(recipe) if arguments[name]]
    if settings.data is not None or not runs:
        return settings
    theirs = Run.open(runs[0]).facts["data"]
    if theirs["kind"] not in recipe.accepts:        # no run to begin with: the recipe says why
        return settings
    found = words_of(theirs["source"])
    if found["data"] is None:
        raise UsageError(f"{runs[0]} does not say where its data can be loaded from: they were handed over in Python; give --data")
    if not Path(theirs["source"].get("path", ".")).exists():
        raise UsageError(f"{runs[0]} learned from {found['data']}, which is no longer there; say with --data where it is")
    return replace(settings, **{name: value for name, value in found.items() if given.get(name) is None})


def words_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """Where data come from, in the options that name them."""
    asked = {"data": source.get("path", source.get("name")), "split_seed": source.get("seed", 0)}
    return {name: asked.get(name, source.get(name)) for name in CHOOSE_DATA}
