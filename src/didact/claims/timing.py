"""How long multi-head attention takes: the module of Gaba 6.9 in training mode, as the benchmark of 6.11 calls it."""

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims.table import Grid
from didact.train.loop import Tell, silent
from didact.train.machine import synchronise

BASE = (512, 8)


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


def seconds(dim: int, heads: int, device: torch.device, *, batch: int, length: int, dropout: float, warmup: int, calls: int) -> float:
    """Mean time of a forward pass."""
    module, x = MultiHeadAttention(dim, heads, dropout).to(device), torch.randn(batch, length, dim, device=device)
    for call in range(warmup + calls):
        if call == warmup:
            synchronise(device)
            start = time.perf_counter()
        module(x)
    synchronise(device)
    return (time.perf_counter() - start) / calls


def ratios(grid: Grid, device: torch.device, *, seed: int = 0, tell: Tell = silent) -> dict[tuple[int, int], float]:
    """The time of each (width, heads) over that of (512, 8), measured in one go."""
    given: dict[str, Any] = dict(grid.given)
    found, pairs = dict[tuple[int, int], float](), grid.axes["dim_heads"]
    for number, (dim, heads) in enumerate(pairs, start=1):
        tell("cell", {"number": number, "of": len(pairs), "cell": {"width": dim, "heads": heads}, "seed": seed})
        found[dim, heads] = seconds(dim, heads, device, **given)
    return {pair: t / found[BASE] for pair, t in found.items()}
