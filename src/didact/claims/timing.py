"""How long things take: what is timed, on the given device, and ratios of times, since seconds of another machine do not compare.

A subject takes a device and a configuration and returns the call that is timed; the grids of a benchmark name it as others name a recipe.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims.table import Cell, Table
from didact.errors import UsageError
from didact.layers.attention import attention, fused
from didact.layers.recurrent import Recurrent
from didact.models.mlp import MLP
from didact.models.resnet import ResNet
from didact.train.loop import Tell, silent
from didact.train.machine import describe, synchronise

ROUNDS = 7
SETTLING, LEAST = 0.2, 0.02   # seconds of calls before any is timed, and of a round
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


class MultiHeadAttention(nn.Module):
    """[head_1 … head_h] W_O with weights that are dropped out and no biases.  Gaba 6.9."""

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:                                                       # (B, S, D)
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.dropout((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1), self.dropout, self.training)   # the graph is kept, as there
        y: Tensor = self.o((a @ v).transpose(1, 2).flatten(2))
        return y


Call = Callable[[], Any]


def multi_head(device: torch.device, *, dim: int, heads: int, batch: int, length: int, dropout: float) -> Call:
    """The module of Gaba 6.9 in training mode, forward, as the benchmark of 6.11 calls it."""
    module, x = MultiHeadAttention(dim, heads, dropout).to(device), torch.randn(batch, length, dim, device=device)
    return lambda: module(x)


def attending(device: torch.device, *, form: str, precision: str, length: int, batch: int, heads: int, dim: int) -> Call:
    """softmax(QKᵀ/√d)V forward, with its n × n matrix (explicit) or in PyTorch's kernel without it (fused)."""
    q, k, v = torch.randn(3, batch, heads, length, dim, device=device, dtype=PRECISIONS[precision])
    return (lambda: fused(q, k, v)) if form == "fused" else lambda: attention(q, k, v)


def recurring(device: torch.device, *, cell: str, hidden: int, layers: int, width: int, batch: int, length: int) -> Call:
    """A recurrent layer forward and backward."""
    net, x = Recurrent(cell, width, hidden, layers=layers).to(device), torch.randn(batch, length, width, device=device)
    return lambda: torch.autograd.grad(net(x)[0].sum(), list(net.parameters()))


def classifying(device: torch.device, *, network: str, batch: int) -> Call:
    """A classifier asked for a batch: three layers of 1024, or ResNet-18 on images of 224 × 224."""
    net: nn.Module = MLP(1024, 1024, hidden=(1024, 1024)) if network == "mlp" else ResNet()
    x = torch.randn(batch, *((1024,) if network == "mlp" else (3, 224, 224)), device=device)
    net = net.to(device).eval().requires_grad_(False)
    return lambda: net(x)


SUBJECTS: dict[str, Callable[..., Call]] = {f.__name__: f for f in (multi_head, attending, recurring, classifying)}


@dataclass(frozen=True)
class Cost:
    """Of one call: seconds, and bytes at most beside those of its input; 0 where the device does not tell."""

    time: float
    memory: int


@dataclass
class Timed:
    """A configuration under the clock: its call, how often it is called in a round, and what each round gave."""

    at: Mapping[str, Any]
    call: Call
    often: int
    seconds: list[float] = field(default_factory=list)
    memory: int = 0

    def settle(self, device: torch.device, warmup: int) -> None:
        """Until caches and clocks have settled; short calls are taken together, since a clock is read between them."""
        started, count = time.perf_counter(), 0
        while count < warmup or time.perf_counter() - started < SETTLING:
            self.call()
            synchronise(device)
            count += 1
        self.often = max(self.often, ceil(LEAST * count / (time.perf_counter() - started)))
        held = most(device, anew=True)
        self.call()
        synchronise(device)
        self.memory = most(device) - held

    def round(self, device: torch.device) -> None:
        started = time.perf_counter()
        for _ in range(self.often):
            self.call()
        synchronise(device)
        self.seconds.append((time.perf_counter() - started) / self.often)

    @property
    def cost(self) -> Cost:
        return Cost(min(self.seconds), self.memory)   # whatever else the machine does adds to the time and never takes from it


def most(device: torch.device, *, anew: bool = False) -> int:
    """Most bytes held on a GPU so far, or from now on."""
    if device.type != "cuda":
        return 0
    if anew:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


def timed(table: Table, device: torch.device, *, seed: int = 0, seeds: Sequence[int] = (0,), tell: Tell = silent) -> dict[str, float]:
    """Every configuration, then the number of each cell. They take turns: what else the machine does disturbs all of them alike."""
    wanted, subjects = [(grid, at) for grid in table.grids for at in grid.configurations], list[Timed]()
    for number, (grid, at) in enumerate(wanted, start=1 + len(wanted) * seeds.index(seed)):
        tell("measure", {"number": number, "of": len(wanted) * len(seeds), "cell": at, "seed": seed})
        given = {**grid.given, **at}
        warmup, calls = given.pop("warmup"), given.pop("calls")
        try:
            subjects.append(Timed(at, SUBJECTS[grid.recipe](device, **given), ceil(calls / ROUNDS)))
            subjects[-1].settle(device, warmup)
        except torch.OutOfMemoryError:
            raise UsageError(f"table {table.name} expects more memory than {describe(device)} has; take a larger one ({at})") from None
    for number in range(1, ROUNDS + 1):
        tell("round", {"number": number, "of": ROUNDS, "seed": seed})
        for subject in subjects:
            subject.round(device)
    costs = [(subject.at, subject.cost) for subject in subjects]
    return {cell.name: ratio(cell, costs) for cell in table.cells}


def ratio(cell: Cell, costs: Sequence[tuple[Mapping[str, Any], Cost]]) -> float:
    """What the cell's configuration takes over what the other takes; or the share that it saves."""
    own, other = (float(getattr(next(c for at, c in costs if at == wanted), cell.reading.split)) for wanted in (cell.at, cell.over))
    return 1 - own / other if cell.reading.metric == "saved" else own / other
