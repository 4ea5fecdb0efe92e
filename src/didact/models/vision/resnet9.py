"""ResNet-9: nine layers that learn CIFAR-10 in seconds. Page 2018, "How to train your ResNet" (DAWNBench).

    x -> conv w -> [conv 2w, halve, + residual] -> [conv 4w, halve] -> [conv 8w, halve, + residual] -> max over pixels
    -> classes
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.analysis.receptive_field import require_min_size
from didact.layers.conv.residual import conv3x3
from didact.layers.standardize import Standardize
from didact.registry import register_model


def _conv_bn_relu(c_in: int, c_out: int, *, downsample: bool = False) -> nn.Sequential:
    """conv 3 x 3, BN, ReLU; pooling before the norm, which then reads a quarter of the pixels."""
    pool = [nn.MaxPool2d(2)] if downsample else []
    return nn.Sequential(conv3x3(c_in, c_out), *pool, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class Stage(nn.Module):
    """h = halve(conv(x)),  y = h + unit(unit(h)) if `residual`."""

    def __init__(self, c_in: int, c_out: int, *, residual: bool):
        super().__init__()
        self.down = _conv_bn_relu(c_in, c_out, downsample=True)
        self.residual = nn.Sequential(_conv_bn_relu(c_out, c_out), _conv_bn_relu(c_out, c_out)) if residual else None

    def forward(self, x: Tensor) -> Tensor:                            # (B, C_in, H, W)
        h: Tensor = self.down(x)                                       # (B, C_out, H/2, W/2)
        return h if self.residual is None else h + self.residual(h)


@register_model("resnet9", width=64)
class ResNet9(nn.Module):
    """y = s W max_HW(h): the scale s of 1/8 lets a large learning rate move W without large logits."""

    def __init__(
        self,
        *,
        width: int = 64,
        scale: float = 0.125,
        num_classes: int = 10,
        channels: int = 3,
        size: tuple[int, int] = (32, 32),
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        require_min_size(8, size, "ResNet-9")
        self.standardize = Standardize.or_identity(mean, std)
        self.prep = _conv_bn_relu(channels, width)
        self.layer1 = Stage(width, 2 * width, residual=True)
        self.layer2 = Stage(2 * width, 4 * width, residual=False)
        self.layer3 = Stage(4 * width, 8 * width, residual=True)
        self.fc = nn.Linear(8 * width, num_classes, bias=False)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.layer3(self.layer2(self.layer1(self.prep(self.standardize(x)))))  # (B, 8 width, H/8, W/8)
        y: Tensor = self.scale * self.fc(h.amax(dim=(2, 3)))           # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "width": 4, "size": (17, 21)}, torch.rand(batch_size, 2, 17, 21)
