"""LeNet (LeCun et al. 1998): two convolutions with pooling, then dense layers. The first network that read checks.

    x -> 2 x [convolution 5 x 5, pooling] -> dense layers -> classes
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.analysis.receptive_field import SlidingWindow, output_size, require_min_size
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("lenet5")
class LeNet5(nn.Module):
    """conv 6 - pool - conv 16 - pool - 120 - 84 - classes, tanh between.  Gaba 4.4.1, Groudiev 4.4.

    Pooling is the mean, without the weight and bias that the paper gives each; Fleuret's max pooling (mistake MF13)
    came later. All maps of the second convolution see all of the first. Images below 32 pixels are padded by 2, as the
    paper's 28-pixel digits were.
    """

    def __init__(
        self, *, num_classes: int = 10, channels: int = 1, size: tuple[int, int] = (28, 28),
        mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        padding = 2 if min(size) < 32 else 0
        require_min_size(12, size, "LeNet-5")
        windows = SlidingWindow(5, padding=padding), SlidingWindow(2, 2), SlidingWindow(5), SlidingWindow(2, 2)
        h, w = (output_size(side, windows) for side in size)
        self.standardize = Standardize.or_identity(mean, std)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=padding), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * h * w, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.features(self.standardize(x))                         # (B, 16, H', W')
        y: Tensor = self.classifier(h.flatten(1))                      # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "size": (14, 19)}, torch.rand(batch_size, 2, 14, 19)


@register_model("lenet_like")
class LeNetLike(nn.Module):
    """conv 32 - max 3 - conv 64 - max 2 - 200 - classes, ReLU between: 28 x 28 -> 256 -> 10.  Fleuret 5.2, fig. 5.2."""

    def __init__(
        self, *, num_classes: int = 10, channels: int = 1, size: tuple[int, int] = (28, 28),
        mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        require_min_size(22, size, "the LeNet-like network")
        windows = SlidingWindow(5), SlidingWindow(3, 3), SlidingWindow(5), SlidingWindow(2, 2)
        h, w = (output_size(side, windows) for side in size)
        self.standardize = Standardize.or_identity(mean, std)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 32, 5), nn.MaxPool2d(3), nn.ReLU(),
            nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.ReLU(),
        )
        self.classifier = nn.Sequential(nn.Linear(64 * h * w, 200), nn.ReLU(), nn.Linear(200, num_classes))

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.features(self.standardize(x))                         # (B, 64, H', W')
        y: Tensor = self.classifier(h.flatten(1))                      # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "size": (22, 29)}, torch.rand(batch_size, 2, 22, 29)
