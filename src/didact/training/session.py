"""From a recipe's name to a finished run, and back from a run's folder to its model."""

import inspect
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from didact.analysis.signal_propagation import measure_signal_propagation
from didact.data.checks import summarize_health
from didact.data.core import Batch, Data, Split
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.storage import to_device
from didact.errors import UsageError, look_up
from didact.objectives.abilities import abilities
from didact.objectives.base import Objective
from didact.options import Option, bind_arguments, format_value, read_options, resolve_aliases, unused
from didact.registry import RECIPES, Recipe
from didact.run import Run, environment
from didact.training.decision_surface import decision_surface
from didact.training.device import describe_device, deterministic_kernels, memory_guard, resolve_device
from didact.training.distributed import Group, join_group
from didact.training.divergence import weights_are_finite
from didact.training.evaluation import evaluate_split, make_gallery, save_training_samples
from didact.training.experiment import Experiment, InitContext, Settings
from didact.training.interrupts import DivergedError, Interrupted
from didact.training.loop import EventCallback, Trainer, TrainingState, ignore_events, split_batches
from didact.training.model_summary import summarize_layers
from didact.training.precision import Precision
from didact.training.seeding import init_rng
from didact.training.source_runs import data_options, inherit_data_settings, needs_no_labels, resolve_run_paths
from didact.training.tensorboard import write_events

NUM_EXTREME_EXAMPLES = 12  # best and worst predictions kept for the report


@dataclass(frozen=True)
class PreparedExperiment:
    """A recipe with its data loaded and its network built, before the first step."""

    recipe: Recipe
    arguments: dict[str, Any]
    settings: Settings
    data: Data               # as loaded; the recipe may have balanced what it trains on
    experiment: Experiment
    trained_for: str = ""         # the recipe that this one is trained for, before its own; nobody else asked for it


def known_options(recipe: Recipe) -> dict[str, Option]:
    """Everything that can be set: the recipe's own options, then those of every recipe."""
    own = recipe.options
    return own | {name: o for name, o in read_options(Settings).items() if name not in own}


def prepare(
    recipe: Recipe | str, user_options: Mapping[str, Any], *,
    data: Data | None = None, labeled: bool = False, on_event: EventCallback = ignore_events, processes: int = 1,
) -> PreparedExperiment:
    """Check every argument, load the data, build the experiment. Nothing is written.

    `labelled`: of images, only those that have a class are read, though this training may not ask for it.
    """
    recipe = recipe if isinstance(recipe, Recipe) else look_up("recipe", recipe, RECIPES)
    options_by_name, owner = known_options(recipe), f"recipe {recipe.name!r}"
    user_options = resolve_aliases(options_by_name, user_options, owner=owner)
    values = bind_arguments(options_by_name, user_options, owner=owner)
    if user_options.get("epochs") is not None and user_options.get("steps") is not None:
        raise UsageError(
            f"the budget is either --epochs or --steps, not both, got {user_options['epochs']} and "
            f"{user_options['steps']}"
        )
    arguments = {name: values[name] for name in recipe.options}
    settings = Settings(
        **{f.name: values[f.name] for f in fields(Settings) if f.name in values and f.name not in arguments}
    )
    resolve_device(settings.device)
    arguments = resolve_run_paths(recipe, arguments, settings.runs)
    if data is None:
        settings = inherit_data_settings(recipe, arguments, settings, user_options)
        name = settings.data or recipe.data
        on_event("load", {"data": name})
        data = load(
            name,
            target=settings.target,
            task=settings.task,
            text=settings.text,
            size=settings.size,
            tokens=settings.tokens,
            seed=settings.split_seed,
            accepts=recipe.accepts,
            allow_unlabeled=not labeled and needs_no_labels(recipe, arguments),
            progress=lambda file, done, total: on_event("download", {"file": file, "done": done, "total": total}),
        )
    experiment = build_experiment(recipe, data, arguments, settings)
    notes = (*unused(recipe.options, user_options, arguments), *averaged(experiment), *_accumulation_notes(experiment))
    experiment = replace(experiment, notes=(*experiment.notes, *notes))
    arguments |= experiment.resolved_arguments
    _check_batch_norm(experiment, processes, "norm" in recipe.options)
    return PreparedExperiment(recipe, arguments, settings, data, experiment)


