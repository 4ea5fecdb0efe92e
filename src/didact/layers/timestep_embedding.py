"""Timestep embedding: the noise level as a vector, for networks that denoise."""

import torch
from torch import Tensor, nn

from didact.layers.positional import position_angles


def timestep_features(t: Tensor, dim: int) -> Tensor:
    """[sin(t ω_i), cos(t ω_i)], ω_i = 10000^(−2i/D): (B,) -> (B, D), the sines first.  Gaba 10.8, eq. 10.19."""
    angle = position_angles(t, dim + dim % 2)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :dim]


class TimestepEmbedding(nn.Module):
    """W2 silu(W1 features(1000 t)), t from 0 (no noise) to 1 (noise alone), for any number of diffusion steps."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim
        self.w1, self.w2 = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, t: Tensor) -> Tensor:                              # (B,) -> (B, dim)
        y: Tensor = self.w2(nn.functional.silu(self.w1(timestep_features(1000 * t, self.dim))))
        return y
