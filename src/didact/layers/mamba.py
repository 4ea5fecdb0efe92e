"""Selective state space (Mamba, Gu & Dao 2023): a linear recurrence whose step depends on the input, computed for all times at once.

    h_t = exp(Δ_t A) h_{t−1} + Δ_t B_t x_t,    y_t = C_t·h_t + D x_t

Δ, B and C are functions of x; A is learned but fixed in time, against what Gaba 5.10 says (mistake M32).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def scan(a: Tensor, b: Tensor) -> Tensor:
    """h_t = a_t h_{t−1} + b_t, h_0 = 0, over dimension 1, in ⌈log₂ T⌉ rounds.  Hillis & Steele 1986, Blelloch 1990.

    After each round a pair (a, b) stands for twice as many steps, since two steps are one: (a₂, b₂)∘(a₁, b₁) = (a₂ a₁, a₂ b₁ + b₂).
    """
    reach = 1
    while reach < a.shape[1]:
        b = torch.cat([b[:, :reach], a[:, reach:] * b[:, :-reach] + b[:, reach:]], dim=1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], dim=1)
        reach *= 2
    return b


def recur(a: Tensor, b: Tensor) -> Tensor:
    """The same, step by step."""
    h, states = torch.zeros_like(b[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        h = a_t * h + b_t
        states.append(h)
    return torch.stack(states, dim=1)


def selective(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, *, parallel: bool = True) -> Tensor:
    """The equations above: x, Δ (B, T, D); A (D, N); B, C (B, T, N); D (D,)  ->  y (B, T, D)."""
    decay = torch.exp(delta[..., None] * a)                                   # (B, T, D, N)
    drive = (delta * x)[..., None] * b[:, :, None]
    h = (scan if parallel else recur)(decay, drive)
    return torch.einsum("btdn,btn->btd", h, c) + d * x


class Mamba(nn.Module):
    """y = W_out (ssm(silu(conv(x₁))) ⊙ silu(x₂)), [x₁, x₂] = W_in u.  Figure 3 of the paper; names and shapes of its weights."""

    def __init__(self, dim: int, *, state: int = 16, kernel: int = 4, expand: int = 2):
        super().__init__()
        inner, rank = expand * dim, -(-dim // 16)
        self.sizes = rank, state, state
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)
        # Δ starts between 0.001 and 0.1, evenly in its logarithm: b = softplus⁻¹(Δ)
        start = torch.exp(torch.empty(inner).uniform_(-6.9, -2.3))
        self.dt_proj.bias.data.copy_(start + torch.log(-torch.expm1(-start)))

    def forward(self, u: Tensor, *, parallel: bool = True) -> Tensor:         # (B, T, D)
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x = F.silu(self.conv1d(x.mT)[..., : u.shape[1]].mT)                   # cut on the right: no look ahead
        dt, b, c = self.x_proj(x).split(self.sizes, dim=-1)
        y = selective(x, F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log), b, c, self.D, parallel=parallel)
        out: Tensor = self.out_proj(y * F.silu(z))
        return out
