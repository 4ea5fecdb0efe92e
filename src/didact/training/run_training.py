"""Train a prepared experiment, evaluate its best state on the test split, and write everything into a run."""

import shlex
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from didact.analysis.signal_propagation import measure_signal_propagation
from didact.baselines.core import fit_baselines, has_baselines
from didact.data.checks import summarize_health
from didact.data.core import Data, Split
from didact.data.serialize import data_to_json
from didact.errors import UsageError, shorten
from didact.objectives.abilities import abilities
from didact.objectives.base import Objective
from didact.options import format_value
from didact.registry import Recipe
from didact.run import Run, environment
from didact.training.checkpoint import TrainingState
from didact.training.device import describe_device, deterministic_kernels
from didact.training.distributed.process_group import Group, join_group
from didact.training.evaluation import evaluate_split, make_gallery, save_training_samples
from didact.training.experiment import EventCallback, Experiment, InitContext, Settings, ignore_events
from didact.training.interrupts import DivergedError, Interrupted
from didact.training.loop import Trainer
from didact.training.prepare import PreparedExperiment, known_options, prepare, take_examples, training_device
from didact.training.recording.decision_surface import decision_surface
from didact.training.recording.model_summary import summarize_layers
from didact.training.recording.tensorboard import write_events
from didact.training.restore import check_best_weights, load_best_weights
from didact.training.seeding import init_rng
from didact.training.source_runs import data_options
from didact.training.time_budget import plan_within_time

PREDICTS_TARGET = {"classify", "regress", "forecast"}   # abilities whose predictions baselines can be compared with
NUM_EXTREME_EXAMPLES = 12  # best and worst predictions saved for the report
_MAX_SAVED_CHARACTERS = 400  # of a text among them


def train(
    recipe: Recipe | str,
    *,
    data: Data | Path | str | None = None,
    on_event: EventCallback = ignore_events,
    trained_for: str = "",
    **user_options: Any,
) -> Run:
    """Train a recipe without writing its report; see `didact.train`.

    A run that is `trained_for` another recipe, which needs it as its source, is never `latest`.
    """
    if isinstance(data, str | Path):
        user_options, data = {**user_options, "data": str(data)}, None
    if not isinstance(data, Data | None):
        raise UsageError(f"data is a name, a path or Data, got {type(data).__name__}; didact.fit takes tensors")
    started = time.perf_counter()
    group = join_group()
    prepared = prepare(
        recipe,
        user_options,
        data=data,
        on_event=on_event if group.is_main else ignore_events,
        processes=group.world_size,
    )
    return train_prepared(replace(prepared, trained_for=trained_for), group, on_event, started=started)


def train_prepared(
    prepared: PreparedExperiment,
    group: Group,
    on_event: EventCallback = ignore_events,
    *,
    started: float | None = None,
) -> Run:
    """Train a prepared experiment; returns the finished run. A time budget counts from `started`, or from now."""
    started = time.perf_counter() if started is None else started
    with deterministic_kernels(prepared.settings.deterministic):
        prepared = plan_within_time(prepared, group, started, on_event)
        prepared = load_initial_weights(prepared, group, on_event)
        run = Run(group.broadcast_object(Run.at_new_path(prepared.settings.runs, prepared.recipe.name).folder))
        trainer = _create_run(prepared, run, group, on_event)
        with run.lock() if group.is_main else nullcontext():
            if group.is_main:
                on_event("start", run.metadata | {"run": str(run.folder)})
            return evaluate_best(trainer, run_trainer(trainer), prepared)


def load_initial_weights(prepared: PreparedExperiment, group: Group, on_event: EventCallback) -> PreparedExperiment:
    """The experiment with its pretrained weights loaded. Resumed runs have their own and skip this."""
    experiment = prepared.experiment
    if experiment.initialize_weights is None:
        return prepared
    if group.is_main:
        on_event("load", {"data": "pretrained weights"})
    with init_rng(prepared.settings.seed):
        notes = experiment.initialize_weights(
            InitContext(training_device(prepared, group), prepared.settings, on_event)
        )
    return replace(prepared, experiment=replace(experiment, notes=(*experiment.notes, *notes)))


def run_trainer(trainer: Trainer) -> TrainingState:
    """Train; if it stops early or diverges, record that in the run."""
    try:
        return trainer.train()
    except (Interrupted, DivergedError) as why:
        if trainer.run is not None and trainer.group.is_main:
            trainer.run.update_metadata(status="stopped" if isinstance(why, Interrupted) else "diverged")
        raise


