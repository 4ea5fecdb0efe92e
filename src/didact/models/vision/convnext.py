"""ConvNeXt (Liu et al. 2022): a ResNet modernized with ideas of vision transformers, and as good as they.

    x -> patches -> stages x [blocks; LN and a 2 x 2 convolution between stages] -> mean over pixels -> LN -> classes

Layout and names are torchvision's. Gaba 4.10.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.analysis.receptive_field import require_min_size
from didact.layers.conv.separable import depthwise
from didact.layers.drop_path import DropPath
from didact.layers.standardize import Standardize
from didact.registry import register_model


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of each pixel."""

    def forward(self, input: Tensor) -> Tensor:                        # (B, C, H, W)
        y = F.layer_norm(input.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return y.permute(0, 3, 1, 2)


class Permute(nn.Module):
    def __init__(self, *order: int):
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order)


class ConvNeXtBlock(nn.Module):
    """y = x + gamma * W2 gelu(W1 LN(depthwise7x7(x))), W1 four times as wide; gamma starts at 1e-6.  Fig. 4 of the
    paper.
    """

    def __init__(self, dim: int, *, drop_path: float):
        super().__init__()
        self.block = nn.Sequential(
            depthwise(dim, 7, bias=True),
            Permute(0, 2, 3, 1),        # channels last, where 1 x 1 convolutions are affine maps
            nn.LayerNorm(dim, eps=1e-6),
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.full((dim, 1, 1), 1e-6))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:                            # (B, dim, H, W)
        y: Tensor = x + self.drop_path(self.layer_scale * self.block(x))
        return y


@register_model("convnext_tiny", depths=(3, 3, 9, 3), widths=(96, 192, 384, 768))
class ConvNeXt(nn.Module):
    """For images of 224 pixels and patches of 4; smaller images get smaller patches by default, see `note`."""

    def __init__(
        self,
        *,
        depths: tuple[int, ...] = (3, 3, 9, 3),
        widths: tuple[int, ...] = (96, 192, 384, 768),
        patch: int | None = None,
        num_classes: int = 1000,
        channels: int = 3,
        size: tuple[int, int] = (224, 224),
        drop_path: float = 0.1,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        patch = patch or (4 if min(size) > 64 else 2 if min(size) > 32 else 1)
        self.note = f"patches of {patch} pixels, for small images" if patch < 4 else ""
        require_min_size(patch * 2 ** (len(depths) - 1), size, "this ConvNeXt")
        rates = iter(torch.linspace(0, drop_path, sum(depths), device="cpu").tolist())
        parts: list[nn.Module] = []
        c = channels
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if stage == 0:
                parts.append(nn.Sequential(nn.Conv2d(c, width, patch, stride=patch), LayerNorm2d(width, eps=1e-6)))
            else:
                parts.append(nn.Sequential(LayerNorm2d(c, eps=1e-6), nn.Conv2d(c, width, 2, stride=2)))
            parts.append(nn.Sequential(*[ConvNeXtBlock(width, drop_path=next(rates)) for _ in range(depth)]))
            c = width
        self.features = nn.Sequential(*parts)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(LayerNorm2d(c, eps=1e-6), nn.Flatten(1), nn.Linear(c, num_classes))
        self.init_weights()

    def init_weights(self) -> None:
        for m in self.modules():
            if isinstance(m, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                assert m.bias is not None
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.avgpool(self.features(self.standardize(x)))           # (B, widths[-1], 1, 1)
        y: Tensor = self.classifier(h)                                 # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {
            "num_classes": 7,
            "channels": 2,
            "depths": (1, 2),
            "widths": (6, 8),
            "patch": 2,
            "size": (11, 15),
        }, torch.rand(batch_size, 2, 11, 15)
