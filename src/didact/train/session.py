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

from didact.data.core import Batch, Data, Split
from didact.data.health import summary
from didact.data.load import load, reload
from didact.data.spec import from_spec, spec
from didact.data.stream import placed
from didact.errors import UsageError, pick
from didact.layers.propagation import propagation
from didact.objectives.abilities import abilities
from didact.objectives.core import Objective
from didact.options import Option, bind, options, unused, written
from didact.registry import RECIPES, Recipe
from didact.run import Run, surroundings
from didact.train.diagnose import weights_are_finite
from didact.train.distributed import Group, join
from didact.train.evaluation import gallery, glimpse, judge
from didact.train.experiment import Experiment, Settings, Start
from didact.train.interrupt import DivergedError, Interrupted
from didact.train.layers import layer_table
from didact.train.loop import State, Tell, Training, cut, silent
from didact.train.machine import describe, deterministic_kernels, pick_device, within_memory
from didact.train.named import asks_no_class, with_data_of, with_runs, words_of
from didact.train.precision import Precision
from didact.train.randomness import initialisation
from didact.train.surface import surface
from didact.train.tensorboard import write_events

EXAMPLES = 12  # best and worst predictions kept for the report


@dataclass(frozen=True)
class Prepared:
    """A recipe with its data loaded and its network built, before the first step."""

    recipe: Recipe
    arguments: dict[str, Any]
    settings: Settings
    data: Data               # as loaded; the recipe may have balanced what it trains on
    experiment: Experiment
    serves: str = ""         # the recipe that this one is trained for, before its own; nobody else asked for it


def known_options(recipe: Recipe) -> dict[str, Option]:
    """Everything that can be set: the recipe's own options, then those of every recipe."""
    own = recipe.options
    return own | {name: o for name, o in options(Settings).items() if name not in own}


def prepare(
    recipe: Recipe | str, given: Mapping[str, Any], *,
    data: Data | None = None, labelled: bool = False, tell: Tell = silent, processes: int = 1,
) -> Prepared:
    """Check every argument, load the data, build the experiment. Nothing is written.

    `labelled`: of images, only those that have a class are read, though this training may not ask for it.
    """
    recipe = recipe if isinstance(recipe, Recipe) else pick("recipe", recipe, RECIPES)
    values = bind(known_options(recipe), given, owner=f"recipe {recipe.name!r}")
    if given.get("epochs") is not None and given.get("steps") is not None:
        raise UsageError(f"the budget is either --epochs or --steps, not both, got {given['epochs']} and {given['steps']}")
    arguments = {name: values[name] for name in recipe.options}
    settings = Settings(**{f.name: values[f.name] for f in fields(Settings) if f.name in values and f.name not in arguments})
    pick_device(settings.device)
    arguments = with_runs(recipe, arguments, settings.runs)
    if data is None:
        settings = with_data_of(recipe, arguments, settings, given)
        name = settings.data or recipe.data
        tell("load", {"data": name})
        data = load(
            name, target=settings.target, task=settings.task, text=settings.text, size=settings.size, tokens=settings.tokens,
            seed=settings.split_seed, accepts=recipe.accepts, unlabelled=not labelled and asks_no_class(recipe, arguments),
            progress=lambda file, done, total: tell("download", {"file": file, "done": done, "total": total}),
        )
    experiment = build(recipe, data, arguments, settings)
    notes = (*unused(recipe.options, given, arguments), *averaged(experiment), *parted(experiment))
    experiment = replace(experiment, notes=(*experiment.notes, *notes))
    arguments |= experiment.settled
    refuse_lone_rows(experiment, processes, "norm" in recipe.options)
    return Prepared(recipe, arguments, settings, data, experiment)


def normalises_batches(experiment: Experiment) -> bool:
    return any(isinstance(module, _BatchNorm) for module in experiment.objective.modules())


def averaged(experiment: Experiment) -> tuple[str, ...]:
    """Of which class the metrics of two classes are."""
    labels = experiment.data.labels
    if getattr(getattr(experiment.objective, "likelihood", None), "task", "") != "binary" or len(labels) != 2:
        return ()
    return (f"precision, recall, f1: of the positive class {labels[1]!r}; the macro ones are means over both",)


def parted(experiment: Experiment) -> tuple[str, ...]:
    """What is not as with whole batches, where they are computed in parts."""
    pieces = experiment.accumulate
    return (f"batch norm takes its means over each {pieces}th of a batch",) if pieces > 1 and normalises_batches(experiment) else ()


