"""Two networks for small color images: a strong plain one, and one whose architecture is the experiment.

    x -> blocks x [convolutions, halve the image] -> mean over pixels -> dense layers -> classes
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.analysis.receptive_field import require_min_size
from didact.errors import look_up
from didact.layers.conv.convolution import DeformableConv2d, dilated_conv
from didact.layers.conv.norm_pool import Norm2d, Pool2d, make_norm2d, make_pool2d
from didact.layers.conv.separable import SeparableConv2d
from didact.layers.conv.squeeze_excite import SqueezeExcite
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("cifar10net", separable=False)
@register_model("cifar10net_separable", separable=True)
class CIFAR10Net(nn.Module):
    """Blocks of 2 x [conv 3 x 3, BN, ReLU], max pooling, channel dropout; 256 - 128 - classes.  Gaba 4.6; separable: Ex
    4.4.

    It has 1,181,386 parameters; the page prints 952,202, which its own code does not give.
    """

    def __init__(
        self, *, num_classes: int = 10, channels: int = 3, widths: tuple[int, ...] = (64, 128, 256), hidden: int = 128,
        dropout2d: float = 0.25, dropout: float = 0.5, separable: bool = False,
        size: tuple[int, int] = (32, 32), mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        require_min_size(2 ** len(widths), size, "CIFAR10Net")
        layers: list[nn.Module] = []
        for c_in, c_out in pairwise((channels, *widths)):
            for c in (c_in, c_out):
                conv = SeparableConv2d(c, c_out) if separable else nn.Conv2d(c, c_out, 3, padding=1)
                layers += [conv, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(2), nn.Dropout2d(dropout2d)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(widths[-1], hidden), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        y: Tensor = self.classifier(self.features(self.standardize(x)))
        return y                                                       # (B, classes)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "widths": (6, 8), "hidden": 16, "size": (9, 13)}, torch.rand(
            batch_size, 2, 9, 13
        )


Convolution = Literal["plain", "separable", "dilated", "deformable"]
# padding k // 2 keeps the size for odd k only (mistake M22); an even k adds a row, which pooling mostly drops
_CONVOLUTIONS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "plain": lambda c_in, c_out, k: nn.Conv2d(c_in, c_out, k, padding=k // 2),
    "separable": SeparableConv2d,
    "dilated": lambda c_in, c_out, k: dilated_conv(c_in, c_out, k, dilation=2),
    "deformable": lambda c_in, c_out, k: DeformableConv2d(c_in, c_out, k, padding=k // 2),
}


@register_model("cnn", kernel_size=3, filters=32, num_blocks=3)
class CNN(nn.Module):
    """blocks x [conv k x k, norm, ReLU, pooling], widths f, 2f, 4f, 4f, ...; mean over pixels.  Gaba 4.8, `build_cnn`.

    Batch norm, max pooling and plain convolutions are the course's. Its four networks have 94,986, 260,362, 374,282 and
    390,666 parameters, not the numbers printed there. `squeeze_excite` adds channel attention to each block (Hu et al.
    2018).
    """

    def __init__(
        self,
        *,
        kernel_size: int = 3,
        filters: int = 32,
        num_blocks: int = 3,
        norm: Norm2d = "batch",
        pool: Pool2d = "max",
        convolution: Convolution = "plain",
        squeeze_excite: bool = False,
        num_classes: int = 10,
        channels: int = 3,
        size: tuple[int, int] = (32, 32),
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        require_min_size(2**num_blocks, size, "this network")
        widths = [filters * 2 ** min(i, 2) for i in range(num_blocks)]
        layers: list[nn.Module] = []
        for c_in, c_out in pairwise((channels, *widths)):
            layers += [
                look_up("convolution", convolution, _CONVOLUTIONS)(c_in, c_out, kernel_size),
                make_norm2d(norm, c_out),
                nn.ReLU(inplace=True),
            ]
            layers += [SqueezeExcite(c_out, reduction=4), make_pool2d(pool)] if squeeze_excite else [make_pool2d(pool)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.features(self.standardize(x))                         # (B, widths[-1], H / 2^blocks, W / 2^blocks)
        y: Tensor = self.head(h.mean(dim=(2, 3)))                      # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "filters": 4, "size": (9, 13)}, torch.rand(batch_size, 2, 9, 13)
