"""Feature pyramid network (FPN) on a small residual backbone, and prediction heads: maps of several resolutions for
detectors.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.layers.conv.residual import BasicBlock


def size_after_strides(size: tuple[int, int], num_strides: int) -> tuple[int, int]:
    """The size of a map after this many 3 x 3 convolutions of stride 2 and padding 1: each gives ceil(n / 2)."""
    height, width = (-(-n // 2**num_strides) for n in size)
    return height, width


class Backbone(nn.Module):
    """x -> stem, halved -> stages x [residual blocks, the first halves]: maps of 1/2, 1/4, 1/8 … of the image, one per
    width.
    """

    def __init__(self, channels: int, widths: tuple[int, ...], depth: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        )
        self.stages = nn.ModuleList(
            nn.Sequential(BasicBlock(a, b, stride=2), *(BasicBlock(b, b) for _ in range(depth - 1)))
            for a, b in pairwise(widths)
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> list[Tensor]:                      # (B, C, H, W)
        maps = [self.stem(x)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps                                                    # (B, widths[l], H / 2^(l + 1), W / 2^(l + 1))


class FeaturePyramid(nn.Module):
    """P_l = smooth(C_l' + upsample(P_{l+1}')), C' of one width: fine maps get the context of coarse ones.

    Lin et al. 2017 (FPN), fig. 3.
    """

    def __init__(self, widths: tuple[int, ...], channels: int, *, num_outputs: int):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(c, channels, 1) for c in widths)
        self.smooth = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
            )
            for _ in range(num_outputs)
        )

    def forward(self, maps: list[Tensor]) -> list[Tensor]:             # the finest first; the first num_outputs
        merged = [lateral(c) for lateral, c in zip(self.lateral, maps, strict=True)]
        for l in range(len(merged) - 2, -1, -1):
            merged[l] = merged[l] + F.interpolate(merged[l + 1], size=merged[l].shape[2:], mode="nearest")
        return [smooth(p) for smooth, p in zip(self.smooth, merged, strict=False)]


class AnchorHead(nn.Module):
    """A prediction head: n numbers for each of k anchors at each cell, (B, C, H, W) -> (B, H W k, n).

    Row by row, the anchors of a cell next to each other.
    """

    def __init__(self, c_in: int, k: int, n: int):
        super().__init__()
        self.k, self.n = k, n
        self.conv = nn.Conv2d(c_in, k * n, 3, padding=1)
        nn.init.normal_(self.conv.weight, std=0.01)
        assert self.conv.bias is not None
        nn.init.zeros_(self.conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).permute(0, 2, 3, 1).reshape(len(x), -1, self.n)   # type: ignore[no-any-return]


def set_prior_bias(head: AnchorHead, index: slice, value: float) -> None:
    """Set the initial bias of some outputs, such as that most cells hold no object; else the first steps would learn
    only that.
    """
    assert head.conv.bias is not None
    with torch.no_grad():
        head.conv.bias.view(head.k, head.n)[:, index] = value
