"""Benchmarks of the courses' claims about time: calls are timed on one device, and ratios of times are compared.

Seconds of another machine do not compare. A subject takes a device and a configuration and returns the call that is
timed; the grids of a benchmark name it as other grids name a recipe.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims.measured_table import Cell, MeasuredTable
from didact.errors import UsageError
from didact.layers.attention.multihead import dot_product_attention, fused_attention
from didact.layers.recurrent.recurrent import Recurrent
from didact.models.tabular.mlp import MLP
from didact.models.vision.resnet import ResNet
from didact.training.device import describe_device, synchronize
from didact.training.experiment import EventCallback, ignore_events

NUM_ROUNDS = 7
WARMUP_S, MIN_ROUND_S = 0.2, 0.02   # seconds of warm-up calls, and at least of a round
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class MultiHeadAttention(nn.Module):
    """[head_1 … head_h] W_O with dropout on the attention weights and no biases.  Gaba 6.9."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.q, self.k, self.v, self.o = (nn.Linear(embed_dim, embed_dim, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:                                                       # (B, S, D)
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        # with the autograd graph, as there
        a = F.dropout((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1), self.dropout, self.training)
        y: Tensor = self.o((a @ v).transpose(1, 2).flatten(2))
        return y


TimedCall = Callable[[], Any]


def multi_head_attention(
    device: torch.device, *, dim: int, heads: int, batch: int, length: int, dropout: float
) -> TimedCall:
    """The module of Gaba 6.9 in training mode, forward, as the benchmark of 6.11 calls it."""
    module, x = MultiHeadAttention(dim, heads, dropout).to(device), torch.randn(batch, length, dim, device=device)
    return lambda: module(x)


def scaled_dot_product(
    device: torch.device, *, form: str, precision: str, length: int, batch: int, heads: int, dim: int
) -> TimedCall:
    """softmax(QKᵀ/√d)V forward, with its n × n matrix (explicit) or in PyTorch's kernel without it (fused)."""
    q, k, v = torch.randn(3, batch, heads, length, dim, device=device, dtype=DTYPES[precision])
    return (lambda: fused_attention(q, k, v)) if form == "fused" else lambda: dot_product_attention(q, k, v)


def recurrent_layer(
    device: torch.device, *, cell: str, hidden: int, layers: int, width: int, batch: int, length: int
) -> TimedCall:
    """A recurrent layer forward and backward."""
    net, x = (
        Recurrent(cell, width, hidden, num_layers=layers).to(device),
        torch.randn(batch, length, width, device=device),
    )
    return lambda: torch.autograd.grad(net(x)[0].sum(), list(net.parameters()))


def classifier(device: torch.device, *, network: str, batch: int) -> TimedCall:
    """Inference of a classifier on a batch: three layers of 1024, or ResNet-18 on images of 224 × 224."""
    net: nn.Module = MLP(1024, 1024, hidden=(1024, 1024)) if network == "mlp" else ResNet()
    x = torch.randn(batch, *((1024,) if network == "mlp" else (3, 224, 224)), device=device)
    net = net.to(device).eval().requires_grad_(False)
    return lambda: net(x)


TIMED_CALLS: dict[str, Callable[..., TimedCall]] = {
    f.__name__: f for f in (multi_head_attention, scaled_dot_product, recurrent_layer, classifier)
}


@dataclass(frozen=True)
class CallCost:
    """Cost of one call: seconds, and peak bytes besides those of its input; 0 where the device does not report them."""

    time: float
    memory: int


@dataclass
class TimedConfiguration:
    """A configuration to time: its call, the number of calls per round, and the seconds of each round."""

    configuration: Mapping[str, Any]
    call: TimedCall
    calls_per_round: int
    seconds: list[float] = field(default_factory=list)
    memory: int = 0

    def warm_up(self, device: torch.device, warmup: int) -> None:
        """Warm up until caches and clocks have settled; short calls are timed together in one round."""
        start, count = time.perf_counter(), 0
        while count < warmup or time.perf_counter() - start < WARMUP_S:
            self.call()
            synchronize(device)
            count += 1
        self.calls_per_round = max(self.calls_per_round, ceil(MIN_ROUND_S * count / (time.perf_counter() - start)))
        memory_before = _peak_memory(device, reset=True)
        self.call()
        synchronize(device)
        self.memory = _peak_memory(device) - memory_before

    def run_round(self, device: torch.device) -> None:
        """Time one round of calls."""
        start = time.perf_counter()
        for _ in range(self.calls_per_round):
            self.call()
        synchronize(device)
        self.seconds.append((time.perf_counter() - start) / self.calls_per_round)

    @property
    def cost(self) -> CallCost:
        # the minimum: other work on the machine only ever adds time
        return CallCost(min(self.seconds), self.memory)


def _peak_memory(device: torch.device, *, reset: bool = False) -> int:
    """Peak bytes allocated on a GPU so far; `reset` starts counting anew."""
    if device.type != "cuda":
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


def time_table(
    table: MeasuredTable,
    device: torch.device,
    *,
    seed: int = 0,
    seeds: Sequence[int] = (0,),
    on_event: EventCallback = ignore_events,
) -> dict[str, float]:
    """Time every configuration, then compute the number of each cell.

    Configurations take turns, round by round, so that other work on the machine disturbs all of them alike.
    """
    configurations, timed_configurations = (
        [(grid, configuration) for grid in table.grids for configuration in grid.configurations],
        list[TimedConfiguration](),
    )
    for number, (grid, configuration) in enumerate(configurations, start=1 + len(configurations) * seeds.index(seed)):
        on_event(
            "measure", {"number": number, "of": len(configurations) * len(seeds), "cell": configuration, "seed": seed}
        )
        options = {**grid.fixed, **configuration}
        warmup, calls = options.pop("warmup"), options.pop("calls")
        try:
            timed_configurations.append(
                TimedConfiguration(configuration, TIMED_CALLS[grid.recipe](device, **options), ceil(calls / NUM_ROUNDS))
            )
            timed_configurations[-1].warm_up(device, warmup)
        except torch.OutOfMemoryError:
            raise UsageError(
                f"table {table.name} needs more memory than {describe_device(device)} has; use a larger device "
                f"({configuration})"
            ) from None
    for number in range(1, NUM_ROUNDS + 1):
        on_event("round", {"number": number, "of": NUM_ROUNDS, "seed": seed})
        for timed in timed_configurations:
            timed.run_round(device)
    costs = [(timed.configuration, timed.cost) for timed in timed_configurations]
    return {cell.name: _compute_time_ratio(cell, costs) for cell in table.cells}


def _compute_time_ratio(cell: Cell, costs: Sequence[tuple[Mapping[str, Any], CallCost]]) -> float:
    """Cost of the cell's configuration over that of its baseline; or the fraction that it saves."""
    own_cost, baseline_cost = (
        float(
            getattr(next(c for configuration, c in costs if configuration == cell_configuration), cell.reading.split)
        )
        for cell_configuration in (cell.configuration, cell.baseline)
    )
    return 1 - own_cost / baseline_cost if cell.reading.metric == "saved" else own_cost / baseline_cost
