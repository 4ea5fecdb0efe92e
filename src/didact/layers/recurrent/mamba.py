"""Mamba, a selective state-space model (Gu & Dao 2023): a linear recurrence with input-dependent steps, computed for
all times at once.

    h_t = exp(Δ_t A) h_{t−1} + Δ_t B_t x_t,    y_t = C_t·h_t + D x_t

Δ, B and C are functions of x; A is learned but constant in time, contrary to what Gaba 5.10 says (mistake M32).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.recurrent.cells import Gates, State


def scan(a: Tensor, b: Tensor) -> Tensor:
    """Parallel scan: h_t = a_t h_{t−1} + b_t, h_0 = 0, over dimension 1, in ⌈log₂ T⌉ rounds.  Hillis & Steele 1986,
    Blelloch 1990.
    """
    h: Tensor = _ScanFunction.apply(a, b) if b.shape[1] > 1 else b  # type: ignore[no-untyped-call]
    return h


class _ScanFunction(torch.autograd.Function):
    """g_t = dh_t + a_{t+1} g_{t+1}, the same recurrence backward in time;  db_t = g_t,  da_t = g_t h_{t−1}.

    Only a and h are saved for the backward pass, not the rounds.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        h = _hillis_steele_scan(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        a, h = ctx.saved_tensors
        next_a = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], dim=1)
        g = _hillis_steele_scan(next_a.flip(1), grads[0].flip(1)).flip(1)
        return g * torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1), g


def _hillis_steele_scan(a: Tensor, b: Tensor) -> Tensor:
    """After each round a pair (a, b) stands for twice as many steps, since two steps are one.

    (a₂, b₂)∘(a₁, b₁) = (a₂ a₁, a₂ b₁ + b₂)
    """
    b, span = b.clone(), 1
    while span < a.shape[1]:
        # the product is computed as a whole before b is changed in place
        b[:, span:] += a[:, span:] * b[:, :-span]
        if 2 * span < a.shape[1]:
            a = torch.cat([a[:, :span], a[:, span:] * a[:, :-span]], dim=1)
        span *= 2
    return b


def sequential_scan(a: Tensor, b: Tensor) -> Tensor:
    """The same as `scan`, step by step."""
    h, states = torch.zeros_like(b[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        h = a_t * h + b_t
        states.append(h)
    return torch.stack(states, dim=1)


def selective_scan(
    x: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    initial_state: Tensor | None = None,
    *,
    parallel: bool = True,
) -> tuple[Tensor, Tensor]:
    """The equations above: x, Δ (B, T, D); A (D, N); B, C (B, T, N); D (D,)  ->  y (B, T, D), and the final h, (B, D,
    N).
    """
    decay = torch.exp(delta[..., None] * a)                                   # (B, T, D, N)
    drive = (delta * x)[..., None] * b[:, :, None]
    # h_0 enters as one more term of the first step
    if initial_state is not None:
        drive = torch.cat([drive[:, :1] + decay[:, :1] * initial_state[:, None], drive[:, 1:]], dim=1)
    h = (scan if parallel else sequential_scan)(decay, drive)
    return torch.einsum("btdn,btn->btd", h, c) + d * x, h[:, -1]


class Mamba(nn.Module):
    """y = W_out (ssm(silu(conv(x₁))) ⊙ silu(x₂)), [x₁, x₂] = W_in u.  Figure 3 of the paper; names and shapes of its
    weights.
    """

    def __init__(self, dim: int, *, state_dim: int = 16, kernel_size: int = 4, expand: int = 2):
        super().__init__()
        inner_dim, dt_rank = expand * dim, -(-dim // 16)
        self.sizes = dt_rank, state_dim, state_dim
        self.in_proj = nn.Linear(dim, 2 * inner_dim, bias=False)
        self.conv1d = nn.Conv1d(inner_dim, inner_dim, kernel_size, groups=inner_dim)
        self.x_proj = nn.Linear(inner_dim, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(dt_rank, inner_dim)
        self.A_log = nn.Parameter(torch.arange(1, state_dim + 1).float().log().repeat(inner_dim, 1))
        self.D = nn.Parameter(torch.ones(inner_dim))
        self.out_proj = nn.Linear(inner_dim, dim, bias=False)
        # Δ starts between 0.001 and 0.1, uniform in its logarithm: b = softplus⁻¹(Δ)
        delta = torch.exp(torch.empty(inner_dim).uniform_(-6.9, -2.3))
        self.dt_proj.bias.data.copy_(delta + torch.log(-torch.expm1(-delta)))

    def forward(self, u: Tensor, *, parallel: bool = True) -> Tensor:         # (B, T, D)
        return self.forward_from_state(u, self.initial_state(len(u)), parallel=parallel)[0]

    def initial_state(self, batch_size: int) -> State:
        """The state before the first token, all 0: inputs under the convolution, (B, inner, kernel − 1), and h, (B,
        inner, N).
        """
        inner_dim, kernel_size = len(self.D), self.conv1d.kernel_size[0]
        return self.D.new_zeros(batch_size, inner_dim, kernel_size - 1), self.D.new_zeros(batch_size, *self.A_log.shape)

    def forward_from_state(self, u: Tensor, state: State, *, parallel: bool = True) -> tuple[Tensor, State]:
        """The output from a given state, and the new state."""
        x, z, conv_state = self.project_input(u, state[0])
        delta, b, c = self.select_parameters(x)
        y, h = selective_scan(x, delta, -torch.exp(self.A_log), b, c, self.D, state[1], parallel=parallel)
        out: Tensor = self.out_proj(y * F.silu(z))
        return out, (conv_state, h)

    def project_input(self, u: Tensor, past_inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x and z, (B, T, inner), and the last inputs of the convolution, which the next token needs."""
        x, z = self.in_proj(u).chunk(2, dim=-1)
        # past inputs as padding on the left, none on the right: a causal convolution
        extended = torch.cat([past_inputs, x.mT], dim=-1)
        return F.silu(self.conv1d(extended).mT), z, extended[..., u.shape[1] :]

    def select_parameters(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Δ, B and C as functions of the input."""
        dt, b, c = self.x_proj(x).split(self.sizes, dim=-1)
        return F.softplus(self.dt_proj(dt)), b, c

    def compute_decay(self, u: Tensor) -> Tensor:
        """exp(Δ_t A), the decay of each number of h, (B, T, inner, N): ∂h_t/∂h_{t−1} is diagonal."""
        delta, _, _ = self.select_parameters(self.project_input(u, self.initial_state(len(u))[0])[0])
        return torch.exp(-delta[..., None] * torch.exp(self.A_log))

    def compute_gates(self, u: Tensor) -> Gates:
        """The decay of h at each step, mean of its N numbers, and the output gate, both (B, T, inner)."""
        _, z, _ = self.project_input(u, self.initial_state(len(u))[0])
        return {"keep": self.compute_decay(u).mean(-1), "output": z.sigmoid()}
