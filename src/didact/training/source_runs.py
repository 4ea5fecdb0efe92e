"""Source runs: options that name a run, and the data settings inherited from it."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from didact.data.tables.table_file import TableFile
from didact.data.tables.table_options import TableOptions
from didact.errors import UsageError
from didact.registry import Recipe
from didact.run import Run
from didact.training.experiment import Settings

TABLE_OPTIONS = tuple(field.name for field in fields(TableOptions))
DATA_OPTIONS = ("data", "target", "task", "text", "tokens", "size", "split_seed", *TABLE_OPTIONS)


def source_run_options(recipe: Recipe) -> list[str]:
    """The options that name a run whose data are used if none are given."""
    return [
        name
        for name, option in recipe.options.items()
        if option.run_reference is not None and option.run_reference.reuse_data
    ]


def label_options(recipe: Recipe) -> list[str]:
    """The options that make a model class-conditional."""
    return [name for name, option in recipe.options.items() if option.requires_labels]


def needs_no_labels(recipe: Recipe, arguments: Mapping[str, Any]) -> bool:
    """Whether neither the recipe, its options nor its source run needs the classes of examples."""
    if recipe.needs_labels or any(arguments[name] for name in label_options(recipe)):
        return False
    return not any(
        Run.open(arguments[name]).metadata["data"]["class_names"]
        for name in source_run_options(recipe)
        if arguments[name]
    )


def resolve_run_paths(recipe: Recipe, arguments: Mapping[str, Any], root: Path | str) -> dict[str, Any]:
    """Names of runs as folders: `latest` would be another run when this one is resumed."""
    resolved = dict(arguments)
    for name, option in recipe.options.items():
        if option.run_reference is not None and resolved[name] is not None:
            try:
                resolved[name] = str(Run.open(os.path.expanduser(resolved[name]), root).folder)
            except UsageError:
                if not option.run_reference.allow_other:
                    raise
    return resolved


def inherit_data_settings(
    recipe: Recipe, arguments: Mapping[str, Any], settings: Settings, user_options: Mapping[str, Any]
) -> Settings:
    """Data settings of the source run (`NamesRun(data=True)`) where no data are given; options of the user come first.
    """
    runs = [arguments[name] for name in source_run_options(recipe) if arguments[name]]
    if settings.data is not None or not runs:
        return settings
    source_data = Run.open(runs[0]).metadata["data"]
    if source_data["kind"] not in recipe.accepts:        # not usable as a source: the recipe says why
        return settings
    inherited = data_options(source_data["source"])
    if inherited["data"] is None:
        raise UsageError(
            f"{runs[0]} does not say where its data come from: they were given in Python; give --data"
        )
    if not TableFile.parse(source_data["source"].get("path", ".")).exists():
        raise UsageError(
            f"{runs[0]} learned from {inherited['data']}, which is no longer there; name it with --data"
        )
    return replace(settings, **{name: value for name, value in inherited.items() if user_options.get(name) is None})


def data_options(source: Mapping[str, Any]) -> dict[str, Any]:
    """The options that name the source of data."""
    locators = {"data": source.get("path", source.get("name")), "split_seed": source.get("seed", 0)}
    return {name: locators.get(name, source.get(name)) for name in DATA_OPTIONS}
