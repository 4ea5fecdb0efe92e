"""One round of training: every player's steps, eagerly, or captured once and replayed as a CUDA graph."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from didact.data.core import Batch, Split
from didact.errors import UsageError
from didact.objectives.base import Player
from didact.optim.for_device import build_optimizer, can_capture_step
from didact.training.compilation import CompiledLoss, Loss, format_failures, preserve_state
from didact.training.distributed.process_group import Group
from didact.training.experiment import Experiment
from didact.training.gradient_clipping import clip_gradients
from didact.training.precision import Precision
from didact.training.seeding import RandomStreams

# eager rounds before capture: allocator, autotuning and optimizer state settle
GRAPH_WARMUP_ROUNDS = 3


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not finite, found before it reaches the weights."""


class TrainStep:
    """Forward and backward in micro-batches, gradient clipping, optimizer step. Sums of the losses stay on the device.
    """

    def __init__(
        self,
        experiment: Experiment,
        split: Split,
        *,
        precision: Precision,
        streams: RandomStreams,
        group: Group,
        capture: bool,
        compile: bool,
    ):
        self.experiment, self.split, self.precision, self.streams, self.group = (
            experiment,
            split,
            precision,
            streams,
            group,
        )
        self.objective = experiment.objective
        self.players = self.objective.players()
        self.parameters = {player.name: _flatten_groups(player.parameters) for player in self.players}
        self.optimizers = {
            p.name: build_optimizer(_optimizer_factory(experiment.optimizer, p), p.parameters, precision.device)
            for p in self.players
        }
        self.loss_functions: dict[str, Loss] = {p.name: self.objective.loss for p in self.players}
        self.compiled_losses = {
            p.name: CompiledLoss(self.objective.loss) for p in self.players if compile and p.compilable
        }
        self.loss_functions |= self.compiled_losses
        self.loss_sums: dict[str, Tensor] = {}   # sum over examples of each part of the loss since the last reading
        self.examples_seen = 0                       # examples in those sums
        self.last_loss: Tensor | None = None     # loss of the latest round, on the device
        self.check_every_step = False                # check for non-finite numbers before each optimizer step
        self.steps_taken = 0
        self.graph: Any = None
        self.capture = capture and group.world_size == 1 and self._can_capture()
        if precision.name == "fp16" and any(getattr(o, "needs_closure", False) for o in self.optimizers.values()):
            raise UsageError(
                "--precision fp16 scales the loss, which SAM's second gradient does not support; "
                "use bf16"
            )

    def __call__(self, stored: list[Batch], batch_sizes: list[int]) -> None:
        """One round on stored batches; `batch_sizes` are the sizes of the whole batches over all processes."""
        if self.graph is not None and _batch_shapes(stored) == self.graph_shapes:
            self._replay(stored)
        elif (
            self.capture
            and self.graph is None
            and self.steps_taken >= GRAPH_WARMUP_ROUNDS
            and min(batch_sizes) == self.experiment.batch_size
        ):
            self._capture_graph(stored, batch_sizes)
            self._replay(stored)
        elif self.capture and self.graph is None:
            with self._on_side_stream():  # as CUDA graphs require of the warm-up rounds
                self.run_round(stored, batch_sizes)
        else:
            self.run_round(stored, batch_sizes)
            self.gradients_outside_graph = True
        self.steps_taken += 1
        self.examples_seen += batch_sizes[0]

    def compile_losses(self, stored: Batch) -> list[str]:
        """Compile the losses on a stored batch without side effects; returns a note for each failure."""
        if not self.compiled_losses:
            return []
        rng_state = self.streams.get_state()
        # a compiled graph keeps the nodes that accumulate gradients, and these the stream on which they were made: on
        # the default stream a later capture would fail
        with preserve_state(self.objective), self._on_side_stream():
            batch = self.decode_and_augment(stored)
            micro, _ = self._micro_batches(batch, len(next(iter(batch.values()))))[0]
            for player in self.players:
                if len(self.players) > 1:
                    self._train_only(player)
                if player.name in self.compiled_losses:
                    self.compiled_losses[player.name].try_compile(micro, player.name, self.precision.autocast())
        self.streams.set_state(rng_state)
        return format_failures({name: loss.failure for name, loss in self.compiled_losses.items() if loss.failure})

    def run_round(self, stored: list[Batch], batch_sizes: list[int]) -> None:
        """The steps of every player, in order."""
        batches = [self.decode_and_augment(s) for s in stored]
        for player in self.players:
            if len(self.players) > 1:
                self._train_only(player)
            for batch, n in list(zip(batches, batch_sizes, strict=True))[: player.steps_per_round]:
                self._player_step(player, batch, n)

    def decode_and_augment(self, stored: Batch) -> Batch:
        batch = self.split.decode(stored)
        if self.experiment.augment is not None:
            batch = self.experiment.augment(batch, self.streams.augmentation)
        return batch

    def _player_step(self, player: Player, batch: Batch, batch_size: int) -> None:
        optimizer, scaler = self.optimizers[player.name], self.precision.scaler
        losses = self._compute_gradients(player, batch, batch_size)
        if getattr(optimizer, "needs_closure", False):
            optimizer.step(lambda: self._compute_gradients(player, batch, batch_size)["loss"])  # type: ignore[arg-type, return-value]
        elif scaler.is_enabled():
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        self.objective.after_step(player.name)
        self._accumulate_losses(player, losses, batch_size)

    def _compute_gradients(self, player: Player, batch: Batch, batch_size: int) -> dict[str, Tensor]:
        """The gradient of the whole batch's mean loss.

        Each micro-batch is weighed by its share of the whole batch's examples, n_i / N, and gradients are summed over
        micro-batches and processes. Since L = Σ_i (n_i / N) L_i, that is exactly the gradient of one large batch, even
        where the last micro-batch or a process has fewer examples; a plain mean of the L_i would not be.
        """
        optimizer, parameters = self.optimizers[player.name], self.parameters[player.name]
        optimizer.zero_grad(set_to_none=True)
        total: dict[str, Tensor] = {}
        for micro, share in self._micro_batches(batch, batch_size):
            with self.precision.autocast():
                losses = self.loss_functions[player.name](micro, player.name)
            loss = losses["loss"] if share == 1 else losses["loss"] * share
            self.precision.scaler.scale(loss).backward()
            for name, loss_part in losses.items():
                weighed = loss_part.detach() if share == 1 else loss_part.detach() * share
                total[name] = total[name] + weighed if name in total else weighed
        self.group.sum_gradients(parameters)
        if self.check_every_step:
            self._check_finite(total)
        norm, value = self.experiment.clip_norm, self.experiment.clip_value
        if norm is not None or value is not None:
            self.precision.unscale(optimizer)  # gradients are clipped without the loss scale
            clip_gradients(parameters, norm=norm, value=value)
        return total

    def _micro_batches(self, batch: Batch, batch_size: int) -> list[tuple[Batch, float]]:
        num_micro_batches = self.experiment.accumulate
        n = len(next(iter(batch.values())))
        if num_micro_batches == 1 and n == batch_size:
            return [(batch, 1.0)]
        size = -(-n // num_micro_batches)
        columns = {name: column.split(size) for name, column in batch.items()}
        return [
            ({k: v[i] for k, v in columns.items()}, min(size, n - i * size) / batch_size) for i in range(-(-n // size))
        ]

    def _accumulate_losses(self, player: Player, losses: dict[str, Tensor], batch_size: int) -> None:
        prefix = f"{player.name}/" if len(self.players) > 1 else ""
        for name, loss_part in losses.items():
            key = prefix + name
            if key not in self.loss_sums:
                self.loss_sums[key] = torch.zeros((), device=self.precision.device)
            # mean over the player's steps
            self.loss_sums[key].add_(loss_part, alpha=batch_size / player.steps_per_round)
        self.last_loss = losses["loss"]

    def read_losses(self) -> dict[str, float]:
        """Mean of each part of the loss since the last reading; the only place where training waits for the device."""
        if not self.loss_sums or not self.examples_seen:
            return {}
        # this process's share, scaled up
        values = torch.stack(list(self.loss_sums.values())).mul(self.group.world_size / self.examples_seen).tolist()
        return dict(zip(self.loss_sums, values, strict=True))

    def clear_losses(self) -> None:
        for total in self.loss_sums.values():
            total.zero_()
        self.examples_seen = 0

    def _check_finite(self, losses: Mapping[str, Tensor]) -> None:
        """Raise before a number that is not finite reaches the weights. fp16 overflows are handled by the loss scaler.
        """
        if not self.group.all_reduce(losses["loss"].clone()).isfinite():  # over all processes, so that all of them stop
            raise NonFiniteError("loss")
        if not self.precision.scaler.is_enabled():
            # backward order: the first one that failed
            for name, p in reversed(list(self.objective.named_parameters())):
                if p.grad is not None and not p.grad.isfinite().all():
                    raise NonFiniteError(f"gradient of {name}")

    def _train_only(self, player: Player) -> None:
        """Let gradients reach this player's parameters only."""
        for name, parameters in self.parameters.items():
            for p in parameters:
                p.requires_grad_(name == player.name)

    # CUDA graph: the same Python runs once while CUDA records its kernels; afterwards a round is one launch.
    #
    # A graph replays fixed addresses. So the batch is copied into the tensors that were captured, gradients must stay
    # where they were recorded, and what Python computes (a learning rate, a momentum, a count) is frozen unless it is a
    # tensor on the device. Rounds of another shape run eagerly and replace the gradients: the next replay puts the
    # captured ones back.

    def _can_capture(self) -> bool:
        # a scheduled momentum is a Python number, which capture would freeze
        has_fixed_momentum = self.experiment.schedule.momentum(0, 1) is None
        return (
            self.precision.device.type == "cuda"
            and not self.precision.scaler.is_enabled()
            and self.objective.capturable
            and has_fixed_momentum
            and all(can_capture_step(optimizer) for optimizer in self.optimizers.values())
        )

    @contextmanager
    def _on_side_stream(self) -> Iterator[None]:
        """A side stream that waits for the current one and is waited for; without CUDA nothing."""
        if self.precision.device.type != "cuda":
            yield
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    def _capture_graph(self, stored: list[Batch], batch_sizes: list[int]) -> None:
        self.graph_shapes = _batch_shapes(stored)
        self.graph_batches = [{name: column.clone() for name, column in s.items()} for s in stored]
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.streams.augmentation)
        torch.cuda.synchronize()
        # a data loader's thread may pin memory meanwhile
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.run_round(self.graph_batches, batch_sizes)
        self.graph_parameters = [p for parameters in self.parameters.values() for p in parameters]
        self.graph_gradients = [p.grad for p in self.graph_parameters]
        self.graph_last_loss = self.last_loss
        self.gradients_outside_graph = False

    def _replay(self, stored: list[Batch]) -> None:
        for static, stored_batch in zip(self.graph_batches, stored, strict=True):
            torch._foreach_copy_(list(static.values()), list(stored_batch.values()))
        self.graph.replay()
        if self.gradients_outside_graph:  # an eager round has replaced the captured gradients
            for p, gradient in zip(self.graph_parameters, self.graph_gradients, strict=True):
                p.grad = gradient
            self.last_loss, self.gradients_outside_graph = self.graph_last_loss, False


def _optimizer_factory(optimizer: Any, player: Player) -> Callable[[Any], torch.optim.Optimizer]:
    """The player's own optimizer, or the common one."""
    optimizer_factory: Callable[[Any], torch.optim.Optimizer] = (
        optimizer[player.name] if isinstance(optimizer, Mapping) else optimizer
    )
    return optimizer_factory


def _flatten_groups(parameters: list[Any]) -> list[nn.Parameter]:
    """Parameters out of optimizer groups."""
    return [p for entry in parameters for p in (entry["params"] if isinstance(entry, dict) else [entry])]


def _batch_shapes(stored: list[Batch]) -> list[dict[str, torch.Size]]:
    return [{name: column.shape for name, column in s.items()} for s in stored]
