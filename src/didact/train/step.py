"""One round of training: every player takes its turns. Run as it stands, or captured once and replayed as a CUDA graph."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from didact.data.core import Batch, Split
from didact.errors import UsageError
from didact.objectives.core import Player
from didact.optim.build import build, can_capture
from didact.train.compilation import CompiledLoss, Loss, note_failures, restoring
from didact.train.distributed import Group
from didact.train.experiment import Experiment
from didact.train.precision import Precision
from didact.train.randomness import Streams

WARM = 3  # rounds taken as they stand before one is captured: allocator, autotuning and optimizer state settle


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not a number, found before it could reach the weights."""


class Step:
    """Gradients of a batch in micro-batches, clipped, then the optimizer; sums of the losses stay on the device."""

    def __init__(
        self, experiment: Experiment, split: Split, *, precision: Precision, streams: Streams, group: Group, capture: bool, compile: bool
    ):
        self.experiment, self.split, self.precision, self.streams, self.group = experiment, split, precision, streams, group
        self.objective = experiment.objective
        self.players = self.objective.players()
        self.parameters = {player.name: flat(player.parameters) for player in self.players}
        self.optimizers = {p.name: build(factory(experiment.optimizer, p), p.parameters, precision.device) for p in self.players}
        self.losses: dict[str, Loss] = {p.name: self.objective.loss for p in self.players}
        self.compiled = {p.name: CompiledLoss(self.objective.loss) for p in self.players if compile and p.compilable}
        self.losses |= self.compiled
        self.sums: dict[str, Tensor] = {}   # since they were last read: sum over examples of each part of the loss
        self.seen = 0                       # examples in those sums
        self.last: Tensor | None = None     # the loss of the latest round, on the device
        self.careful = False                # look for numbers that are not finite before each optimizer step
        self.taken = 0
        self.graph: Any = None
        self.capture = capture and group.size == 1 and self._capturable()
        if precision.name == "fp16" and any(getattr(o, "needs_closure", False) for o in self.optimizers.values()):
            raise UsageError("--precision fp16 scales the loss, which an optimizer that asks for a second gradient cannot follow; use bf16")

    def __call__(self, stored: list[Batch], rows: list[int]) -> None:
        """One round on stored batches; `rows` are the sizes of the whole batches that these are this process's part of."""
        if self.graph is not None and shapes(stored) == self.shapes:
            self._replay(stored)
        elif self.capture and self.graph is None and self.taken >= WARM and min(rows) == self.experiment.batch:
            self._record(stored, rows)
            self._replay(stored)
        elif self.capture and self.graph is None:
            self._aside(stored, rows)
        else:
            self.round(stored, rows)
            self.stray = True
        self.taken += 1
        self.seen += rows[0]

    def compile_losses(self, stored: Batch) -> list[str]:
        """Try the compiled losses on a stored batch, which leaves no trace; a note for each that could not be compiled."""
        if not self.compiled:
            return []
        before = self.streams.state()
        with restoring(self.objective):
            batch = self.prepare(stored)
            micro, _ = self._shares(batch, len(next(iter(batch.values()))))[0]
            for player in self.players:
                if len(self.players) > 1:
                    self._only(player)
                if player.name in self.compiled:
                    self.compiled[player.name].try_on(micro, player.name, self.precision.autocast())
        self.streams.restore(before)
        return note_failures({name: loss.failure for name, loss in self.compiled.items() if loss.failure})

    def round(self, stored: list[Batch], rows: list[int]) -> None:
        """Every player's turns, in order."""
        batches = [self.prepare(s) for s in stored]
        for player in self.players:
            if len(self.players) > 1:
                self._only(player)
            for batch, n in list(zip(batches, rows, strict=True))[: player.turns]:
                self._turn(player, batch, n)

    def prepare(self, stored: Batch) -> Batch:
        batch = self.split.decode(stored)
        if self.experiment.augment is not None:
            batch = self.experiment.augment(batch, self.streams.augmentation)
        return batch

    def _turn(self, player: Player, batch: Batch, rows: int) -> None:
        optimizer, scaler = self.optimizers[player.name], self.precision.scaler
        parts = self._gradients(player, batch, rows)
        if getattr(optimizer, "needs_closure", False):
            optimizer.step(lambda: self._gradients(player, batch, rows)["loss"])  # type: ignore[arg-type, return-value]
        elif scaler.is_enabled():
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        self.objective.stepped(player.name)
        self._remember(player, parts, rows)

    def _gradients(self, player: Player, batch: Batch, rows: int) -> dict[str, Tensor]:
        """The gradient of the whole batch's mean, in micro-batches and processes weighed by their share of its rows."""
        optimizer, parameters = self.optimizers[player.name], self.parameters[player.name]
        optimizer.zero_grad(set_to_none=True)
        total: dict[str, Tensor] = {}
        for micro, share in self._shares(batch, rows):
            with self.precision.autocast():
                parts = self.losses[player.name](micro, player.name)
            loss = parts["loss"] if share == 1 else parts["loss"] * share
            self.precision.scaler.scale(loss).backward()
            for name, part in parts.items():
                weighed = part.detach() if share == 1 else part.detach() * share
                total[name] = total[name] + weighed if name in total else weighed
        self.group.sum_gradients(parameters)
        if self.careful:
            self._inspect(total)
        self._clip(optimizer, parameters)
        return total

    def _shares(self, batch: Batch, rows: int) -> list[tuple[Batch, float]]:
        pieces = self.experiment.accumulate
        n = len(next(iter(batch.values())))
        if pieces == 1 and n == rows:
            return [(batch, 1.0)]
        size = -(-n // pieces)
        columns = {name: column.split(size) for name, column in batch.items()}
        return [({k: v[i] for k, v in columns.items()}, min(size, n - i * size) / rows) for i in range(-(-n // size))]

    def _clip(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
        norm, value = self.experiment.clip_norm, self.experiment.clip_value
        if norm is None and value is None:
            return
        if self.precision.scaler.is_enabled():
            self.precision.scaler.unscale_(optimizer)
        if value is not None:
            nn.utils.clip_grad_value_(parameters, value)
        if norm is not None:
            nn.utils.clip_grad_norm_(parameters, norm)

    def _remember(self, player: Player, parts: dict[str, Tensor], rows: int) -> None:
        prefix = f"{player.name}/" if len(self.players) > 1 else ""
        for name, part in parts.items():
            key = prefix + name
            if key not in self.sums:
                self.sums[key] = torch.zeros((), device=self.precision.device)
            self.sums[key].add_(part, alpha=rows / player.turns)  # a mean over the player's turns
        self.last = parts["loss"]

    def read_sums(self) -> dict[str, float]:
        """Mean of each part of the loss since the last reading; the one place where training waits for the device."""
        if not self.sums or not self.seen:
            return {}
        values = torch.stack(list(self.sums.values())).mul(self.group.size / self.seen).tolist()  # this process's part, scaled up
        return dict(zip(self.sums, values, strict=True))

    def clear_sums(self) -> None:
        for total in self.sums.values():
            total.zero_()
        self.seen = 0

    def _inspect(self, parts: Mapping[str, Tensor]) -> None:
        """Raise before anything that is not finite reaches the weights. fp16 overflows are the scaler's to skip."""
        if not self.group.sum(parts["loss"].clone()).isfinite():  # of all processes, so that all of them stop
            raise NonFiniteError("loss")
        if not self.precision.scaler.is_enabled():
            for name, p in reversed(list(self.objective.named_parameters())):  # backward order: the first that went wrong
                if p.grad is not None and not p.grad.isfinite().all():
                    raise NonFiniteError(f"gradient of {name}")

    def _only(self, player: Player) -> None:
        """Gradients reach this player's parameters alone."""
        for name, parameters in self.parameters.items():
            for p in parameters:
                p.requires_grad_(name == player.name)

    # Capture: the same Python runs once while CUDA records its kernels; afterwards a round is one launch.

    def _capturable(self) -> bool:
        steady = self.experiment.schedule.momentum(0, 1) is None  # a momentum that moves is a Python number, frozen by capture
        return (
            self.precision.device.type == "cuda"
            and not self.precision.scaler.is_enabled()
            and self.objective.capturable
            and steady
            and all(can_capture(optimizer) for optimizer in self.optimizers.values())
        )

    def _aside(self, stored: list[Batch], rows: list[int]) -> None:
        """A round on a stream of its own, as capture asks of those before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.round(stored, rows)
        torch.cuda.current_stream().wait_stream(stream)

    def _record(self, stored: list[Batch], rows: list[int]) -> None:
        self.shapes = shapes(stored)
        self.static = [{name: column.clone() for name, column in s.items()} for s in stored]
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.streams.augmentation)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # a loader's thread may pin memory meanwhile
            self.round(self.static, rows)
        self.everyone = [p for parameters in self.parameters.values() for p in parameters]
        self.gradients = [p.grad for p in self.everyone]
        self.recorded_last = self.last
        self.stray = False

    def _replay(self, stored: list[Batch]) -> None:
        for static, fresh in zip(self.static, stored, strict=True):
            torch._foreach_copy_(list(static.values()), list(fresh.values()))
        self.graph.replay()
        if self.stray:  # a round outside the graph has put other gradients in place
            for p, gradient in zip(self.everyone, self.gradients, strict=True):
                p.grad = gradient
            self.last, self.stray = self.recorded_last, False


def factory(optimizer: Any, player: Player) -> Callable[[Any], torch.optim.Optimizer]:
    """The player's own optimizer, or the one for all."""
    make: Callable[[Any], torch.optim.Optimizer] = optimizer[player.name] if isinstance(optimizer, Mapping) else optimizer
    return make


def flat(parameters: list[Any]) -> list[nn.Parameter]:
    """Parameters out of optimizer groups."""
    return [p for entry in parameters for p in (entry["params"] if isinstance(entry, dict) else [entry])]


def shapes(stored: list[Batch]) -> list[dict[str, torch.Size]]:
    return [{name: column.shape for name, column in s.items()} for s in stored]
