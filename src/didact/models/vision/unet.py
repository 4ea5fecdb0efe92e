"""U-Net (Ronneberger et al. 2015): encoder, decoder, and skip connections that carry the detail.

    x -> [two convolutions, halve] x levels -> two convolutions -> [double, concat skip, two convolutions] x levels
    -> classes
"""

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.conv.convolution import upsample_conv
from didact.layers.standardize import Standardize
from didact.registry import register_model

Norm = Literal["none", "batch"]


def _double_conv(n_in: int, n_out: int, *, norm: Norm, padded: bool) -> nn.Sequential:
    """Two times convolution 3×3, norm, ReLU."""
    layers: list[nn.Module] = []
    for n in (n_in, n_out):
        layers.append(nn.Conv2d(n, n_out, 3, padding=int(padded), bias=norm == "none"))   # batch norm has its own bias
        if norm == "batch":
            layers.append(nn.BatchNorm2d(n_out))
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


class UpBlock(nn.Module):
    """y = two convolutions of [bridge, grow(x)]; without padding the skip connection (bridge) is larger and is cropped.
    """

    def __init__(self, n_in: int, n_out: int, *, norm: Norm, padded: bool):
        super().__init__()
        self.grow = upsample_conv(n_in, n_out)
        self.convs = _double_conv(2 * n_out, n_out, norm=norm, padded=padded)

    def forward(self, x: Tensor, bridge: Tensor) -> Tensor:
        x = self.grow(x)
        top, left = ((b - s) // 2 for b, s in zip(bridge.shape[2:], x.shape[2:], strict=True))
        bridge = bridge[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        y: Tensor = self.convs(torch.cat([bridge, x], dim=1))
        return y


# "unet": Ronneberger's widths, padded; "unet_2015": as printed, 572 px in, 388 px out; "unet_mini": the default of the
# recipe `segmentation`; "unet_tiny", 25,393 parameters: Lhotte 7.2
@register_model("unet", widths=(64, 128, 256, 512, 1024))
@register_model("unet_2015", widths=(64, 128, 256, 512, 1024), channels=1, padded=False)
@register_model("unet_small", widths=(16, 32, 64, 128), norm="batch")
@register_model("unet_mini", widths=(8, 16, 32, 64), norm="batch")
@register_model("unet_tiny", widths=(16, 32), channels=1, num_classes=1)
class UNet(nn.Module):
    """Logits of each class at each pixel.  Fig. 1 of the paper; Lhotte 7.2, Fleuret 6.4, Gaba 12.1.

    With widths w_0 … w_L and n channels in, a convolution 3×3 from a to b channels has 9ab + b parameters and one that
    doubles 4ab + b. For Ronneberger's sizes, 1 channel and 2 classes, 31,030,658 in all; 31,031,810 for 3 channels.
    """

    def __init__(
        self, *,
        widths: tuple[int, ...], num_classes: int = 2, channels: int = 3, norm: Norm = "none", padded: bool = True,
        mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        if len(widths) < 2:
            raise UsageError(f"a U-Net needs at least two levels, got widths {widths}")
        self.standardize = Standardize.or_identity(mean, std)
        self.first = _double_conv(channels, widths[0], norm=norm, padded=padded)
        self.halve = nn.MaxPool2d(2)
        self.down = nn.ModuleList(_double_conv(a, b, norm=norm, padded=padded) for a, b in pairwise(widths))
        self.up = nn.ModuleList(UpBlock(b, a, norm=norm, padded=padded) for a, b in reversed(list(pairwise(widths))))
        self.head = nn.Conv2d(widths[0], num_classes, 1)
        self.padded = padded
        for layer in self.modules():                               # He: Ronneberger 2015, section 3
            if isinstance(layer, nn.Conv2d) and layer is not self.head:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, H, W)
        self._check_size(x)
        x = self.first(self.standardize(x))
        bridges = []
        for convs in self.down:
            bridges.append(x)
            x = convs(self.halve(x))                               # (B, w_l, H / 2^l, W / 2^l)
        for up, bridge in zip(self.up, reversed(bridges), strict=True):
            x = up(x, bridge)
        y: Tensor = self.head(x)
        return y                                                   # (B, classes, H, W), smaller without padding

    def _check_size(self, x: Tensor) -> None:
        """Every halving must be of an even side, else the doubled map would not fit its skip connection."""
        for side in x.shape[2:]:
            s = side
            for _ in self.down:
                s = s if self.padded else s - 4
                if s % 2 or s < 2:
                    requirement = (
                        f"multiples of {2 ** len(self.down)}"
                        if self.padded
                        else "even before each halving, less 4 at each level"
                    )
                    raise UsageError(
                        f"a U-Net that halves {len(self.down)} times needs sides that are {requirement}, got {side}; "
                        "see --size"
                    )
                s //= 2
            if not self.padded and s < 5:
                raise UsageError(
                    f"a U-Net without padding loses 4 pixels at each of {len(self.down) + 1} levels, too many of {side}"
                )

    def input_size_for(self, output_size: int) -> int:
        """The smallest accepted side whose output covers `output_size` pixels; without padding each level loses 4
        pixels down, 4 up.

        From m pixels in the middle, 2^L m + 4 (2^L − 1) come in and 2^L (m − 4) − 4 (2^L − 1) go out: 572 and 388 for m
        = 32, L = 4.
        """
        n: int = 2 ** len(self.down)
        border = 0 if self.padded else 4
        m = -(-(output_size + border * (n - 1)) // n) + border
        return n * m + border * (n - 1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        return {"widths": (5, 6, 7), "channels": 3, "num_classes": 4, "mean": mean, "std": std}, torch.rand(
            batch_size, 3, 44, 52
        )
