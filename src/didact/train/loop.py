"""The one training loop: rounds, evaluations, checkpoints. It knows objectives by their contract and is handed the rest.

    for each epoch: permute the rows, cut them into batches
        for each batch: step
        judge the validation split; keep the best weights; save
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.data.stream import placed
from didact.errors import UsageError
from didact.optim.build import set_lr
from didact.run import Run
from didact.train.batch_norm import share_statistics
from didact.train.diagnose import gradient_norms, name_culprit, weights_are_finite
from didact.train.distributed import Group
from didact.train.ema import Average
from didact.train.evaluation import glimpse, judge
from didact.train.experiment import Experiment, Settings
from didact.train.experiment import Tell as Tell
from didact.train.experiment import silent as silent
from didact.train.interrupt import Interrupted, Patience
from didact.train.machine import memory_used, synchronise
from didact.train.precision import Precision
from didact.train.randomness import Streams, order
from didact.train.step import WARM, Step

FINGERPRINT = (1, 10, 100)   # steps whose loss is kept, to see at a glance whether two runs are the same
BREATH = 0.25                # seconds between two looks at the loss while training
SAVE_GAP = 2.0               # seconds between two checkpoints at evaluations: short epochs need not each have one


@dataclass(frozen=True)
class Plan:
    """The budget in rounds. A round is one batch, or as many as the busiest player has turns."""

    rows: int
    batch: int
    turns: int
    epoch: int            # rounds of one pass over the data
    total: int
    evaluate_every: int
    log_every: int
    least: int = 2        # rows of a batch, so that each process has one

    @classmethod
    def of(cls, experiment: Experiment, processes: int = 1, *, log_every: int | None = None) -> "Plan":
        rows, turns = len(experiment.data.train), max(p.turns for p in experiment.objective.players())
        least = max(2, processes)
        if min(rows, experiment.batch) < processes:
            raise UsageError(f"{processes} processes share batches of {min(rows, experiment.batch)} rows; raise --batch, or start fewer")
        epoch = max(1, len(cut(torch.arange(rows), experiment.batch, least)) // turns)
        assert (experiment.steps is None) != (experiment.epochs is None), "an experiment has either epochs or steps"
        total = experiment.steps or epoch * (experiment.epochs or 0)
        every = experiment.evaluate_every or (epoch if experiment.steps is None else max(1, total // 10))
        return cls(rows, experiment.batch, turns, epoch, total, every, log_every or max(1, min(every, epoch) // 10), least)

    def evaluations_after(self, step: int) -> int:
        """How many are still to come: one every so many rounds, and one at the end."""
        return -(-self.total // self.evaluate_every) - step // self.evaluate_every if step < self.total else 0

    def rounds(self, seed: int, epoch: int) -> list[list[Tensor]]:
        """The row numbers of every batch of an epoch, by round."""
        chunks = cut(order(self.rows, seed=seed, epoch=epoch), self.batch, self.least)
        if len(chunks) < self.turns:
            chunks = (chunks * self.turns)[: self.turns]
        return [chunks[i * self.turns : (i + 1) * self.turns] for i in range(self.epoch)]


def cut(rows: Tensor, batch: int, least: int = 2) -> list[Tensor]:
    """Batches in order; a last one of a single row, which batch norm could not take, joins the one before.

    So does one with fewer rows than there are processes.
    """
    chunks = list(rows.split(batch))
    if len(chunks) > 1 and len(chunks[-1]) < least:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    return chunks


@dataclass
class State:
    """Where training stands; with weights, optimizers and generators, all that a checkpoint holds."""

    step: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0                  # evaluations since the best
    seconds: float = 0.0
    warming: float = 0.0            # of those, the first rounds of each process: compilation, kernels being chosen, capture
    log_size: int = 0               # of metrics.jsonl when this was saved
    stopped: str = ""               # why training ended; empty while it goes on
    fingerprint: dict[str, float] = field(default_factory=dict)
    validation: dict[str, float] = field(default_factory=dict)  # metrics of the best state
    mark: dict[str, float] = field(default_factory=dict)        # metrics that patience asks more than, by min_delta


class Training:
    """One experiment being trained. `run` is None for a training that leaves no files."""

    def __init__(
        self, experiment: Experiment, settings: Settings, *,
        device: torch.device, run: Run | None = None, group: Group | None = None, tell: Tell = silent,
    ):
        self.experiment, self.settings, self.run, self.tell = experiment, settings, run, tell
        self.group = group or Group()
        self.objective = experiment.objective.to(device)
        self.data = placed(experiment.data, device)
        self.group.broadcast(self.objective)
        self.precision = Precision(settings.precision, device, self.objective)
        self.streams = Streams(settings.seed, device, self.group.rank)
        self.plan = Plan.of(experiment, self.group.size, log_every=settings.log_every)
        if self.group.size > 1:
            share_statistics(self.objective)
        compile = experiment.compile if settings.compile is None else settings.compile
        self.step = Step(
            experiment, self.data.train, precision=self.precision, streams=self.streams, group=self.group,
            capture=settings.graph, compile=compile,
        )
        self.average = Average(self.objective, experiment.ema) if experiment.ema else None
        self.state = State()
        self.best: dict[str, Tensor] = {}
        self.kept: dict[str, Any] | None = None    # the last checkpoint, where there is no folder to hold it
        self.pending: list[dict[str, Any]] = []    # log lines whose numbers are still on the device
        self.latest: dict[str, float] = {}         # training losses as last read
        self.saved_at = self.told_at = self.clock = time.perf_counter()  # `clock`: seconds are counted from here
        self.began, self.warm = 0, (0, 0.0)        # the step this process began at; step and seconds its speed is taken from
        self.judged = (0, 0.0)                     # evaluations of this process, and their seconds
        self.factor: tuple[float, float | None] | None = None

    def train(self) -> State:
        """Go on until the budget is spent, patience is lost, or someone asks to stop."""
        self.objective.train()
        if self.state.step == 0:
            self.streams.begin()
            self.save()
        self.compile_losses()
        self.clock = time.perf_counter()
        with Patience() as patience:
            while not self.state.stopped:
                for stored, rows in self.epoch():
                    self.advance(stored, rows)
                    if self.asked(patience):
                        self.save()
                        raise Interrupted(self.run, self.state.step, self.plan.total)
                    if self.state.stopped:
                        break
        self.flush()
        self.save()
        return self.state

    def compile_losses(self) -> None:
        """With --compile: compile before the first step, and say what could not be."""
        rows = min(self.plan.rows, self.plan.batch)
        if not self.step.compiled:
            return
        notes = self.step.compile_losses(next(iter(self.data.train.batches([self.group.part(torch.arange(rows))]))))
        for note in notes:
            self.tell("note", {"text": note})
        if notes and self.run is not None and self.group.leads:
            self.run.note(notes=[*dict.fromkeys((*self.run.facts["notes"], *notes))])  # once, however often it is resumed

    def asked(self, patience: Patience) -> bool:
        """Whether someone wants to stop. Several processes stop at the same round: they ask each other when they log."""
        if self.group.size > 1 and self.state.step % self.plan.log_every:
            return False
        return self.group.anyone(patience.asked)

    def epoch(self) -> Iterator[tuple[list[Batch], list[int]]]:
        """The rest of the current epoch: for each round its stored batches and their sizes over all processes."""
        number, position = divmod(self.state.step, self.plan.epoch)
        rounds = self.plan.rounds(self.settings.seed, number)[position:]
        stored = self.data.train.batches([self.group.part(chunk) for chunks in rounds for chunk in chunks])
        for chunks in rounds:
            yield [next(stored) for _ in chunks], [len(chunk) for chunk in chunks]

    def advance(self, stored: list[Batch], rows: list[int]) -> None:
        """One round and what follows from it."""
        self.set_rate()
        self.step(stored, rows)
        if self.average is not None:
            self.average.update()
        self.state.step += 1
        step = self.state.step
        if step in FINGERPRINT and self.step.last is not None:
            self.state.fingerprint[str(step)] = float(self.group.sum(self.step.last.clone()))
        due = step % self.plan.evaluate_every == 0 or step == self.plan.total
        if step % self.plan.log_every == 0 or due:
            self.log()
        if due:
            synchronise(self.precision.device)
        now = time.perf_counter()
        self.state.seconds += now - self.clock
        if step == self.began + WARM:
            self.state.warming += self.state.seconds - self.warm[1]
            self.warm = step, self.state.seconds
        if due:
            self.evaluate()
            self.judged = self.judged[0] + 1, self.judged[1] + time.perf_counter() - now
        elif now - self.told_at > BREATH:
            self.breathe(now)
        if self.save_due(self.settings.save_every):
            self.save()
        self.clock = time.perf_counter()

    def set_rate(self) -> None:
        schedule, t = self.experiment.schedule, (self.state.step, self.plan.total)
        factor = schedule(*t), schedule.momentum(*t)
        if factor != self.factor:
            for optimizer in self.step.optimizers.values():
                set_lr(optimizer, *factor)
            self.factor = factor

    def rates(self) -> dict[str, float]:
        return {name: float(o.param_groups[0]["lr"]) for name, o in self.step.optimizers.items()}

    def log(self) -> None:
        """Note losses and gradient norms; the numbers are fetched from the device when they are next needed."""
        sums = {name: total / max(1, self.step.seen) for name, total in self.step.sums.items()}
        self.pending.append(
            {"step": self.state.step, "train": sums, "gradients": gradient_norms(self.objective), "lr": next(iter(self.rates().values()))}
        )
        self.step.clear_sums()

    def flush(self) -> dict[str, float]:
        """Fetch what is pending, write it to metrics.jsonl, and return the latest training losses."""
        lines = []
        for line in self.pending:
            names, sums = list(line["train"]), list(line["train"].values())
            values = self.group.sum(torch.stack(sums)).tolist() if sums else []
            self.latest = latest = dict(zip(names, values, strict=True))
            self.require_finite(latest)
            layers, norms = line["gradients"]
            lines.append(
                {"step": line["step"], "epoch": line["step"] / self.plan.epoch, "lr": line["lr"], "train": latest}
                | {"gradients": dict(zip(layers, norms.tolist(), strict=True))}
            )
        self.pending = []
        if self.run is not None and self.group.leads and lines:
            self.run.log(lines)
        return self.latest

    def breathe(self, now: float) -> None:
        """Show how far it is, also in metrics.jsonl; stop if the loss is no number."""
        self.told_at = now
        losses = self.step.read_sums()
        if self.group.size == 1:
            self.require_finite(losses)
            self.flush()  # whoever watches metrics.jsonl sees the curve grow
        self.latest = losses or self.latest
        self.tell("step", self.progress(self.latest))

    def progress(self, losses: dict[str, float]) -> dict[str, Any]:
        timed = self.state.step - self.warm[0]
        each = (self.state.seconds - self.warm[1]) / max(1, timed)
        return {
            "timed": timed,
            "step": self.state.step,
            "total": self.plan.total,
            "epoch": self.state.step / self.plan.epoch,
            "loss": losses,
            "lr": next(iter(self.rates().values())),
            "rows_per_second": self.plan.batch * self.plan.turns / each if each else 0.0,
            "seconds_left": self.seconds_left(each),
            "memory": memory_used(self.precision.device),
            "watch": self.objective.watch,
            "validation": self.state.validation,
        }

    def seconds_left(self, each: float) -> float:
        """Rounds of `each` seconds, and the evaluations between; before the first, a row costs a third of what it does in training."""
        times, seconds = self.judged
        judging = seconds / times if times else each * len(self.data.validation) / (3 * self.plan.batch * self.plan.turns)
        return each * (self.plan.total - self.state.step) + judging * self.plan.evaluations_after(self.state.step)

    def evaluate(self) -> None:
        """Judge the validation split; keep the weights if they are the best so far; lose patience if they are not."""
        losses = self.flush()
        with self.average.in_place() if self.average is not None else nullcontext():
            rows = judge(self.objective, self.data.validation, batch=self.judging_batch, precision=self.precision, group=self.group)
            scores = self.objective.score(rows)
            self.require_finite({"validation loss": scores["loss"]})
            times = -(-self.state.step // self.plan.evaluate_every)
            if self.run is not None and self.group.leads and times & (times - 1) == 0:  # the 1st, 2nd, 4th, 8th, …
                glimpse(self.objective, self.run, self.state.step)
            self.state.stale += 1
            if self.gain(scores, self.state.mark or self.state.validation) > self.experiment.min_delta:
                self.state.stale, self.state.mark = 0, scores
            gain = self.gain(scores, self.state.validation)
            if gain > 0 or (gain == 0 and scores["loss"] < self.state.validation["loss"]):
                self.state.best, self.state.best_step = scores[self.objective.watch], self.state.step
                self.state.validation = scores
                self.best = {k: v.detach().clone() for k, v in self.objective.state_dict().items()}
        if self.run is not None and self.group.leads:
            line = {"step": self.state.step, "epoch": self.state.step / self.plan.epoch, "validation": scores}
            self.run.log([line | {"seconds": self.state.seconds}])
        patience = self.experiment.patience
        if self.state.step >= self.plan.total:
            self.state.stopped = "budget"
        elif patience is not None and self.state.stale >= patience:
            self.state.stopped = "patience"
        self.tell("evaluate", self.progress(losses) | {"scores": scores, "best": self.state.best_step == self.state.step})
        if self.save_due(SAVE_GAP) or self.group.size > 1:
            self.save()
        self.told_at = time.perf_counter()

    def save_due(self, gap: float) -> bool:
        """By the clock, which several processes do not share: those save at evaluations."""
        return self.run is not None and self.group.size == 1 and time.perf_counter() - self.saved_at > gap

    @property
    def judging_batch(self) -> int:
        """Without gradients a larger batch fits, and fewer of them are quicker."""
        return max(self.experiment.batch, min(4096, 4 * self.experiment.batch))

    def gain(self, scores: dict[str, float], before: dict[str, float]) -> float:
        """How much better than before. Any gain keeps the weights; patience asks for more than min_delta, to which small ones add up."""
        if not before:
            return float("inf")
        new, old = scores[self.objective.watch], before[self.objective.watch]
        if not (isfinite(new) and isfinite(old)):  # a metric that is not defined on this split: the loss decides
            return before["loss"] - scores["loss"]
        return old - new if self.objective.better == "lower" else new - old

    def require_finite(self, losses: dict[str, float]) -> None:
        if any(value != value or abs(value) == float("inf") for value in losses.values()):
            raise name_culprit(self)

    # Checkpoints: the state after a whole round, written beside and renamed.

    def checkpoint(self, streams: list[Any]) -> dict[str, Any]:
        return {
            "state": asdict(self.state),
            "model": self.objective.state_dict(),
            "optimizers": {name: o.state_dict() for name, o in self.step.optimizers.items()},
            "streams": streams,
            "scaler": self.precision.scaler.state_dict(),
            "average": self.average.state() if self.average is not None else None,
            "sums": self.step.sums,
            "seen": self.step.seen,
        }

    def save(self) -> None:
        """The best weights first, then the state that refers to them: killed in between, a resumed run writes them again."""
        if not self.step.careful and not weights_are_finite(self.objective):
            raise name_culprit(self)
        self.flush()
        self.saved_at = time.perf_counter()
        streams = self.group.everyone(self.streams.state())
        if self.run is None:
            self.kept = copied(self.checkpoint(streams))
        elif self.group.leads:
            if self.best:
                self.run.save("model", self.best, step=str(self.state.best_step))
            self.run.sync_log()
            self.state.log_size = self.run.log_size
            self.run.save_state(self.checkpoint(streams))
        self.group.wait()

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Stand exactly where the checkpoint was taken."""
        self.state = State(**checkpoint["state"])
        self.objective.load_state_dict(checkpoint["model"])
        for name, optimizer in self.step.optimizers.items():
            optimizer.load_state_dict(checkpoint["optimizers"][name])
        self.streams.load(checkpoint["streams"], self.state.step)
        self.precision.scaler.load_state_dict(checkpoint["scaler"])
        if self.average is not None:
            self.average.load(checkpoint["average"])
        self.step.sums = {name: total.to(self.precision.device) for name, total in checkpoint["sums"].items()}
        self.step.seen = checkpoint["seen"]
        self.pending, self.factor, self.best = [], None, {}
        self.began, self.warm = self.state.step, (self.state.step, self.state.seconds)

    def last_checkpoint(self) -> dict[str, Any]:
        checkpoint = self.run.load_state() if self.run is not None else self.kept
        assert checkpoint is not None, "a checkpoint is written before the first step"
        return checkpoint


def copied(tree: Any) -> Any:
    """The same tree with tensors of its own."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    return [copied(value) for value in tree] if isinstance(tree, list) else tree
