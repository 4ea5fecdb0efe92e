"""Time budget: how many steps fit into minutes, measured before the first step.

A few rounds and a part of an evaluation are timed on a copy of the experiment, which is then thrown away: the training
itself starts from untouched weights and random generators. What is decided, steps and steps between evaluations, are
ordinary settings of the run. It is resumed with them, and repeated by `--steps … --evaluate-every …`.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from didact.data.core import Batch
from didact.errors import UsageError, format_count
from didact.objectives.abilities import abilities
from didact.samplers.latent import GRID_SIZE, seeded_generator
from didact.training.device import synchronize
from didact.training.distributed.process_group import Group
from didact.training.evaluation import evaluate_split
from didact.training.experiment import EventCallback, ignore_events
from didact.training.loop import Trainer
from didact.training.plan import TrainingPlan
from didact.training.prepare import PreparedExperiment, build_experiment, training_device
from didact.training.step import GRAPH_WARMUP_ROUNDS

DEFAULT_LIMIT_S = 150.0          # one's own files: a budget that the recipe chose is cut where it would take longer
_EARLY_STOPPING_FACTOR = 4       # of that limit: early stopping ends a training long before its budget
MAX_EVALUATIONS = 10
_EVALUATION_SHARE = 0.25         # of the time, for evaluations and samples, at most
_MARGIN = 0.06                   # of the time, for logs and checkpoints, and for slower steps than those timed
_TIMED_SHARE = 0.05              # of the time, for the rounds that are timed
_MAX_TIMED_S = 3.0
_MIN_TIMED_ROUNDS = 3
_MAX_TIMED_ROUNDS = 100


@dataclass(frozen=True)
class Timing:
    """Measured seconds of a round, an evaluation of the validation and of the test split, and a grid of samples."""

    round: float
    evaluation: float
    test: float
    samples: float = 0.0

    def estimate_seconds(self, num_rounds: int, num_evaluations: int) -> float:
        """Rounds, evaluations, samples at the 1st, 2nd, 4th, … evaluation, and the test split with the last samples."""
        evaluations = num_evaluations * self.evaluation + num_evaluations.bit_length() * self.samples
        return num_rounds * self.round + evaluations + self.test + self.samples


def plan_within_time(
    prepared: PreparedExperiment, group: Group, started: float, on_event: EventCallback = ignore_events
) -> PreparedExperiment:
    """The experiment with as many steps as fit into --budget, counted from `started` (of `time.perf_counter`).

    Without --budget, epochs that a recipe chose for one's own files are cut where they would take minutes.
    """
    settings, experiment = prepared.settings, prepared.experiment
    is_cut = settings.budget is None
    is_set_by_user = settings.steps is not None or settings.epochs is not None
    if is_cut and (is_set_by_user or not experiment.has_chosen_budget or "path" not in prepared.data.source):
        return prepared
    if group.is_main:
        on_event("time", {})
    plan = TrainingPlan.from_experiment(experiment, group.world_size)
    default_limit = DEFAULT_LIMIT_S * (_EARLY_STOPPING_FACTOR if experiment.patience is not None else 1)
    limit = default_limit if settings.budget is None else settings.budget - (time.perf_counter() - started)
    timing = _time_experiment(prepared, group, limit, enough_rounds=plan.total_rounds if is_cut else 0)
    own_seconds = timing.estimate_seconds(plan.total_rounds, plan.evaluations_after(0))
    if is_cut and group.broadcast_object(own_seconds <= limit):      # each process has measured other times
        return prepared
    if settings.budget is not None:
        limit = settings.budget - (time.perf_counter() - started)
    num_rounds, num_evaluations = group.broadcast_object(_fit_rounds(timing, limit, settings.evaluate_every))
    if num_rounds < 1:
        if not is_cut:
            raise UsageError(_explain_too_short(float(settings.budget or 0.0), timing, limit))
        num_rounds = num_evaluations = 1
    evaluate_every = settings.evaluate_every or math.ceil(num_rounds / num_evaluations)
    weights_text = ", loading or training the initial weights" if experiment.initialize_weights else ""
    budget_note = f"--budget {format_seconds(float(settings.budget or 0))}"
    note = _describe_cut(plan, own_seconds, default_limit) if is_cut else budget_note
    note += f": {_describe_fit(plan, num_rounds, timing, num_evaluations)}"
    note += (
        f"; --epochs {math.ceil(plan.total_rounds / plan.rounds_per_epoch)} trains them all, --budget 10m for longer"
        if is_cut
        else f"; importing PyTorch{weights_text} and writing the report are left out"
    )
    experiment = replace(experiment.with_budget(None, num_rounds), evaluate_every=evaluate_every)
    own_steps = {"steps": num_rounds} if "steps" in prepared.arguments else {}      # an option of the recipe
    return replace(
        prepared,
        arguments=prepared.arguments | own_steps,
        settings=replace(settings, steps=num_rounds, evaluate_every=evaluate_every, budget=None),
        experiment=replace(experiment, notes=(*experiment.notes, note)),
    )


def _fit_rounds(timing: Timing, limit: float, evaluate_every: int | None) -> tuple[int, int]:
    """How many rounds, and evaluations among them, end within the limit."""
    limit *= 1 - _MARGIN
    if evaluate_every is not None:
        def ends_in_time(num_rounds: int) -> bool:
            return timing.estimate_seconds(num_rounds, num_rounds // evaluate_every) <= limit

        low, high = 0, max(1, math.ceil(limit / timing.round))     # the most rounds that end in time, by bisection
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if ends_in_time(middle) else (low, middle - 1)
        return low, max(1, low // evaluate_every)
    num_evaluations = MAX_EVALUATIONS
    while num_evaluations > 1 and timing.estimate_seconds(0, num_evaluations) > _EVALUATION_SHARE * limit:
        num_evaluations -= 1
    num_rounds = int((limit - timing.estimate_seconds(0, num_evaluations)) / timing.round)
    return num_rounds, max(1, min(num_evaluations, num_rounds))


def _describe_fit(plan: TrainingPlan, num_rounds: int, timing: Timing, num_evaluations: int) -> str:
    num_epochs = num_rounds / plan.rounds_per_epoch
    epochs_text = f"{num_epochs:.2g}" if num_epochs < 10 else f"{num_epochs:,.0f}"
    steps_text = format_count(num_rounds, "step")
    return (
        f"{steps_text} ({epochs_text} epochs) of {format_seconds(timing.round)} and "
        f"{format_count(num_evaluations, 'evaluation')} of {format_seconds(timing.evaluation)} fit"
    )


def _describe_cut(plan: TrainingPlan, own_seconds: float, limit: float) -> str:
    num_epochs = plan.total_rounds / plan.rounds_per_epoch
    return (
        f"{num_epochs:.3g} epochs would take about {format_seconds(own_seconds)} on this machine, and no budget is "
        f"given: in {format_seconds(limit)}"
    )


def _explain_too_short(budget: float, timing: Timing, limit: float) -> str:
    needed = (budget - limit) + timing.estimate_seconds(1, 1) / (1 - _MARGIN)
    spent = f", and {format_seconds(budget - limit)} are spent on the data and on timing" if budget > limit else ""
    return (
        f"--budget {format_seconds(budget)} is too short: one step takes {format_seconds(timing.round)}, an evaluation "
        f"{format_seconds(timing.evaluation)}{spent}; give at least {format_seconds(math.ceil(1.1 * needed))}"
    )


def format_seconds(seconds: float) -> str:
    """A time as --budget takes it where it is whole: 12ms, 90s, 5m, 1h30m."""
    if seconds < 0.1:
        return f"{1000 * seconds:.2g}ms"
    if seconds < 100:
        return f"{seconds:.2g}s" if seconds < 10 else f"{seconds:.0f}s"
    hours, minutes = divmod(round(seconds / 60, 1), 60)
    return (f"{hours:.0f}h" if hours else "") + (f"{minutes:.3g}m" if minutes else "")


def _time_experiment(prepared: PreparedExperiment, group: Group, limit: float, *, enough_rounds: int) -> Timing:
    """Time a copy of the experiment: rounds after the first ones, and an evaluation of a part of the validation split.

    Where already the first rounds show that `enough_rounds` end within the limit, it stops there.
    """
    settings = replace(prepared.settings, compile=False, budget=None)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        experiment = build_experiment(prepared.recipe, prepared.data, prepared.arguments, settings)
        device = training_device(prepared, group)
        trainer = Trainer(experiment, settings, device=device, group=group)
        trainer.objective.train()
        trainer.streams.reset()
        timing = _time_evaluation(trainer, limit)
        seconds_per_round = _time_rounds(trainer, limit, enough_rounds, timing)
        return replace(timing, round=seconds_per_round)


def _time_rounds(trainer: Trainer, limit: float, enough_rounds: int, timing: Timing) -> float:
    """Mean seconds of a round, after those in which kernels are chosen and graphs captured."""
    num_warmup_rounds = GRAPH_WARMUP_ROUNDS + 1 if trainer.precision.device.type == "cuda" else 2
    timed_seconds = min(_MAX_TIMED_S, _TIMED_SHARE * limit)
    evaluations = timing.estimate_seconds(0, MAX_EVALUATIONS)
    num_rounds, start = 0, time.perf_counter()
    for number, (stored, batch_sizes) in enumerate(_iterate_rounds(trainer), 1):
        trainer.apply_schedule()
        trainer.train_step(stored, batch_sizes)
        if trainer.ema is not None:
            trainer.ema.update()
        trainer.state.step += 1
        synchronize(trainer.precision.device)
        now = time.perf_counter()
        num_rounds, seconds = num_rounds + 1, now - start
        if number <= num_warmup_rounds:
            is_fast = enough_rounds > 0 and evaluations + enough_rounds * seconds / num_rounds < limit / 2
            is_done = is_fast or seconds > 2 * timed_seconds
        else:
            is_done = (seconds > timed_seconds and num_rounds >= _MIN_TIMED_ROUNDS) or seconds > 2 * timed_seconds
        if trainer.group.any_rank(is_done or num_rounds >= _MAX_TIMED_ROUNDS):
            break
        if number == num_warmup_rounds:
            num_rounds, start = 0, now
    return seconds / num_rounds


def _iterate_rounds(trainer: Trainer) -> Iterator[tuple[list[Batch], list[int]]]:
    """Rounds of one epoch after another."""
    while True:
        yield from trainer.iterate_epoch()


def _time_evaluation(trainer: Trainer, limit: float) -> Timing:
    """Seconds of an evaluation, from a part of the validation split where that has many batches; and of samples."""
    validation, batch_size, device = trainer.data.validation, trainer.eval_batch_size, trainer.precision.device
    num_rows = min(len(validation), 2 * batch_size * trainer.group.world_size)
    rows = torch.linspace(0, len(validation) - 1, num_rows).long()
    seconds = 0.0
    for part in (rows[: max(1, num_rows // 8)], rows):      # the first is the warm-up
        synchronize(device)
        start = time.perf_counter()
        outputs = evaluate_split(
            trainer.objective, validation, batch_size=batch_size, precision=trainer.precision, group=trainer.group,
            rows=part,
        )
        trainer.objective.compute_metrics(outputs)
        synchronize(device)
        seconds = time.perf_counter() - start
    per_row = seconds / num_rows
    return Timing(0.0, per_row * len(validation), per_row * len(trainer.data.test), _time_samples(trainer))


@torch.no_grad()
def _time_samples(trainer: Trainer) -> float:
    """Seconds of the samples that are kept at evaluations; 0 where there are none."""
    objective = trainer.objective
    if "sample" not in abilities(objective):
        return 0.0
    objective.eval()
    start = time.perf_counter()
    objective.sample(GRID_SIZE, seeded_generator(next(objective.parameters())))  # type: ignore[operator]
    synchronize(trainer.precision.device)
    objective.train()
    return time.perf_counter() - start