def _create_run(prepared: PreparedExperiment, run: Run, group: Group, on_event: EventCallback) -> Trainer:
    """Create the run's folder with everything that is known before training."""
    recipe, experiment = prepared.recipe, prepared.experiment
    device = training_device(prepared, group)
    trainer = Trainer(experiment, prepared.settings, device=device, run=run, group=group, on_event=on_event)
    metadata = {
        **describe_start(prepared, trainer),
        "arguments": prepared.arguments,
        "summary": recipe.summary,
        "chapter": recipe.chapter,
        "sources": recipe.sources,
        "abilities": abilities(experiment.objective),
        "command_to_repeat": reproduce_command(prepared),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": "running",
        "notes": experiment.notes,
        "propagation": measure_signal_propagation(
            trainer.objective, take_examples(trainer.data.train, num_examples=64), loss_fn=lambda loss: loss
        ),
        "processes": group.world_size,
        "monitor": [experiment.objective.monitor, experiment.objective.mode],
        **({"trained_for": prepared.trained_for} if prepared.trained_for else {}),
        **environment(),
    }
    if group.is_main:
        run.initialize(metadata, dict(prepared.data.indices))
    return trainer


def describe_start(prepared: PreparedExperiment, trainer: Trainer) -> dict[str, Any]:
    """What is trained, on which data and device, and for how long: of a new run, and of one that is resumed."""
    return {
        "recipe": prepared.recipe.name,
        "settings": asdict(prepared.settings),
        "data": data_to_json(prepared.data),
        "health": summarize_health(prepared.experiment.data),
        "layers": summarize_layers(trainer.objective, take_examples(trainer.data.train)),
        "device": describe_device(trainer.precision.device),
        "precision": trainer.precision.name,
        "plan": asdict(trainer.plan),
    }


def evaluate_best(trainer: Trainer, state: TrainingState, prepared: PreparedExperiment) -> Run:
    """Evaluate the best validation state on the test split, which is used here for the first time."""
    run = trainer.run
    assert run is not None
    trainer.group.barrier()
    check_best_weights(run, state)
    load_best_weights(trainer.objective, run)
    outputs = evaluate_split(
        trainer.objective,
        trainer.data.test,
        batch_size=trainer.eval_batch_size,
        precision=trainer.precision,
        group=trainer.group,
        on_progress=partial(trainer.report_evaluation, "test"),
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
        if texts := trainer.data.read_texts("test"):
            run.update_metadata(
                example_texts={
                    which: [shorten(texts[row], _MAX_SAVED_CHARACTERS) for row in extremes[which].tolist()]
                    for which in ("worst", "best")
                }
            )
        write_events(run)  # before the status becomes finished: a run killed in between writes them again
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
            baselines=_fit_baselines(prepared.experiment, prepared.settings, trainer.on_event),
            examples={
                which: trainer.data.locate_examples("test", extremes[which].tolist()) for which in ("worst", "best")
            },
        )
        trainer.on_event("finish", run.metadata | {"run": str(run.folder)})
    trainer.group.barrier()  # every process returns a complete run
    return run


def _fit_baselines(experiment: Experiment, settings: Settings, on_event: EventCallback) -> list[dict[str, Any]]:
    """What simple models reach on the same test rows, from the rows that the run was trained on."""
    predicts_target = PREDICTS_TARGET & set(abilities(experiment.objective))
    if not (settings.baselines and predicts_target and has_baselines(experiment.data)):
        return []
    on_event("baselines", {"data": experiment.data.name})
    return [asdict(baseline) for baseline in fit_baselines(experiment.data)]


@torch.no_grad()
def _best_and_worst(objective: Objective, split: Split, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The test examples with the highest and lowest loss: indices, decoded inputs, and what the report shows of them.
    """
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


def reproduce_command(prepared: PreparedExperiment) -> str:
    """The command that repeats this training; data given in Python are named by their source."""
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
        if value != option.default and name != "runs":  # the folder does not matter
            command += (
                [f"--{'no-' if value is False else ''}{option.flag}"]
                if option.kind is bool
                else [f"--{option.flag}", format_value(value)]
            )
    return shlex.join(command) + ("  # with data given in Python" if "given" in source else "")
