"""VGG (Simonyan & Zisserman 2015): nothing but 3 x 3 convolutions; two cover 5 x 5 with fewer parameters, three 7 x 7.

    x -> 5 x [n convolutions 3 x 3, halve the image] -> 7 x 7 -> 3 dense layers with dropout -> classes

Layout and names are torchvision's. Gaba 4.4.3.
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.analysis.receptive_field import require_min_size
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("vgg11", depths=(1, 1, 2, 2, 2))
@register_model("vgg13", depths=(2, 2, 2, 2, 2))
@register_model("vgg16", depths=(2, 2, 3, 3, 3))
@register_model("vgg19", depths=(2, 2, 4, 4, 4))
@register_model("vgg11_bn", depths=(1, 1, 2, 2, 2), norm=True)
@register_model("vgg13_bn", depths=(2, 2, 2, 2, 2), norm=True)
@register_model("vgg16_bn", depths=(2, 2, 3, 3, 3), norm=True)
@register_model("vgg19_bn", depths=(2, 2, 4, 4, 4), norm=True)
class VGG(nn.Module):
    """For images of 224 pixels; works from 32 pixels on. `norm` adds a batch norm after each convolution."""

    def __init__(
        self, *, depths: tuple[int, ...] = (2, 2, 3, 3, 3), widths: tuple[int, ...] = (64, 128, 256, 512, 512),
        norm: bool = False, hidden: int = 4096, dropout: float = 0.5, num_classes: int = 1000, channels: int = 3,
        size: tuple[int, int] = (224, 224), mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        require_min_size(2 ** len(depths), size, "VGG")
        layers: list[nn.Module] = []
        c = channels
        for depth, width in zip(depths, widths, strict=True):
            for _ in range(depth):
                layers.append(nn.Conv2d(c, width, 3, padding=1))
                if norm:
                    layers.append(nn.BatchNorm2d(width))
                layers.append(nn.ReLU(inplace=True))
                c = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(49 * c, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        self.init_weights()

    def init_weights(self) -> None:
        """He initialization with fan-out, which preserves gradients through depth; small weights of dense layers."""
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=0.01)
            if isinstance(m, nn.Conv2d | nn.Linear) and m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.avgpool(self.features(self.standardize(x)))           # (B, widths[-1], 7, 7)
        y: Tensor = self.classifier(h.flatten(1))                      # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "widths": (4, 4, 6, 6, 8), "hidden": 16, "size": (33, 39)}, torch.rand(
            batch_size, 2, 33, 39
        )