def refuse_lone_rows(experiment: Experiment, processes: int, choice: bool = True) -> None:
    """Batch norm takes its mean over the rows that it is handed: one alone would become zero."""
    rows, batch, pieces = len(experiment.data.train), experiment.batch, experiment.accumulate
    if not normalises_batches(experiment):
        return
    if pieces > 1 and processes > 1:  # its parts would not meet those of the other processes
        raise UsageError(f"batch norm over {processes} processes takes a batch whole, not in {pieces} parts; leave out --accumulate")
    for n in {len(chunk) for chunk in cut(torch.arange(rows), batch)}:
        if n % -(-n // pieces) == 1 or n <= pieces:
            parts = f" in {pieces} parts" if pieces > 1 else ""
            raise UsageError(
                f"batch norm needs at least 2 rows at a time, but {rows} rows in batches of {batch}{parts} leave one alone;"
                f" raise --batch{',' if choice else ' or'} lower --accumulate{', or choose another --norm' if choice else ''}"
            )


def build(recipe: Recipe, data: Data, arguments: Mapping[str, Any], settings: Settings) -> Experiment:
    """The experiment with its weights drawn from the seed and its budget as set."""
    with initialisation(settings.seed), within_memory():
        experiment: Experiment = recipe(data, **arguments)
    if settings.epochs is not None or settings.steps is not None:
        experiment = experiment.within(settings.epochs, settings.steps)
    return replace(experiment, accumulate=settings.accumulate or experiment.accumulate)


def train(recipe: Recipe | str, *, data: Data | Path | str | None = None, tell: Tell = silent, serves: str = "", **given: Any) -> Run:
    """Train a recipe and return its run: `run = didact.train(recipes.mlp, data="iris", hidden=(64,))`.

    `data` is a name, a path, or Data already loaded; every other keyword is an option of the recipe or of all recipes. A run that
    `serves` another recipe, which learns something first, is nobody's latest.
    """
    if isinstance(data, str | Path):
        given, data = {**given, "data": str(data)}, None
    if not isinstance(data, Data | None):
        raise UsageError(f"data is a name, a path or Data, got {type(data).__name__}; didact.fit takes tensors")
    group = join()
    prepared = prepare(recipe, given, data=data, tell=tell if group.leads else silent, processes=group.size)
    return train_prepared(replace(prepared, serves=serves), group, tell)


def train_prepared(prepared: Prepared, group: Group, tell: Tell = silent) -> Run:
    """From what is prepared to its finished run."""
    with deterministic_kernels(prepared.settings.deterministic):
        prepared = begun(prepared, group, tell)
        run = Run(group.agree(Run.plan(prepared.settings.runs, prepared.recipe.name).folder))
        training = start(prepared, run, group, tell)
        with run.held() if group.leads else nullcontext():
            if group.leads:
                tell("start", run.facts | {"run": str(run.folder)})
            return finish(training, go(training))


def begun(prepared: Prepared, group: Group, tell: Tell) -> Prepared:
    """With the weights that the experiment starts from. A run that has a checkpoint holds its own, and never asks for them again."""
    experiment = prepared.experiment
    if experiment.begin is None:
        return prepared
    if group.leads:
        tell("load", {"data": "what was learned before"})
    with initialisation(prepared.settings.seed):
        told = experiment.begin(Start(device_of(prepared, group), prepared.settings, tell))
    return replace(prepared, experiment=replace(experiment, notes=(*experiment.notes, *told)))


def go(training: Training) -> State:
    """Train; where it does not come to its end, the run says so."""
    try:
        return training.train()
    except (Interrupted, DivergedError) as why:
        if training.run is not None and training.group.leads:
            training.run.note(status="stopped" if isinstance(why, Interrupted) else "diverged")
        raise


def describe_recipe(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe is and what it builds for its data, without training it."""
    prepared = prepare(recipe, given)
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
            {"flag": o.flag, "type": o.describe, "default": "" if o.default is None else o.shown, "help": o.help}
            for o in recipe.options.values()
        ],
        "data": experiment.data.name,
        "health": summary(experiment.data),
        "notes": experiment.notes,
        "layers": layer_table(experiment.objective, example(experiment.data.train)),
    }


def device_of(prepared: Prepared, group: Group) -> torch.device:
    """Where this process trains."""
    name = prepared.settings.device
    if group.size > 1 and name.startswith("cuda:"):
        raise UsageError(f"--device {name} would put all {group.size} processes on one GPU; say --device cuda, and each takes its own")
    return pick_device(name, group.local, prepared.experiment.objective.devices)


def start(prepared: Prepared, run: Run, group: Group, tell: Tell) -> Training:
    """Write down what is about to happen."""
    recipe, experiment, settings = prepared.recipe, prepared.experiment, prepared.settings
    device = device_of(prepared, group)
    training = Training(experiment, settings, device=device, run=run, group=group, tell=tell)
    facts = {
        "recipe": recipe.name,
        "arguments": prepared.arguments,
        "settings": asdict(settings),
        "summary": recipe.summary,
        "chapter": recipe.chapter,
        "sources": recipe.sources,
        "abilities": abilities(experiment.objective),
        "repeat": repeat(prepared),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": "running",
        "data": spec(prepared.data),
        "health": summary(experiment.data),
        "notes": experiment.notes,
        "layers": layer_table(training.objective, example(training.data.train)),
        "propagation": propagation(training.objective, example(training.data.train, rows=64), loss_fn=lambda loss: loss),
        "device": describe(device),
        "precision": training.precision.name,
        "processes": group.size,
        "plan": asdict(training.plan),
        "watch": [experiment.objective.watch, experiment.objective.better],
        **({"serves": prepared.serves} if prepared.serves else {}),
        **surroundings(),
    }
    if group.leads:
        run.begin(facts, dict(prepared.data.indices))
    return training


def example(split: Split, rows: int = 2) -> Batch:
    """A few decoded rows, to see what flows through the network."""
    return split.decode(next(iter(split.batches([torch.arange(min(rows, len(split)))]))))


def finish(training: Training, state: State) -> Run:
    """Judge the best validation state on the test split, which is read here for the first time."""
    run = training.run
    assert run is not None
    training.group.wait()
    require_best(run, state)
    load_best(training.objective, run)
    rows = judge(training.objective, training.data.test, batch=training.judging_batch, precision=training.precision, group=training.group)
    test = training.objective.score(rows)
    if training.group.leads:
        run.save("test", {name: column.cpu() for name, column in rows.items()})
        kept = extremes(training.objective, training.data.test, rows["loss"])
        run.save("examples", kept)
        if pictures := gallery(training.objective, training.data.test):
            run.save("gallery", pictures)
        glimpse(training.objective, run, state.best_step)
        if training.data.kind == "table" and training.data.features <= 2:
            run.save("surface", surface(training.objective, training.data))
        write_events(run)  # before the run says that it is finished: whoever is killed in between writes them again
        run.note(
            status="finished", stopped=state.stopped, seconds=state.seconds, warming=state.warming, steps=state.step,
            best_step=state.best_step, validation=state.validation, test=test, fingerprint=state.fingerprint,
            examples={which: training.data.called("test", kept[which].tolist()) for which in ("worst", "best")},
        )
        training.tell("finish", run.facts | {"run": str(run.folder)})
    training.group.wait()  # whoever asks the run how it went finds it whole
    return run


@torch.no_grad()
def extremes(objective: Objective, split: Split, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The test examples that surprised the model most and least: their numbers, decoded inputs and what the objective exhibits."""
    ranked = loss.argsort(descending=True).cpu()
    chosen = {"worst": ranked[:EXAMPLES], "best": ranked.flip(0)[:EXAMPLES]}
    found = dict(chosen)
    objective.eval()
    for name, index in chosen.items():
        batch = split.decode(next(iter(split.batches([index]))))
        found |= {f"{name}_{what}": column.cpu() for what, column in {"x": batch["x"].float(), **objective.exhibit(batch)}.items()}
    return found


def resume(run: Run, *, tell: Tell = silent) -> Run:
    """Go on with a run that was stopped or killed; it ends as if it had never been."""
    facts = run.facts
    if facts.get("status") == "finished":
        raise UsageError(f"{run.folder} is finished; train again, or raise the budget in a new run: {facts.get('repeat', '')}")
    group = join()
    with run.held() if group.leads else nullcontext(), deterministic_kernels(bool(facts["settings"].get("deterministic"))):
        return go_on(run, group, tell)


def go_on(run: Run, group: Group, tell: Tell) -> Run:
    """Stand where the last checkpoint was taken, and train on."""
    facts = run.facts
    if group.leads:
        tell("load", {"data": facts["data"]["name"]})
    prepared = rebuild(run, with_data=True)
    untouched = not run.has("state.safetensors") and not run.metrics  # killed before the first checkpoint was whole
    checkpoint = None if untouched else run.load_state()
    if untouched:
        prepared = begun(prepared, group, tell)
    training = Training(
        prepared.experiment, prepared.settings, device=device_of(prepared, group), run=run, group=group, tell=tell
    )
    if checkpoint is not None:
        with fitting(run, "state"):
            training.restore(checkpoint)
        require_best(run, training.state)
    if group.leads:
        lost = run.cut_log(training.state.log_size)
        gap = f"metrics.jsonl has lost its last {lost:,} bytes: the curves have a gap before step {training.state.step}"
        run.note(status="running", processes=group.size)
        notes = [*facts.get("notes", ()), *([gap] if lost else [])]
        tell("start", facts | {"run": str(run.folder), "resumed": training.state.step, "notes": notes})
    return finish(training, training.state if training.state.stopped else go(training))


def require_best(run: Run, state: State) -> None:
    """The best weights are of the step that the state says, or of a later one, which is met again on the way."""
    if state.best is None:
        return
    path = run.folder / "model.safetensors"
    if not run.has("model.safetensors"):
        raise UsageError(f"{path} is missing: the best weights so far are lost; train anew")
    step = run.header("model").get("step", "")
    if not step.isdecimal() or int(step) < state.best_step:
        raise UsageError(f"{path} holds the weights of step {step or '?'}, but the best so far were of step {state.best_step}; train anew")


def rebuild(run: Run, *, with_data: bool) -> Prepared:
    """The experiment of a run from its folder alone; with its data again, where that is asked for."""
    facts = run.facts
    recipe, known = pick("recipe", facts["recipe"], RECIPES), options(Settings)
    try:
        given = {name: value for name, value in facts["settings"].items() if name in known}
        arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in facts["arguments"].items()}
        data = from_spec(facts["data"])
    except UsageError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"{run.folder / 'run.json'} does not describe a run ({error!r}); it is damaged: train anew") from error
    settings = Settings(**bind(known, given, owner="the run"))
    if with_data:
        data = reload(data, run.load_indices())
    return Prepared(recipe, arguments, settings, data, build(recipe, data, arguments, settings))


