"""Two networks for small colour images: a strong plain one, and one whose shape is the experiment.

    x -> blocks x [convolutions, halve the image] -> mean over pixels -> perceptron -> classes
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.errors import pick
from didact.layers.block import Norm2d, Pool, halve, norm2d
from didact.layers.convolution import DeformableConv2d, dilated
from didact.layers.geometry import at_least
from didact.layers.separable import SeparableConv2d
from didact.layers.squeeze import SqueezeExcite
from didact.layers.standardise import Standardise
from didact.registry import register


@register("cifar10net", separable=False)
@register("cifar10net_separable", separable=True)
class CIFAR10Net(nn.Module):
    """Blocks of 2 x [conv 3 x 3, BN, ReLU], max pooling, channel dropout; 256 - 128 - classes.  Gaba 4.6; separable: Ex 4.4.

    It has 1,181,386 parameters; the page prints 952,202, which its own code does not give.
    """

    def __init__(
        self, *, classes: int = 10, channels: int = 3, widths: tuple[int, ...] = (64, 128, 256), hidden: int = 128,
        dropout2d: float = 0.25, dropout: float = 0.5, separable: bool = False,
        size: tuple[int, int] = (32, 32), mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        self.standardise = Standardise(mean, std) if mean is not None and std is not None else nn.Identity()
        at_least(2 ** len(widths), size, "CIFAR10Net")
        layers: list[nn.Module] = []
        for c_in, c_out in pairwise((channels, *widths)):
            for c in (c_in, c_out):
                conv = SeparableConv2d(c, c_out) if separable else nn.Conv2d(c, c_out, 3, padding=1)
                layers += [conv, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(2), nn.Dropout2d(dropout2d)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(widths[-1], hidden), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        y: Tensor = self.classifier(self.features(self.standardise(x)))
        return y                                                       # (B, classes)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"classes": 7, "channels": 2, "widths": (6, 8), "hidden": 16, "size": (9, 13)}, torch.rand(batch, 2, 9, 13)


Convolution = Literal["plain", "separable", "dilated", "deformable"]
# k // 2 keeps the size for odd k only (mistake M22); an even one adds a row, which pooling mostly drops
CONVOLUTIONS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "plain": lambda c_in, c_out, k: nn.Conv2d(c_in, c_out, k, padding=k // 2),
    "separable": SeparableConv2d,
    "dilated": lambda c_in, c_out, k: dilated(c_in, c_out, k, dilation=2),
    "deformable": lambda c_in, c_out, k: DeformableConv2d(c_in, c_out, k, padding=k // 2),
}


@register("cnn", kernel=3, filters=32, blocks=3)
class CNN(nn.Module):
    """blocks x [conv k x k, norm, ReLU, pooling], widths f, 2f, 4f, 4f, ...; mean over pixels.  Gaba 4.8, `build_cnn`.

    Batch norm, max pooling and plain convolutions are the course's. Its four networks have 94,986, 260,362, 374,282 and 390,666
    parameters, not the numbers printed there. `squeeze` weighs the maps of each block (Hu et al. 2018).
    """

    def __init__(
        self, *, kernel: int = 3, filters: int = 32, blocks: int = 3, norm: Norm2d = "batch", pool: Pool = "max",
        convolution: Convolution = "plain", squeeze: bool = False,
        classes: int = 10, channels: int = 3, size: tuple[int, int] = (32, 32), mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        self.standardise = Standardise(mean, std) if mean is not None and std is not None else nn.Identity()
        at_least(2**blocks, size, "this network")
        widths = [filters * 2 ** min(i, 2) for i in range(blocks)]
        layers: list[nn.Module] = []
        for c_in, c_out in pairwise((channels, *widths)):
            layers += [pick("convolution", convolution, CONVOLUTIONS)(c_in, c_out, kernel), norm2d(norm, c_out), nn.ReLU(inplace=True)]
            layers += [SqueezeExcite(c_out, reduction=4), halve(pool)] if squeeze else [halve(pool)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.features(self.standardise(x))                         # (B, widths[-1], H / 2^blocks, W / 2^blocks)
        y: Tensor = self.head(h.mean(dim=(2, 3)))                      # (B, classes)
        return y

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"classes": 7, "channels": 2, "filters": 4, "size": (9, 13)}, torch.rand(batch, 2, 9, 13)
