"""Positional encodings: attention does not know the order of tokens; positions are added to them, or rotate queries and
keys.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from didact.errors import UsageError


def sinusoidal_table(n: int, dim: int, *, base: float = 10_000.0) -> Tensor:
    """PE[p, 2i] = sin(p / base^(2i/D)), PE[p, 2i+1] = cos(same), (n, D).  Vaswani et al. 2017; Gaba eq. 7.4-7.5.

    PE[p + k] is PE[p] rotated by angles that depend on k alone (Gaba eq. 7.6-7.7).
    """
    angle = position_angles(torch.arange(n), dim + dim % 2, base=base)             # (n, ⌈D/2⌉)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :dim]


def position_angles(positions: Tensor, dim: int, *, base: float = 10_000.0) -> Tensor:
    """p · base^(−2i/D) for i < D/2: (…,) -> (…, D/2)."""
    i = torch.arange(dim // 2, device=positions.device, dtype=torch.float32)
    return positions[..., None].float() * base ** (-2 * i / dim)


class SinusoidalPositions(nn.Module):
    """x + PE, for sequences of up to `context_length` tokens; without parameters."""

    table: Tensor

    def __init__(self, context_length: int, dim: int):
        super().__init__()
        self.register_buffer("table", sinusoidal_table(context_length, dim), persistent=False)

    def forward(self, x: Tensor) -> Tensor:                  # (B, S, D)
        return x + take_positions(self.table, x.shape[1])


class LearnedPositions(nn.Module):
    """x + P, a learned vector for each of `context_length` positions.  Gaba 7.5 (ViT), Radford et al. 2018 (GPT)."""

    def __init__(self, context_length: int, dim: int):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(context_length, dim))

    def forward(self, x: Tensor) -> Tensor:                  # (B, S, D)
        return x + take_positions(self.table, x.shape[1])


def take_positions(table: Tensor, n: int) -> Tensor:
    """The first n rows of a table of positions; more than it has are refused."""
    if n > len(table):
        raise UsageError(f"this model reads {len(table)} tokens at most, got {n}")
    return table[:n]


class RotaryAngles(NamedTuple):
    """Cosine and sine of each position's angles, both (S, d/2)."""

    cos: Tensor
    sin: Tensor


def rotary_angles(positions: Tensor, dim: int, *, base: float = 10_000.0) -> RotaryAngles:
    """The angles p · base^(−2i/d) of a head of width d."""
    if dim % 2:
        raise UsageError(f"rotary positions rotate pairs of numbers: the width of a head must be even, got {dim}")
    angle = position_angles(positions, dim, base=base)
    return RotaryAngles(angle.cos(), angle.sin())


def apply_rotary(x: Tensor, angles: RotaryAngles) -> Tensor:
    """Rotary position embedding (RoPE): (x_i, x_{i+d/2}) rotated by p θ_i, (…, S, d); q·k then depends on p_q − p_k
    alone.

    Su et al. 2021. Halves are paired, as in LLaMA's published weights; Gaba 7.10 and the paper pair neighbors
    (`apply_rotary_interleaved`), which is the same up to the order of the columns.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos.to(x.dtype), angles.sin.to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def apply_rotary_interleaved(x: Tensor, angles: RotaryAngles) -> Tensor:
    """RoPE with pairs of neighbors, (x_2i, x_2i+1).  Gaba 7.10."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos.to(x.dtype), angles.sin.to(x.dtype)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