def restored(run: Run) -> tuple[Objective, Data]:
    """The trained objective of a run, on the CPU and ready to be used, and what its data were."""
    prepared = rebuild(run, with_data=False)
    objective = prepared.experiment.objective
    if not run.has("model.safetensors") and run.facts.get("status") != "finished":
        raise UsageError(f"{run.folder} has no model yet: it was stopped too early; go on with: didact resume {run.folder}")
    load_best(objective, run)
    return objective.eval(), prepared.experiment.data


def load_best(objective: Objective, run: Run) -> None:
    """The weights of the best validation state."""
    weights = run.load("model")
    with fitting(run, "model"):
        objective.load_state_dict(weights)
    if not weights_are_finite(objective):
        raise UsageError(f"{run.folder / 'model.safetensors'} holds weights that are not finite numbers; it is damaged: train anew")


@contextmanager
def fitting(run: Run, name: str) -> Iterator[None]:
    """What a file of the run holds is put in place here; torch says in many ways that it does not fit."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        why = (str(error).splitlines() or [repr(error)])[-1].strip()
        raise UsageError(
            f"{run.folder / name}.safetensors does not fit recipe {run.facts['recipe']!r} ({why}); it is damaged or of another run"
        ) from error


def evaluate(run: Run, *, device: str = "auto") -> dict[str, Any]:
    """Metrics of a run's best model on its validation and test splits, computed anew."""
    started = time.perf_counter()
    objective, _, rows = judged(run, device)
    scores = {part: objective.score(found) for part, found in rows.items()}
    result = {"recipe": run.facts["recipe"], "arguments": run.facts["arguments"], "run": str(run.folder)}
    return result | {"seconds": time.perf_counter() - started} | scores


