"""Inception v3 (Szegedy et al. 2016), whose features FID and KID compare; with the names of the published files.

    299×299 -> stem -> 3 × A (35×35) -> B -> 4 × C (17×17) -> D -> 2 × E (8×8) -> mean: 2048 features -> classes
"""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INPUT_PIXELS = 299
FID_NUM_CLASSES = 1008   # of the network of the first FID, 2015-12-05; torchvision's has 1000
Kernel = int | tuple[int, int]


class ConvNormReLU(nn.Module):
    """relu(BN(W * x)), padded at stride 1 only."""

    def __init__(self, n_in: int, n_out: int, kernel_size: Kernel, stride: int = 1, padded: bool = True):
        super().__init__()
        h, w = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        pad = (h // 2, w // 2) if stride == 1 and padded else (0, 0)
        self.conv = nn.Conv2d(n_in, n_out, (h, w), stride=stride, padding=pad, bias=False)
        self.bn = nn.BatchNorm2d(n_out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


ConvSpec = tuple[str, int, Kernel]   # name, channels, kernel
WIDE, TALL = (1, 7), (7, 1)


def _block_a_branches(pool_channels: int) -> list[list[ConvSpec]]:
    return [
        [("branch1x1", 64, 1)],
        [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5)],
        [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)],
        [("branch_pool", pool_channels, 1)],
    ]


def _block_c_branches(channels: int) -> list[list[ConvSpec]]:
    return [
        [("branch1x1", 192, 1)],
        [("branch7x7_1", channels, 1), ("branch7x7_2", channels, WIDE), ("branch7x7_3", 192, TALL)],
        [
            ("branch7x7dbl_1", channels, 1),
            ("branch7x7dbl_2", channels, TALL),
            ("branch7x7dbl_3", channels, WIDE),
            ("branch7x7dbl_4", channels, TALL),
            ("branch7x7dbl_5", 192, WIDE),
        ],
        [("branch_pool", 192, 1)],
    ]


_BLOCK_B_BRANCHES: list[list[ConvSpec]] = [
    [("branch3x3", 384, 3)],
    [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)],
]
_BLOCK_D_BRANCHES: list[list[ConvSpec]] = [
    [("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3)],
    [("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, WIDE), ("branch7x7x3_3", 192, TALL), ("branch7x7x3_4", 192, 3)],
]


class InceptionBlock(nn.Module):
    """Parallel branches of convolutions, and a pooling branch: mean and convolution, or max pooling alone where it
    downsamples.

    When downsampling, the last convolution of each branch has stride 2. `fid_variant`: the network of 2015 leaves
    padding out of its means.
    """

    def __init__(
        self, n_in: int, branches: list[list[ConvSpec]], *, downsample: bool = False, fid_variant: bool = False
    ):
        super().__init__()
        self.branches = [[name for name, _, _ in branch] for branch in branches]
        self.downsample, self.fid_variant = downsample, fid_variant
        self.out_channels = n_in * downsample + sum(branch[-1][1] for branch in branches)
        for branch in branches:
            widths = [n_in, *(n for _, n, _ in branch)]
            for (n_before, n), (name, _, kernel) in zip(pairwise(widths), branch, strict=True):
                stride = 2 if downsample and name == branch[-1][0] else 1
                self.add_module(name, ConvNormReLU(n_before, n, kernel, stride=stride))

    def forward(self, x: Tensor) -> Tensor:
        if self.downsample:
            return torch.cat([*(self._run_branch(branch, x) for branch in self.branches), F.max_pool2d(x, 3, 2)], dim=1)
        *conv_branches, pool_branch = self.branches
        mean = F.avg_pool2d(x, 3, 1, 1, count_include_pad=not self.fid_variant)
        return torch.cat(
            [*(self._run_branch(names, x) for names in conv_branches), self._run_branch(pool_branch, mean)], dim=1
        )

    def _run_branch(self, branch: list[str], x: Tensor) -> Tensor:
        for name in branch:
            x = self.get_submodule(name)(x)
        return x


class InceptionBlockE(nn.Module):
    """E: two of its branches fork into 1×3 and 3×1. `max_pool`: the last block of the network of 2015 has max pooling.
    """

    out_channels = 2048

    def __init__(self, n_in: int, *, fid_variant: bool = False, max_pool: bool = False):
        super().__init__()
        self.fid_variant, self.max_pool = fid_variant, max_pool
        self.branch1x1 = ConvNormReLU(n_in, 320, 1)
        self.branch3x3_1 = ConvNormReLU(n_in, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = ConvNormReLU(384, 384, (1, 3)), ConvNormReLU(384, 384, (3, 1))
        self.branch3x3dbl_1, self.branch3x3dbl_2 = ConvNormReLU(n_in, 448, 1), ConvNormReLU(448, 384, 3)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = ConvNormReLU(384, 384, (1, 3)), ConvNormReLU(384, 384, (3, 1))
        self.branch_pool = ConvNormReLU(n_in, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        if self.max_pool:
            pool = F.max_pool2d(x, 3, 1, 1)
        else:
            pool = F.avg_pool2d(x, 3, 1, 1, count_include_pad=not self.fid_variant)
        ends = [self.branch3x3_2a(u), self.branch3x3_2b(u), self.branch3x3dbl_3a(v), self.branch3x3dbl_3b(v)]
        return torch.cat([self.branch1x1(x), *ends, self.branch_pool(pool)], dim=1)


class InceptionV3(nn.Module):
    """(B, 3, 299, 299) -> (B, classes); 23,834,568 parameters for 1000 classes, without the auxiliary head of its
    training.
    """

    def __init__(self, *, num_classes: int = 1000):
        super().__init__()
        fid_variant = num_classes == FID_NUM_CLASSES
        self.Conv2d_1a_3x3 = ConvNormReLU(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = ConvNormReLU(32, 32, 3, padded=False)
        self.Conv2d_2b_3x3 = ConvNormReLU(32, 64, 3)
        self.Conv2d_3b_1x1 = ConvNormReLU(64, 80, 1)
        self.Conv2d_4a_3x3 = ConvNormReLU(80, 192, 3, padded=False)
        self.mixed, n = list[str](), 192
        for name, branches in (
            ("5b", _block_a_branches(32)),
            ("5c", _block_a_branches(64)),
            ("5d", _block_a_branches(64)),
            ("6a", _BLOCK_B_BRANCHES),
            ("6b", _block_c_branches(128)),
            ("6c", _block_c_branches(160)),
            ("6d", _block_c_branches(160)),
            ("6e", _block_c_branches(192)),
            ("7a", _BLOCK_D_BRANCHES),
        ):
            block = InceptionBlock(n, branches, downsample=name in ("6a", "7a"), fid_variant=fid_variant)
            self.add_module(f"Mixed_{name}", block)
            self.mixed.append(f"Mixed_{name}")
            n = block.out_channels
        self.Mixed_7b = InceptionBlockE(n, fid_variant=fid_variant)
        self.Mixed_7c = InceptionBlockE(2048, fid_variant=fid_variant, max_pool=fid_variant)
        self.fc = nn.Linear(2048, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))             # (B, 64, 147, 147)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))             # (B, 192, 71, 71)
        x = F.max_pool2d(x, 3, 2)
        for name in self.mixed:
            x = self.get_submodule(name)(x)
        y: Tensor = self.fc(self.Mixed_7c(self.Mixed_7b(x)).mean((2, 3)))
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Not registered: it only extracts features."""
        return {"num_classes": 7}, torch.rand(batch_size, 3, INPUT_PIXELS, INPUT_PIXELS)
