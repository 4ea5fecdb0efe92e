"""Residual blocks: a block adds to its input, so that more depth can always do nothing.

    y = relu(F(x) + skip(x)),   skip = identity, or a 1 x 1 convolution where F changes the shape

With the ReLU after the sum, as here, the identity does not reach from end to end (Gaba Th 4.7, mistake M23). Attribute
names are torchvision's, so that its weights load.
"""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.layers.drop_path import DropPath

Shortcut = Literal["projection", "pad", "none"]
conv3x3 = partial(nn.Conv2d, kernel_size=3, padding=1, bias=False)  # the norm that follows has a bias
conv1x1 = partial(nn.Conv2d, kernel_size=1, bias=False)


class PadShortcut(nn.Module):
    """Every s-th pixel, zeros for the new channels: a skip connection without parameters.  He et al. 2016, option A."""

    def __init__(self, c_in: int, c_out: int, stride: int):
        super().__init__()
        self.extra_channels, self.stride = c_out - c_in, stride

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, self.extra_channels // 2, self.extra_channels - self.extra_channels // 2))


class NoShortcut(nn.Module):
    """skip(x) = 0: the plain network with which residual ones are compared.  Gaba Ex 4.2."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros((), device=x.device, dtype=x.dtype)


def _make_shortcut(c_in: int, c_out: int, stride: int, shortcut: Shortcut) -> nn.Module | None:
    """The skip connection; None is the identity."""
    if shortcut == "none":
        return NoShortcut()
    if stride == 1 and c_in == c_out:
        return None
    if shortcut == "pad":
        return PadShortcut(c_in, c_out, stride)
    return nn.Sequential(conv1x1(c_in, c_out, stride=stride), nn.BatchNorm2d(c_out))


class BasicBlock(nn.Module):
    """F = BN conv3x3 relu BN conv3x3; a stride > 1 downsamples.  He et al. 2016, fig. 5 left; Gaba 4.4.4, eq. 4.7."""

    expansion = 1

    def __init__(
        self, c_in: int, width: int, *, stride: int = 1, shortcut: Shortcut = "projection", drop_path: float = 0.0
    ):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(c_in, width, stride=stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3x3(width, width), nn.BatchNorm2d(width)
        self.downsample = _make_shortcut(c_in, width, stride, shortcut)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:                            # (B, C_in, H, W)
        f = F.relu(self.bn1(self.conv1(x)), inplace=True)              # (B, width, H/stride, W/stride)
        f = self.bn2(self.conv2(f))
        s = x if self.downsample is None else self.downsample(x)
        return torch.relu_(self.drop_path(f) + s)


class Bottleneck(nn.Module):
    """F = BN conv1x1 relu BN conv3x3 relu BN conv1x1: 3 x 3 on a quarter of the channels.  Fleuret 5.2, figs. 5.3-5.4.

    The stride is on the 3 x 3, where it skips no pixel; the paper and Fleuret have it on the first 1 x 1.
    """

    expansion = 4

    def __init__(
        self, c_in: int, width: int, *, stride: int = 1, shortcut: Shortcut = "projection", drop_path: float = 0.0
    ):
        super().__init__()
        c_out = self.expansion * width
        self.conv1, self.bn1 = conv1x1(c_in, width), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride=stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv1x1(width, c_out), nn.BatchNorm2d(c_out)
        self.downsample = _make_shortcut(c_in, c_out, stride, shortcut)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:                            # (B, C_in, H, W)
        f = F.relu(self.bn1(self.conv1(x)), inplace=True)              # (B, width, H, W)
        f = F.relu(self.bn2(self.conv2(f)), inplace=True)              # (B, width, H/stride, W/stride)
        f = self.bn3(self.conv3(f))                                    # (B, 4 width, ...)
        s = x if self.downsample is None else self.downsample(x)
        return torch.relu_(self.drop_path(f) + s)