def judged(run: Run, device: str = "auto") -> tuple[Objective, Data, dict[str, Batch]]:
    """A run's best model, its data, and what the model says of each row of the validation and test splits."""
    objective = restored(run)[0]
    place = pick_device(device, known=objective.devices)
    objective = objective.to(place)
    prepared = rebuild(run, with_data=True)
    data = placed(prepared.experiment.data, place)
    precision = Precision(prepared.settings.precision, place, objective)
    parts = ("validation", "test")
    return objective, data, {p: judge(objective, data.split(p), batch=prepared.experiment.batch, precision=precision) for p in parts}


def repeat(prepared: Prepared) -> str:
    """The exact command that trains this again; data that were loaded in Python are named by where they came from."""
    words = ["didact", "train", prepared.recipe.name]
    source = prepared.data.source
    chosen = {} if prepared.settings.data else words_of(source)
    if chosen.get("data") == prepared.recipe.data:
        chosen["data"] = None
    for name, option in known_options(prepared.recipe).items():
        value = prepared.arguments[name] if name in prepared.arguments else chosen.get(name, getattr(prepared.settings, name))
        if value != option.default and name != "runs":  # where it lay does not matter
            words += [f"--{'no-' if value is False else ''}{option.flag}"] if option.kind is bool else [f"--{option.flag}", written(value)]
    return shlex.join(words) + ("  # with data handed over in Python" if "given" in source else "")