def _has_batch_norm(experiment: Experiment) -> bool:
    return any(isinstance(module, _BatchNorm) for module in experiment.objective.modules())


def averaged(experiment: Experiment) -> tuple[str, ...]:
    """Of which class the metrics of two classes are."""
    labels = experiment.data.class_names
    if getattr(getattr(experiment.objective, "likelihood", None), "task", "") != "binary" or len(labels) != 2:
        return ()
    return (f"precision, recall, f1: of the positive class {labels[1]!r}; the macro ones are means over both",)


def _accumulation_notes(experiment: Experiment) -> tuple[str, ...]:
    """What is not as with whole batches, where they are computed in parts."""
    num_micro_batches = experiment.accumulate
    return (
        (f"batch norm takes its means over each {num_micro_batches}th of a batch",)
        if num_micro_batches > 1 and _has_batch_norm(experiment)
        else ()
    )


def _check_batch_norm(experiment: Experiment, processes: int, has_norm_option: bool = True) -> None:
    """Batch norm takes its mean over the rows that it is handed: one alone would become zero."""
    num_examples, batch_size, num_micro_batches = (
        len(experiment.data.train),
        experiment.batch_size,
        experiment.accumulate,
    )
    if not _has_batch_norm(experiment):
        return
    if num_micro_batches > 1 and processes > 1:  # its parts would not meet those of the other processes
        raise UsageError(
            f"batch norm over {processes} processes takes a batch whole, not in {num_micro_batches} parts; leave out "
            "--accumulate"
        )
    for n in {len(chunk) for chunk in split_batches(torch.arange(num_examples), batch_size)}:
        if n % -(-n // num_micro_batches) == 1 or n <= num_micro_batches:
            in_parts = f" in {num_micro_batches} parts" if num_micro_batches > 1 else ""
            raise UsageError(
                f"batch norm needs at least 2 rows at a time, but {num_examples} rows in batches of "
                f"{batch_size}{in_parts} leave one alone;"
                f" raise --batch-size{',' if has_norm_option else ' or'} lower "
                f"--accumulate{', or choose another --norm' if has_norm_option else ''}"
            )


def build_experiment(recipe: Recipe, data: Data, arguments: Mapping[str, Any], settings: Settings) -> Experiment:
    """The experiment with its weights drawn from the seed and its budget as set."""
    with init_rng(settings.seed), memory_guard():
        experiment: Experiment = recipe(data, **arguments)
    if settings.epochs is not None or settings.steps is not None:
        experiment = experiment.with_budget(settings.epochs, settings.steps)
    return replace(experiment, accumulate=settings.accumulate or experiment.accumulate)


def train(
    recipe: Recipe | str,
    *,
    data: Data | Path | str | None = None,
    on_event: EventCallback = ignore_events,
    trained_for: str = "",
    **user_options: Any,
) -> Run:
    """Train a recipe and return its run: `run = didact.train(recipes.mlp, data="iris", hidden=(64,))`.

    `data` is a name, a path, or Data already loaded; every other keyword is an option of the recipe or of all
    recipes. A run that
    `serves` another recipe, which learns something first, is nobody's latest.
    """
    if isinstance(data, str | Path):
        user_options, data = {**user_options, "data": str(data)}, None
    if not isinstance(data, Data | None):
        raise UsageError(f"data is a name, a path or Data, got {type(data).__name__}; didact.fit takes tensors")
    group = join_group()
    prepared = prepare(
        recipe,
        user_options,
        data=data,
        on_event=on_event if group.is_main else ignore_events,
        processes=group.world_size,
    )
    return train_prepared(replace(prepared, trained_for=trained_for), group, on_event)


def train_prepared(prepared: PreparedExperiment, group: Group, on_event: EventCallback = ignore_events) -> Run:
    """From what is prepared to its finished run."""
    with deterministic_kernels(prepared.settings.deterministic):
        prepared = load_initial_weights(prepared, group, on_event)
        run = Run(group.broadcast_object(Run.at_new_path(prepared.settings.runs, prepared.recipe.name).folder))
        trainer = _create_run(prepared, run, group, on_event)
        with run.locked() if group.is_main else nullcontext():
            if group.is_main:
                on_event("start", run.metadata | {"run": str(run.folder)})
            return _evaluate_best(trainer, _run_trainer(trainer))


def load_initial_weights(prepared: PreparedExperiment, group: Group, on_event: EventCallback) -> PreparedExperiment:
    """With the weights that the experiment starts from. A run that has a checkpoint holds its own, and never asks
    for them again."""
    experiment = prepared.experiment
    if experiment.initialize_weights is None:
        return prepared
    if group.is_main:
        on_event("load", {"data": "what was learned before"})
    with init_rng(prepared.settings.seed):
        notes = experiment.initialize_weights(
            InitContext(_training_device(prepared, group), prepared.settings, on_event)
        )
    return replace(prepared, experiment=replace(experiment, notes=(*experiment.notes, *notes)))


def _run_trainer(trainer: Trainer) -> TrainingState:
    """Train; where it does not come to its end, the run says so."""
    try:
        return trainer.train()
    except (Interrupted, DivergedError) as why:
        if trainer.run is not None and trainer.group.is_main:
            trainer.run.update_metadata(status="stopped" if isinstance(why, Interrupted) else "diverged")
        raise


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


def _training_device(prepared: PreparedExperiment, group: Group) -> torch.device:
    """Where this process trains."""
    name = prepared.settings.device
    if group.world_size > 1 and name.startswith("cuda:"):
        raise UsageError(
            f"--device {name} would put all {group.world_size} processes on one GPU; say --device cuda, and each takes "
            "its own"
        )
    return resolve_device(name, group.local_rank, prepared.experiment.objective.devices)


def _create_run(prepared: PreparedExperiment, run: Run, group: Group, on_event: EventCallback) -> Trainer:
    """Write down what is about to happen."""
    recipe, experiment, settings = prepared.recipe, prepared.experiment, prepared.settings
    device = _training_device(prepared, group)
    trainer = Trainer(experiment, settings, device=device, run=run, group=group, on_event=on_event)
    metadata = {
        "recipe": recipe.name,
        "arguments": prepared.arguments,
        "settings": asdict(settings),
        "summary": recipe.summary,
        "chapter": recipe.chapter,
        "sources": recipe.sources,
        "abilities": abilities(experiment.objective),
        "command_to_repeat": reproduce_command(prepared),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": "running",
        "data": data_to_json(prepared.data),
        "health": summarize_health(experiment.data),
        "notes": experiment.notes,
        "layers": summarize_layers(trainer.objective, take_examples(trainer.data.train)),
        "propagation": measure_signal_propagation(
            trainer.objective, take_examples(trainer.data.train, num_examples=64), loss_fn=lambda loss: loss
        ),
        "device": describe_device(device),
        "precision": trainer.precision.name,
        "processes": group.world_size,
        "plan": asdict(trainer.plan),
        "monitor": [experiment.objective.monitor, experiment.objective.mode],
        **({"trained_for": prepared.trained_for} if prepared.trained_for else {}),
        **environment(),
    }
    if group.is_main:
        run.initialize(metadata, dict(prepared.data.indices))
    return trainer


def take_examples(split: Split, num_examples: int = 2) -> Batch:
    """A few decoded rows, to see what flows through the network."""
    return split.decode(next(iter(split.batches([torch.arange(min(num_examples, len(split)))]))))


def _evaluate_best(trainer: Trainer, state: TrainingState) -> Run:
    """Judge the best validation state on the test split, which is read here for the first time."""
    run = trainer.run
    assert run is not None
    trainer.group.barrier()
    _check_best_weights(run, state)
    _load_best_weights(trainer.objective, run)
    outputs = evaluate_split(
        trainer.objective,
        trainer.data.test,
        batch_size=trainer.eval_batch_size,
        precision=trainer.precision,
        group=trainer.group,
    )
    test = trainer.objective.compute_metrics(outputs)
    if trainer.group.is_main:
        run.save("test", {name: column.cpu() for name, column in outputs.items()})
        extremes = _best_and_worst(trainer.objective, trainer.data.test, outputs["loss"])
        run.save("examples", extremes)
        if grids := make_gallery(trainer.objective, trainer.data.test):
            run.save("gallery", grids)
        save_training_samples(trainer.objective, run, state.best_step)
        if trainer.data.kind == "table" and trainer.data.num_features <= 2:
            run.save("surface", decision_surface(trainer.objective, trainer.data))
        write_events(run)  # before the run says that it is finished: whoever is killed in between writes them again
        run.update_metadata(
            status="finished",
            stop_reason=state.stop_reason,
            seconds=state.seconds,
            warmup_seconds=state.warmup_seconds,
            steps=state.step,
            best_step=state.best_step,
            validation=state.validation,
            test=test,
            fingerprint=state.fingerprint,
            examples={
                which: trainer.data.locate_examples("test", extremes[which].tolist()) for which in ("worst", "best")
            },
        )
        trainer.on_event("finish", run.metadata | {"run": str(run.folder)})
    trainer.group.barrier()  # whoever asks the run how it went finds it whole
    return run


@torch.no_grad()
def _best_and_worst(objective: Objective, split: Split, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The test examples that surprised the model most and least: their numbers, decoded inputs and what the
    objective exhibits."""
    ranked = loss.argsort(descending=True).cpu()
    index_by_rank = {"worst": ranked[:NUM_EXTREME_EXAMPLES], "best": ranked.flip(0)[:NUM_EXTREME_EXAMPLES]}
    columns = dict(index_by_rank)
    objective.eval()
    for name, index in index_by_rank.items():
        batch = split.decode(next(iter(split.batches([index]))))
        columns |= {
            f"{name}_{column_name}": column.cpu()
            for column_name, column in {"x": batch["x"].float(), **objective.report_examples(batch)}.items()
        }
    return columns


def resume(run: Run, *, on_event: EventCallback = ignore_events) -> Run:
    """Go on with a run that was stopped or killed; it ends as if it had never been."""
    metadata = run.metadata
    if metadata.get("status") == "finished":
        raise UsageError(
            f"{run.folder} is finished; train again, or raise the budget in a new run: "
            f"{metadata.get('command_to_repeat', '')}"
        )
    group = join_group()
    with (
        run.locked() if group.is_main else nullcontext(),
        deterministic_kernels(bool(metadata["settings"].get("deterministic"))),
    ):
        return continue_run(run, group, on_event)


def continue_run(run: Run, group: Group, on_event: EventCallback) -> Run:
    """Stand where the last checkpoint was taken, and train on."""
    metadata = run.metadata
    if group.is_main:
        on_event("load", {"data": metadata["data"]["name"]})
    prepared = rebuild(run, with_data=True)
    never_saved = not run.has("state.safetensors") and not run.metrics  # killed before the first checkpoint was whole
    checkpoint = None if never_saved else run.load_state()
    if never_saved:
        prepared = load_initial_weights(prepared, group, on_event)
    trainer = Trainer(
        prepared.experiment,
        prepared.settings,
        device=_training_device(prepared, group),
        run=run,
        group=group,
        on_event=on_event,
    )
    if checkpoint is not None:
        with _translate_load_errors(run, "state"):
            trainer.restore(checkpoint)
        _check_best_weights(run, trainer.state)
    if group.is_main:
        lost_bytes = run.truncate_log(trainer.state.log_size)
        gap_note = (
            f"metrics.jsonl has lost its last {lost_bytes:,} bytes: the curves have a gap before step "
            f"{trainer.state.step}"
        )
        run.update_metadata(status="running", processes=group.world_size)
        notes = [*metadata.get("notes", ()), *([gap_note] if lost_bytes else [])]
        on_event("start", metadata | {"run": str(run.folder), "resumed": trainer.state.step, "notes": notes})
    return _evaluate_best(trainer, trainer.state if trainer.state.stop_reason else _run_trainer(trainer))


def _check_best_weights(run: Run, state: TrainingState) -> None:
    """The best weights are of the step that the state says, or of a later one, which is met again on the way."""
    if state.best_score is None:
        return
    path = run.folder / "model.safetensors"
    if not run.has("model.safetensors"):
        raise UsageError(f"{path} is missing: the best weights so far are lost; train anew")
    step = run.read_header("model").get("step", "")
    if not step.isdecimal() or int(step) < state.best_step:
        raise UsageError(
            f"{path} holds the weights of step {step or '?'}, but the best so far were of step {state.best_step}; "
            "train anew"
        )


def rebuild(run: Run, *, with_data: bool) -> PreparedExperiment:
    """The experiment of a run from its folder alone; with its data again, where that is asked for."""
    metadata = run.metadata
    recipe, setting_options = look_up("recipe", metadata["recipe"], RECIPES), read_options(Settings)
    try:
        settings_given = {name: value for name, value in metadata["settings"].items() if name in setting_options}
        arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in metadata["arguments"].items()}
        data = data_from_json(metadata["data"])
    except UsageError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{run.folder / 'run.json'} does not describe a run ({error!r}); it is damaged: train anew"
        ) from error
    settings = Settings(**bind_arguments(setting_options, settings_given, owner="the run"))
    if with_data:
        data = reload_data(data, run.load_indices())
    return PreparedExperiment(recipe, arguments, settings, data, build_experiment(recipe, data, arguments, settings))


def load_model(run: Run) -> tuple[Objective, Data]:
    """The trained objective of a run, on the CPU and ready to be used, and what its data were."""
    prepared = rebuild(run, with_data=False)
    objective = prepared.experiment.objective
    if not run.has("model.safetensors") and run.metadata.get("status") != "finished":
        raise UsageError(
            f"{run.folder} has no model yet: it was stopped too early; go on with: didact resume {run.folder}"
        )
    _load_best_weights(objective, run)
    return objective.eval(), prepared.experiment.data


def _load_best_weights(objective: Objective, run: Run) -> None:
    """The weights of the best validation state."""
    weights = run.load("model")
    with _translate_load_errors(run, "model"):
        objective.load_state_dict(weights)
    if not weights_are_finite(objective):
        raise UsageError(
            f"{run.folder / 'model.safetensors'} holds weights that are not finite numbers; it is damaged: train anew"
        )


@contextmanager
def _translate_load_errors(run: Run, name: str) -> Iterator[None]:
    """What a file of the run holds is put in place here; torch says in many ways that it does not fit."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [repr(error)])[-1].strip()
        raise UsageError(
            f"{run.folder / name}.safetensors does not fit recipe {run.metadata['recipe']!r} ({reason}); it is damaged "
            "or of another run"
        ) from error


def evaluate(run: Run, *, device: str = "auto") -> dict[str, Any]:
    """Metrics of a run's best model on its validation and test splits, computed anew."""
    started = time.perf_counter()
    objective, _, outputs = evaluate_splits(run, device)
    scores = {split: objective.compute_metrics(columns) for split, columns in outputs.items()}
    result = {"recipe": run.metadata["recipe"], "arguments": run.metadata["arguments"], "run": str(run.folder)}
    return result | {"seconds": time.perf_counter() - started} | scores


def evaluate_splits(run: Run, device: str = "auto") -> tuple[Objective, Data, dict[str, Batch]]:
    """A run's best model, its data, and what the model says of each row of the validation and test splits."""
    objective = load_model(run)[0]
    torch_device = resolve_device(device, supported=objective.devices)
    objective = objective.to(torch_device)
    prepared = rebuild(run, with_data=True)
    data = to_device(prepared.experiment.data, torch_device)
    precision = Precision(prepared.settings.precision, torch_device, objective)
    splits = ("validation", "test")
    return (
        objective,
        data,
        {
            split: evaluate_split(
                objective, data.split(split), batch_size=prepared.experiment.batch_size, precision=precision
            )
            for split in splits
        },
    )


def reproduce_command(prepared: PreparedExperiment) -> str:
    """The exact command that trains this again; data that were loaded in Python are named by where they came from."""
    command = ["didact", "train", prepared.recipe.name]
    source = prepared.data.source
    source_options = {} if prepared.settings.data else data_options(source)
    if source_options.get("data") == prepared.recipe.data:
        source_options["data"] = None
    for name, option in known_options(prepared.recipe).items():
        value = (
            prepared.arguments[name]
            if name in prepared.arguments
            else source_options.get(name, getattr(prepared.settings, name))
        )
        if value != option.default and name != "runs":  # where it lay does not matter
            command += (
                [f"--{'no-' if value is False else ''}{option.flag}"]
                if option.kind is bool
                else [f"--{option.flag}", format_value(value)]
            )
    return shlex.join(command) + ("  # with data handed over in Python" if "given" in source else "")
