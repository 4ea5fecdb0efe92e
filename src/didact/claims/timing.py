"""How long things take: what is timed, on the given device, and ratios of times, since seconds of another machine do not compare.

A subject takes a device and a configuration and returns the call that is timed; the grids of a benchmark name it as others name a recipe.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
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

ROUNDS = 5
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


def cost(call: Call, device: torch.device, *, warmup: int, calls: int) -> Cost:
    """The median over rounds of calls, once caches and clocks have settled: what else the machine does disturbs some of them."""
    for _ in range(warmup):
        call()
    synchronise(device)
    held = most(device, anew=True)
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(ceil(calls / ROUNDS)):
            call()
        synchronise(device)
        seconds.append((time.perf_counter() - start) / ceil(calls / ROUNDS))
    return Cost(median(seconds), most(device) - held)


def most(device: torch.device, *, anew: bool = False) -> int:
    """Most bytes held on a GPU so far, or from now on."""
    if device.type != "cuda":
        return 0
    if anew:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


def timed(table: Table, device: torch.device, *, seed: int = 0, tell: Tell = silent) -> dict[str, float]:
    """Every configuration in one go, then the number of each cell."""
    wanted = [(grid, at) for grid in table.grids for at in grid.configurations]
    costs: list[tuple[Mapping[str, Any], Cost]] = []
    for number, (grid, at) in enumerate(wanted, start=1):
        tell("cell", {"number": number, "of": len(wanted), "cell": at, "seed": seed})
        given = {**grid.given, **at}
        times = {name: given.pop(name) for name in ("warmup", "calls")}
        try:
            costs.append((at, cost(SUBJECTS[grid.recipe](device, **given), device, **times)))
        except torch.OutOfMemoryError:
            raise UsageError(f"table {table.name} expects more memory than {describe(device)} has; take a larger one ({at})") from None
    return {cell.name: ratio(cell, costs) for cell in table.cells}


def ratio(cell: Cell, costs: Sequence[tuple[Mapping[str, Any], Cost]]) -> float:
    """What the cell's configuration takes over what the other takes; or the share that it saves."""
    own, other = (float(getattr(next(c for at, c in costs if at == wanted), cell.reading.split)) for wanted in (cell.at, cell.over))
    return 1 - own / other if cell.reading.metric == "saved" else own / other
