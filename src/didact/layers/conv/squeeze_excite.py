"""Squeeze-and-excitation (channel attention): weight every feature map by what the whole image holds."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def squeeze_excite(
    x: Tensor, w1: nn.Module, w2: nn.Module, activation: Callable[[Tensor], Tensor] = torch.relu
) -> Tensor:
    """s * x, s = sigmoid(W2 activation(W1 z)), z = mean_HW(x); W1 and W2 are 1 x 1 convolutions, as in EfficientNet's
    weights.
    """
    z = x.mean(dim=(2, 3), keepdim=True)                               # (B, C, H, W) -> (B, C, 1, 1)
    s = torch.sigmoid(w2(activation(w1(z))))                           # (B, C, 1, 1), each in (0, 1)
    return s * x


class SqueezeExcite(nn.Module):
    """z = mean_HW(x), s = sigmoid(W2 relu(W1 z)), y = s * x.  Hu et al. 2018, eqs. 2-4."""

    def __init__(self, channels: int, *, reduction: int = 16):
        super().__init__()
        hidden = max(1, channels // reduction)
        self.w1 = nn.Conv2d(channels, hidden, 1)
        self.w2 = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return squeeze_excite(x, self.w1, self.w2)
