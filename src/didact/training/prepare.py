"""From a recipe and its options to an experiment that is ready to train: nothing is written."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from didact.data.checks import summarize_health
from didact.data.core import Batch, Data, Split
from didact.data.load import load
from didact.data.tables.table_file import keep_standard_input
from didact.data.tables.table_options import TableOptions
from didact.errors import UsageError, look_up
from didact.objectives.abilities import abilities
from didact.options import Option, bind_arguments, format_value, note_unused_options, read_options, resolve_aliases
from didact.registry import RECIPES, Recipe
from didact.training.device import memory_guard, resolve_device
from didact.training.distributed.process_group import Group
from didact.training.experiment import EventCallback, Experiment, Settings, ignore_events
from didact.training.plan import count_batches
from didact.training.recording.model_summary import summarize_layers
from didact.training.seeding import init_rng
from didact.training.source_runs import inherit_data_settings, needs_no_labels, resolve_run_paths

BUDGET_OPTIONS = ("epochs", "steps", "budget")


@dataclass(frozen=True)
class PreparedExperiment:
    """A recipe with its data loaded and its network built, before the first step."""

    recipe: Recipe
    arguments: dict[str, Any]
    settings: Settings
    data: Data               # as loaded; the recipe may resample its training split
    experiment: Experiment
    trained_for: str = ""         # the recipe that trains this one first as its source; such a run is never `latest`


def known_options(recipe: Recipe) -> dict[str, Option]:
    """All options of a recipe: its own, then those of every recipe."""
    own = recipe.options
    return own | {name: o for name, o in read_options(Settings).items() if name not in own}


def prepare(
    recipe: Recipe | str, user_options: Mapping[str, Any], *,
    data: Data | None = None, labeled: bool = False, on_event: EventCallback = ignore_events, processes: int = 1,
) -> PreparedExperiment:
    """Check every argument, load the data, build the experiment. Nothing is written.

    `labeled`: only images with a class are read, even if this training does not need classes.
    """
    recipe = recipe if isinstance(recipe, Recipe) else look_up("recipe", recipe, RECIPES)
    options_by_name, owner = known_options(recipe), f"recipe {recipe.name!r}"
    user_options = resolve_aliases(options_by_name, user_options, owner=owner)
    values = bind_arguments(options_by_name, user_options, owner=owner)
    _check_budget(user_options)
    arguments = {name: values[name] for name in recipe.options}
    settings = Settings(
        **{f.name: values[f.name] for f in fields(Settings) if f.name in values and f.name not in arguments}
    )
    resolve_device(settings.device)
    arguments = resolve_run_paths(recipe, arguments, settings.runs)
    if data is None:
        settings = inherit_data_settings(recipe, arguments, settings, user_options)
        settings = replace(settings, data=keep_standard_input(settings.data, settings.runs, processes))
        name = settings.data or recipe.data
        on_event("load", {"data": name})
        is_unlabeled = not labeled and needs_no_labels(recipe, arguments)
        data = load_data(settings, name, recipe, allow_unlabeled=is_unlabeled, on_event=on_event)
    experiment = build_experiment(recipe, data, arguments, settings)
    unused_notes = note_unused_options(recipe.options, user_options, arguments)
    notes = (*unused_notes, *describe_averaging(experiment), *_accumulation_notes(experiment))
    experiment = replace(experiment, notes=(*experiment.notes, *notes))
    arguments |= experiment.resolved_arguments
    _check_batch_norm(experiment, processes, "norm" in recipe.options)
    return PreparedExperiment(recipe, arguments, settings, data, experiment)


def load_data(
    settings: Settings,
    name: str,
    recipe: Recipe | None = None,
    *,
    allow_unlabeled: bool = False,
    indices: Mapping[str, Tensor] | None = None,
    on_event: EventCallback = ignore_events,
) -> Data:
    """The data of a name or path as the settings say, read for a recipe where one is given."""
    return load(
        name,
        target=settings.target,
        task=settings.task,
        text=settings.text,
        size=settings.size,
        tokens=settings.tokens,
        table=TableOptions.from_mapping(vars(settings)),
        seed=settings.split_seed,
        accepts=recipe.accepts if recipe else (),
        tasks=recipe.tasks if recipe else (),
        allow_unlabeled=allow_unlabeled,
        indices=indices,
        progress=lambda file, done, total: on_event("download", {"file": file, "done": done, "total": total}),
    )


def _check_budget(user_options: Mapping[str, Any]) -> None:
    """Refuse more than one of epochs, steps and time."""
    budgets = {name: user_options[name] for name in BUDGET_OPTIONS if user_options.get(name) is not None}
    if len(budgets) > 1:
        raise UsageError(
            f"the budget is one of {', '.join(f'--{name}' for name in BUDGET_OPTIONS)}, got "
            f"{' and '.join(f'--{name} {format_value(value)}' for name, value in budgets.items())}; leave one"
        )


def build_experiment(recipe: Recipe, data: Data, arguments: Mapping[str, Any], settings: Settings) -> Experiment:
    """The experiment with weights initialized from the seed and the budget as set."""
    with init_rng(settings.seed), memory_guard():
        experiment: Experiment = recipe(data, **arguments)
    if settings.epochs is not None or settings.steps is not None:
        experiment = experiment.with_budget(settings.epochs, settings.steps)
    if data.source.get("sample_weight") and not experiment.objective.weighs_examples:
        raise UsageError(
            f"--sample-weight is for recipes that learn a target by its likelihood, as mlp does, but {recipe.name!r} "
            "weighs no examples; leave it out"
        )
    if data.source.get("sample_weight"):     # the other metrics count every example once
        experiment.objective.monitor, experiment.objective.mode = "loss", "min"
    return replace(
        experiment,
        accumulate=settings.accumulate or experiment.accumulate,
        evaluate_every=settings.evaluate_every or experiment.evaluate_every,
    )


def _has_batch_norm(experiment: Experiment) -> bool:
    return any(isinstance(module, _BatchNorm) for module in experiment.objective.modules())


def describe_averaging(experiment: Experiment) -> tuple[str, ...]:
    """A note on precision, recall and F1 of two classes."""
    labels = experiment.data.class_names
    if getattr(getattr(experiment.objective, "likelihood", None), "task", "") != "binary" or len(labels) != 2:
        return ()
    return (f"precision, recall, f1: of the positive class {labels[1]!r}; the macro ones are means over both",)


def _accumulation_notes(experiment: Experiment) -> tuple[str, ...]:
    """How accumulation differs from whole batches."""
    num_micro_batches = experiment.accumulate
    return (
        (f"batch norm takes its means over each {num_micro_batches}th of a batch",)
        if num_micro_batches > 1 and _has_batch_norm(experiment)
        else ()
    )


def _check_batch_norm(experiment: Experiment, processes: int, has_norm_option: bool = True) -> None:
    """Refuse batches of one example: batch norm would turn it into zero."""
    num_examples, batch_size, num_micro_batches = (
        len(experiment.data.train),
        experiment.batch_size,
        experiment.accumulate,
    )
    if not _has_batch_norm(experiment):
        return
    # statistics are shared over processes once per batch, not per micro-batch
    if num_micro_batches > 1 and processes > 1:
        raise UsageError(
            f"batch norm over {processes} processes needs whole batches, not {num_micro_batches} micro-batches; "
            "leave out --accumulate"
        )
    last = num_examples - (count_batches(num_examples, batch_size) - 1) * batch_size
    for n in {min(batch_size, num_examples), last}:
        if n % -(-n // num_micro_batches) == 1 or n <= num_micro_batches:
            in_parts = f" in {num_micro_batches} micro-batches" if num_micro_batches > 1 else ""
            raise UsageError(
                f"batch norm needs at least 2 examples at a time, but {num_examples} examples in batches of "
                f"{batch_size}{in_parts} leave a single one;"
                f" raise --batch-size{',' if has_norm_option else ' or'} lower "
                f"--accumulate{', or choose another --norm' if has_norm_option else ''}"
            )


def training_device(prepared: PreparedExperiment, group: Group) -> torch.device:
    """The device of this process."""
    name = prepared.settings.device
    if group.world_size > 1 and name.startswith("cuda:"):
        raise UsageError(
            f"--device {name} would put all {group.world_size} processes on one GPU; use --device cuda, which "
            "gives each its own"
        )
    return resolve_device(name, group.local_rank, prepared.experiment.objective.devices)


def describe_recipe(recipe: Recipe, user_options: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe is and what it builds for its data, without training it."""
    prepared = prepare(recipe, user_options)
    experiment = prepared.experiment
    return {
        "recipe": recipe.name,
        "about": inspect.cleandoc(recipe.function.__doc__ or ""),
        "chapter": recipe.chapter,
        "sources": recipe.sources,
        "abilities": abilities(experiment.objective),
        "accepts": recipe.accepts,
        "grid": recipe.grid,
        "arguments": prepared.arguments,
        "options": [
            {
                "flag": o.flag,
                "type": o.value_syntax,
                "default": "" if o.default is None else o.default_text,
                "help": o.help,
            }
            for o in recipe.options.values()
        ],
        "data": experiment.data.name,
        "health": summarize_health(experiment.data),
        "notes": experiment.notes,
        "layers": summarize_layers(experiment.objective, take_examples(experiment.data.train)),
    }


def take_examples(split: Split, num_examples: int = 2) -> Batch:
    """A few decoded examples, to see what flows through the network."""
    return split.decode(next(iter(split.batches([torch.arange(min(num_examples, len(split)))]))))
