"""The training loop: rounds, evaluations, checkpoints. It knows objectives by their contract only.

    for each epoch: permute the examples, split them into batches
        for each batch: step
        evaluate the validation split; keep the best weights; save
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.data.storage import to_device
from didact.optim.for_device import set_lr
from didact.run import Run
from didact.training.checkpoint import TrainingState, save_checkpoint
from didact.training.device import memory_used, synchronize
from didact.training.distributed.process_group import Group
from didact.training.distributed.sync_batch_norm import convert_sync_batch_norm
from didact.training.divergence import gradient_norms, locate_divergence, weights_are_finite
from didact.training.early_stopping import find_stop_reason, update_best
from didact.training.ema import EMA
from didact.training.evaluation import evaluate_split, save_training_samples
from didact.training.experiment import EventCallback as EventCallback
from didact.training.experiment import Experiment, Settings
from didact.training.experiment import ignore_events as ignore_events
from didact.training.interrupts import Interrupted, InterruptHandler
from didact.training.plan import TrainingPlan
from didact.training.precision import Precision
from didact.training.seeding import RandomStreams
from didact.training.step import GRAPH_WARMUP_ROUNDS, TrainStep

FINGERPRINT_STEPS = (1, 10, 100)   # steps whose loss is kept, to compare two runs at a glance
PROGRESS_INTERVAL_S = 0.25                # between two readings of the loss
_ROUNDS_AT_ONCE = 4096           # rounds of an epoch whose indices are gathered at once
# between two checkpoints at evaluations: short epochs do not need one each
MIN_SAVE_INTERVAL_S = 2.0


class Trainer:
    """One experiment being trained. `run` is None where no files are written."""

    def __init__(
        self,
        experiment: Experiment,
        settings: Settings,
        *,
        device: torch.device,
        run: Run | None = None,
        group: Group | None = None,
        on_event: EventCallback = ignore_events,
    ):
        self.experiment, self.settings, self.run, self.on_event = experiment, settings, run, on_event
        self.group = group or Group()
        self.objective = experiment.objective.to(device)
        self.data = to_device(experiment.data, device)
        self.group.broadcast(self.objective)
        self.precision = Precision(settings.precision, device, self.objective)
        self.streams = RandomStreams(settings.seed, device, self.group.rank)
        self.plan = TrainingPlan.from_experiment(experiment, self.group.world_size, log_every=settings.log_every)
        if self.group.world_size > 1:
            convert_sync_batch_norm(self.objective)
        compile = experiment.compile if settings.compile is None else settings.compile
        self.train_step = TrainStep(
            experiment, self.data.train, precision=self.precision, streams=self.streams, group=self.group,
            capture=settings.graph, compile=compile,
        )
        self.ema = EMA(self.objective, experiment.ema) if experiment.ema else None
        self.state = TrainingState()
        self.best_weights: dict[str, Tensor] = {}
        # the last checkpoint, where there is no folder
        self.in_memory_checkpoint: dict[str, Any] | None = None
        self.pending_logs: list[dict[str, Any]] = []    # log lines whose numbers are still on the device
        self.latest_losses: dict[str, float] = {}         # training losses when last read
        self.last_save_time = self.last_progress_time = self.timer_start = time.perf_counter()
        # first step of this process; step and seconds from which its speed is measured
        self.start_step, self.speed_reference = 0, (0, 0.0)
        self.evaluation_timing = (0, 0.0)                     # number of evaluations of this process, and their seconds
        self.schedule_factors: tuple[float, float | None] | None = None

    def train(self) -> TrainingState:
        """Train until the budget is spent, patience runs out, or the user stops it."""
        self.objective.train()
        if self.state.step == 0:
            self.streams.reset()
            self.save()
        self.compile_losses()
        self.timer_start = time.perf_counter()
        with InterruptHandler() as interrupt:
            while not self.state.stop_reason:
                for stored, batch_sizes in self.iterate_epoch():
                    self.train_round(stored, batch_sizes)
                    if self.stop_requested(interrupt):
                        self.save()
                        raise Interrupted(self.run, self.state.step, self.plan.total_rounds)
                    if self.state.stop_reason:
                        break
        self.flush()
        self.save()
        return self.state

    def compile_losses(self) -> None:
        """With --compile: compile before the first step, and report what could not be compiled."""
        batch_size = min(self.plan.num_examples, self.plan.batch_size)
        if not self.train_step.compiled_losses:
            return
        notes = self.train_step.compile_losses(
            next(iter(self.data.train.batches([self.group.shard(torch.arange(batch_size))])))
        )
        for note in notes:
            self.on_event("note", {"text": note})
        if notes and self.run is not None and self.group.is_main:
            # once, however often the run is resumed
            self.run.update_metadata(notes=[*dict.fromkeys((*self.run.metadata["notes"], *notes))])

    def stop_requested(self, interrupt: InterruptHandler) -> bool:
        """Whether the user wants to stop. Several processes agree on it when they log, so that all stop at the same
        round.
        """
        if self.group.world_size > 1 and self.state.step % self.plan.log_every:
            return False
        return self.group.any_rank(interrupt.stop_requested)

    def iterate_epoch(self) -> Iterator[tuple[list[Batch], list[int]]]:
        """The rest of the current epoch: for each round, its stored batches and their sizes over all processes."""
        epoch, position = divmod(self.state.step, self.plan.rounds_per_epoch)
        rounds = self.plan.epoch_rounds(self.settings.seed, epoch)
        for start in range(position, len(rounds), _ROUNDS_AT_ONCE):
            part = [rounds[i] for i in range(start, min(start + _ROUNDS_AT_ONCE, len(rounds)))]
            stored = self.data.train.batches([self.group.shard(chunk) for chunks in part for chunk in chunks])
            for chunks in part:
                yield [next(stored) for _ in chunks], [len(chunk) for chunk in chunks]

    def train_round(self, stored: list[Batch], batch_sizes: list[int]) -> None:
        """One round with its logging, evaluation and checkpoint where they are due."""
        self.apply_schedule()
        self.train_step(stored, batch_sizes)
        if self.ema is not None:
            self.ema.update()
        self.state.step += 1
        step = self.state.step
        if step in FINGERPRINT_STEPS and self.train_step.last_loss is not None:
            self.state.fingerprint[str(step)] = float(self.group.all_reduce(self.train_step.last_loss.clone()))
        evaluation_due = step % self.plan.evaluate_every == 0 or step == self.plan.total_rounds
        if step % self.plan.log_every == 0 or evaluation_due:
            self.log()
        if evaluation_due:
            synchronize(self.precision.device)
        now = time.perf_counter()
        self.state.seconds += now - self.timer_start
        if step == self.start_step + GRAPH_WARMUP_ROUNDS:
            self.state.warmup_seconds += self.state.seconds - self.speed_reference[1]
            self.speed_reference = step, self.state.seconds
        if evaluation_due:
            self.evaluate()
            self.evaluation_timing = (
                self.evaluation_timing[0] + 1,
                self.evaluation_timing[1] + time.perf_counter() - now,
            )
        elif now - self.last_progress_time > PROGRESS_INTERVAL_S:
            self.report_progress(now)
        if self.is_save_due(self.settings.save_every):
            self.save()
        self.timer_start = time.perf_counter()

    def apply_schedule(self) -> None:
        schedule, t = self.experiment.schedule, (self.state.step, self.plan.total_rounds)
        factor = schedule(*t), schedule.momentum(*t)
        if factor != self.schedule_factors:
            for optimizer in self.train_step.optimizers.values():
                set_lr(optimizer, *factor)
            self.schedule_factors = factor

    def learning_rates(self) -> dict[str, float]:
        return {name: float(o.param_groups[0]["lr"]) for name, o in self.train_step.optimizers.items()}

    def log(self) -> None:
        """Record losses and gradient norms; the numbers are read from the device when they are next needed."""
        mean_losses = {
            name: total / max(1, self.train_step.examples_seen) for name, total in self.train_step.loss_sums.items()
        }
        self.pending_logs.append(
            {
                "step": self.state.step,
                "train": mean_losses,
                "gradients": gradient_norms(self.objective),
                "lr": next(iter(self.learning_rates().values())),
            }
        )
        self.train_step.clear_losses()

    def flush(self) -> dict[str, float]:
        """Read pending numbers from the device, write them to metrics.jsonl, and return the latest training losses."""
        lines = []
        for line in self.pending_logs:
            names, totals = list(line["train"]), list(line["train"].values())
            values = self.group.all_reduce(torch.stack(totals)).tolist() if totals else []
            self.latest_losses = losses = dict(zip(names, values, strict=True))
            self.check_finite(losses)
            layers, norms = line["gradients"]
            lines.append(
                {
                    "step": line["step"],
                    "epoch": line["step"] / self.plan.rounds_per_epoch,
                    "lr": line["lr"],
                    "train": losses,
                }
                | {"gradients": dict(zip(layers, norms.tolist(), strict=True))}
            )
        self.pending_logs = []
        if self.run is not None and self.group.is_main and lines:
            self.run.log(lines)
        return self.latest_losses

    def report_progress(self, now: float) -> None:
        """Report progress, also to metrics.jsonl; stop if the loss is not finite."""
        self.last_progress_time = now
        losses = self.train_step.read_losses()
        if self.group.world_size == 1:
            self.check_finite(losses)
            self.flush()  # metrics.jsonl grows while training
        self.latest_losses = losses or self.latest_losses
        self.on_event("step", self.progress_event(self.latest_losses))

    def progress_event(self, losses: dict[str, float]) -> dict[str, Any]:
        timed_rounds = self.state.step - self.speed_reference[0]
        seconds_per_round = (self.state.seconds - self.speed_reference[1]) / max(1, timed_rounds)
        return {
            "timed": timed_rounds,
            "step": self.state.step,
            "total": self.plan.total_rounds,
            "epoch": self.state.step / self.plan.rounds_per_epoch,
            "loss": losses,
            "lr": next(iter(self.learning_rates().values())),
            "rows_per_second": self.plan.batch_size * self.plan.batches_per_round / seconds_per_round
            if seconds_per_round
            else 0.0,
            "seconds_left": self.seconds_left(seconds_per_round),
            "memory": memory_used(self.precision.device),
            "monitor": self.objective.monitor,
            "validation": self.state.validation,
        }

    def seconds_left(self, seconds_per_round: float) -> float:
        """Estimated time for the remaining rounds and evaluations.

        Before the first evaluation, an example is assumed to cost a third of what it costs in training.
        """
        num_evaluations, seconds = self.evaluation_timing
        seconds_per_evaluation = (
            seconds / num_evaluations
            if num_evaluations
            else seconds_per_round
            * len(self.data.validation)
            / (3 * self.plan.batch_size * self.plan.batches_per_round)
        )
        return seconds_per_round * (
            self.plan.total_rounds - self.state.step
        ) + seconds_per_evaluation * self.plan.evaluations_after(self.state.step)

    def evaluate(self) -> None:
        """Evaluate the validation split, update the best weights and early stopping."""
        losses = self.flush()
        with self.ema.use_averaged_weights() if self.ema is not None else nullcontext():
            outputs = evaluate_split(
                self.objective,
                self.data.validation,
                batch_size=self.eval_batch_size,
                precision=self.precision,
                group=self.group,
                on_progress=partial(self.report_evaluation, "validation"),
            )
            scores = self.objective.compute_metrics(outputs)
            self.check_finite({"validation loss": scores["loss"]})
            evaluation_number = -(-self.state.step // self.plan.evaluate_every)
            # the 1st, 2nd, 4th, 8th, …
            if self.run is not None and self.group.is_main and evaluation_number & (evaluation_number - 1) == 0:
                save_training_samples(self.objective, self.run, self.state.step)
            if update_best(self.state, scores, self.objective, self.experiment.min_delta):
                self.best_weights = {k: v.detach().clone() for k, v in self.objective.state_dict().items()}
        if self.run is not None and self.group.is_main:
            line = {
                "step": self.state.step,
                "epoch": self.state.step / self.plan.rounds_per_epoch,
                "validation": scores,
            }
            self.run.log([line | {"seconds": self.state.seconds}])
        self.state.stop_reason = find_stop_reason(self.state, self.plan.total_rounds, self.experiment.patience)
        self.on_event(
            "evaluate",
            self.progress_event(losses) | {"scores": scores, "best": self.state.best_step == self.state.step},
        )
        if self.is_save_due(MIN_SAVE_INTERVAL_S) or self.group.world_size > 1:
            self.save()
        self.last_progress_time = time.perf_counter()

    def report_evaluation(self, split: str, num_done: int, num_examples: int) -> None:
        """Report how many examples of a split are evaluated."""
        self.on_event("evaluate_batch", {"split": split, "done": num_done, "total": num_examples})

    def save(self) -> None:
        """Save a checkpoint of finite weights; every process at the same round."""
        if not self.train_step.check_every_step and not weights_are_finite(self.objective):
            raise locate_divergence(self)
        self.flush()
        self.last_save_time = time.perf_counter()
        save_checkpoint(self, self.group.all_gather_object(self.streams.get_state()))
        self.group.barrier()

    def is_save_due(self, interval_s: float) -> bool:
        """By the clock. Several processes have no clock in common: they save at evaluations."""
        return (
            self.run is not None
            and self.group.world_size == 1
            and time.perf_counter() - self.last_save_time > interval_s
        )

    @property
    def eval_batch_size(self) -> int:
        """Without gradients a larger batch fits, and fewer batches are faster."""
        return max(self.experiment.batch_size, min(4096, 4 * self.experiment.batch_size))

    def check_finite(self, losses: dict[str, float]) -> None:
        if any(value != value or abs(value) == float("inf") for value in losses.values()):
            raise locate_divergence(self)
