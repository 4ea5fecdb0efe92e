"""Inception v3 (Szegedy et al. 2016), in whose features images are compared; under the names of the published files.

    299×299 -> stem -> 3 × A (35×35) -> B -> 4 × C (17×17) -> D -> 2 × E (8×8) -> mean: 2048 features -> affine -> classes
"""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 299
FIRST = 1008   # classes of the network that FID was first computed with, 2015-12-05; torchvision's have 1000
Kernel = int | tuple[int, int]


class ConvNormReLU(nn.Module):
    """relu(BN(W * x)); what keeps its size is padded, what halves it is not."""

    def __init__(self, n_in: int, n_out: int, kernel: Kernel, stride: int = 1, padded: bool = True):
        super().__init__()
        h, w = (kernel, kernel) if isinstance(kernel, int) else kernel
        pad = (h // 2, w // 2) if stride == 1 and padded else (0, 0)
        self.conv = nn.Conv2d(n_in, n_out, (h, w), stride=stride, padding=pad, bias=False)
        self.bn = nn.BatchNorm2d(n_out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


Step = tuple[str, int, Kernel]   # name, channels, kernel
WIDE, TALL = (1, 7), (7, 1)


def a(pool: int) -> list[list[Step]]:
    return [[("branch1x1", 64, 1)], [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5)],
            [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)], [("branch_pool", pool, 1)]]


def c(n: int) -> list[list[Step]]:
    return [[("branch1x1", 192, 1)], [("branch7x7_1", n, 1), ("branch7x7_2", n, WIDE), ("branch7x7_3", 192, TALL)],
            [("branch7x7dbl_1", n, 1), ("branch7x7dbl_2", n, TALL), ("branch7x7dbl_3", n, WIDE), ("branch7x7dbl_4", n, TALL),
             ("branch7x7dbl_5", 192, WIDE)], [("branch_pool", 192, 1)]]


B: list[list[Step]] = [[("branch3x3", 384, 3)], [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)]]
D: list[list[Step]] = [
    [("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3)],
    [("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, WIDE), ("branch7x7x3_3", 192, TALL), ("branch7x7x3_4", 192, 3)],
]


class Mixture(nn.Module):
    """Chains of convolutions side by side, and a pooled way: averaged and convolved (the last chain), or the largest of it alone.

    Where it halves, the last convolution of each chain does. `first`: the network of 2015 leaves the border out of its averages.
    """

    def __init__(self, n_in: int, chains: list[list[Step]], *, halves: bool = False, first: bool = False):
        super().__init__()
        self.chains, self.halves, self.first = [[name for name, _, _ in chain] for chain in chains], halves, first
        self.channels = n_in * halves + sum(chain[-1][1] for chain in chains)
        for chain in chains:
            widths = [n_in, *(n for _, n, _ in chain)]
            for (before, n), (name, _, kernel) in zip(pairwise(widths), chain, strict=True):
                self.add_module(name, ConvNormReLU(before, n, kernel, stride=2 if halves and name == chain[-1][0] else 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.halves:
            return torch.cat([*(self.along(chain, x) for chain in self.chains), F.max_pool2d(x, 3, 2)], dim=1)
        *ways, pool = self.chains
        mean = F.avg_pool2d(x, 3, 1, 1, count_include_pad=not self.first)
        return torch.cat([*(self.along(way, x) for way in ways), self.along(pool, mean)], dim=1)

    def along(self, chain: list[str], x: Tensor) -> Tensor:
        for name in chain:
            x = self.get_submodule(name)(x)
        return x


class Fork(nn.Module):
    """E: two of its chains end in a fork of 1×3 and 3×1. `largest`: the last of the network of 2015 pools by the largest."""

    channels = 2048

    def __init__(self, n_in: int, *, first: bool = False, largest: bool = False):
        super().__init__()
        self.first, self.largest = first, largest
        self.branch1x1 = ConvNormReLU(n_in, 320, 1)
        self.branch3x3_1 = ConvNormReLU(n_in, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = ConvNormReLU(384, 384, (1, 3)), ConvNormReLU(384, 384, (3, 1))
        self.branch3x3dbl_1, self.branch3x3dbl_2 = ConvNormReLU(n_in, 448, 1), ConvNormReLU(448, 384, 3)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = ConvNormReLU(384, 384, (1, 3)), ConvNormReLU(384, 384, (3, 1))
        self.branch_pool = ConvNormReLU(n_in, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pool = F.max_pool2d(x, 3, 1, 1) if self.largest else F.avg_pool2d(x, 3, 1, 1, count_include_pad=not self.first)
        ends = [self.branch3x3_2a(u), self.branch3x3_2b(u), self.branch3x3dbl_3a(v), self.branch3x3dbl_3b(v)]
        return torch.cat([self.branch1x1(x), *ends, self.branch_pool(pool)], dim=1)


class InceptionV3(nn.Module):
    """(B, 3, 299, 299) -> (B, classes); 23,834,568 parameters for 1000 classes, without the head that helped training."""

    def __init__(self, *, classes: int = 1000):
        super().__init__()
        first = classes == FIRST
        self.Conv2d_1a_3x3 = ConvNormReLU(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = ConvNormReLU(32, 32, 3, padded=False)
        self.Conv2d_2b_3x3 = ConvNormReLU(32, 64, 3)
        self.Conv2d_3b_1x1 = ConvNormReLU(64, 80, 1)
        self.Conv2d_4a_3x3 = ConvNormReLU(80, 192, 3, padded=False)
        self.mixed, n = list[str](), 192
        for name, chains in (("5b", a(32)), ("5c", a(64)), ("5d", a(64)), ("6a", B), ("6b", c(128)), ("6c", c(160)), ("6d", c(160)),
                             ("6e", c(192)), ("7a", D)):
            block = Mixture(n, chains, halves=name in ("6a", "7a"), first=first)
            self.add_module(f"Mixed_{name}", block)
            self.mixed.append(f"Mixed_{name}")
            n = block.channels
        self.Mixed_7b, self.Mixed_7c = Fork(n, first=first), Fork(2048, first=first, largest=first)
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))             # (B, 64, 147, 147)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))             # (B, 192, 71, 71)
        x = F.max_pool2d(x, 3, 2)
        for name in self.mixed:
            x = self.get_submodule(name)(x)
        y: Tensor = self.fc(self.Mixed_7c(self.Mixed_7b(x)).mean((2, 3)))
        return y

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords and an input for it. Not registered: it only looks."""
        return {"classes": 7}, torch.rand(batch, 3, SIDE, SIDE)
