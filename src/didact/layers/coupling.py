"""Coupling layers: invertible steps with a known log determinant, of which normalizing flows consist."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AffineCoupling(nn.Module):
    """y = m x + (1 − m)(x e^s + t), (s, t) = net(m x); log |det dy/dx| = Σ (1 − m) s.

    The inputs under the mask m pass unchanged and determine scale and shift of the others, so that the inverse needs no
    inverse of the network.  Dinh et al. 2017, eqs. 7-9; Groudiev 12.2.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, net: nn.Module):
        super().__init__()
        self.register_buffer("mask", mask.float(), persistent=False)
        self.net, self.scale_bound = net, nn.Parameter(torch.ones_like(self.mask))

    def _scale_and_shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        s, t = self.net(self.mask * x).float().chunk(2, dim=1)
        return (1 - self.mask) * self.scale_bound * s.tanh(), (1 - self.mask) * t   # bounded: e^s could overflow early

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        s, t = self._scale_and_shift(x)
        return x * s.exp() + t, s.flatten(1).sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        s, t = self._scale_and_shift(y)
        return (y - t) * (-s).exp()


class Squeeze(nn.Module):
    """Space to channels: squares of 2×2 pixels become channels, (B, C, H, W) -> (B, 4C, H/2, W/2); log det 0."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.pixel_unshuffle(x, 2), x.new_zeros(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        return F.pixel_shuffle(y, 2)


class FlowSequential(nn.ModuleList):
    """y = f_n(… f_1(x)); the log determinants add."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_det = torch.zeros(len(x), device=x.device)
        for step in self:
            x, step_log_det = step(x)
            log_det = log_det + step_log_det
        return x, log_det

    def inverse(self, y: Tensor) -> Tensor:
        for step in reversed(self):
            assert isinstance(step, AffineCoupling | Squeeze)
            y = step.inverse(y)
        return y


def checkerboard_mask(height: int, width: int, parity: int) -> Tensor:
    """1 on the squares of one color: (1, H, W)."""
    return ((torch.arange(height)[:, None] + torch.arange(width) + parity) % 2)[None]


def alternating_mask(n: int, parity: int) -> Tensor:
    """1 0 1 0 … or 0 1 0 1 …: (n,)."""
    return (torch.arange(n) + parity) % 2
