"""AlexNet (Krizhevsky et al. 2012): the network that made deep learning win ImageNet.

    x -> 5 convolutions, 3 poolings -> 6 x 6 -> 3 dense layers with dropout -> classes

One tower, with fewer filters, as in Krizhevsky's later "one weird trick"; layout and names are torchvision's. Gaba
4.4.2.
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.analysis.receptive_field import require_min_size
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("alexnet")
class AlexNet(nn.Module):
    """For images of 224 pixels; works from 63 pixels on."""

    def __init__(
        self, *, num_classes: int = 1000, channels: int = 3, size: tuple[int, int] = (224, 224),
        widths: tuple[int, int, int, int, int] = (64, 192, 384, 256, 256),
        hidden: int = 4096, dropout: float = 0.5, mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        require_min_size(63, size, "AlexNet")
        a, b, c, d, e = widths
        self.standardize = Standardize.or_identity(mean, std)
        self.features = nn.Sequential(
            nn.Conv2d(channels, a, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(a, b, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(b, c, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(c, d, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(d, e, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(36 * e, hidden), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.avgpool(self.features(self.standardize(x)))           # (B, e, 6, 6)
        y: Tensor = self.classifier(h.flatten(1))                      # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "widths": (4, 6, 6, 6, 5), "hidden": 16, "size": (63, 71)}, torch.rand(
            batch_size, 2, 63, 71
        )
