"""SSD (Liu et al. 2016): single-shot detector; boxes at every cell of maps of several resolutions, small objects on
fine maps.

    x -> backbone -> the last maps, joined from coarse to fine -> at each cell k boxes: 4 offsets and K + 1 scores

The maps are joined by a feature pyramid (Lin et al. 2017), which the first SSD lacks: without it the fine map has no
context. Fleuret 6.3 has 4 + C + 1 channels; with k boxes a cell they are k (4 + C + 1) (mistake MF09).
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.conv.anchors import anchor_grid, default_sizes
from didact.layers.conv.fpn import AnchorHead, Backbone, FeaturePyramid, set_prior_bias, size_after_strides
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("ssd_tiny", widths=(16, 32, 48, 64), levels=2, depth=1, neck=48)
@register_model("ssd", widths=(32, 64, 128, 256, 256), levels=3, depth=2, neck=128)
class SSD(nn.Module):
    """(B, C, H, W) -> (B, A, 4 + K + 1): offsets from the A `anchors`, then logits of the K classes, and last of
    background.

    `sizes` (levels, k, 2) are those of the anchors, as fractions of the image; the anchors are saved with the weights.
    """

    anchors: Tensor

    def __init__(
        self,
        *,
        widths: tuple[int, ...],
        levels: int = 2,
        depth: int = 1,
        neck: int = 64,
        num_classes: int = 3,
        channels: int = 3,
        size: tuple[int, int] = (64, 64),
        sizes: Tensor | None = None,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        if not 0 < levels < len(widths):
            raise UsageError(
                f"an SSD uses 1 to {len(widths) - 1} maps of its backbone of widths {widths}, got levels={levels}"
            )
        sizes = default_sizes(levels, 3) if sizes is None else sizes
        self.levels = levels
        map_sizes = [size_after_strides(size, len(widths) - levels + 1 + l) for l in range(levels)]
        self.register_buffer("anchors", anchor_grid(map_sizes, sizes))      # (A, 4)
        self.standardize = Standardize.or_identity(mean, std)
        self.trunk = Backbone(channels, widths, depth)
        self.neck = FeaturePyramid(widths[-levels:], neck, num_outputs=levels)
        self.heads = nn.ModuleList(AnchorHead(neck, sizes.shape[1], 4 + num_classes + 1) for _ in range(levels))
        for head in self.heads:
            assert isinstance(head, AnchorHead)
            set_prior_bias(head, slice(4 + num_classes, None), 4.0)            # nearly all anchors are background

    def forward(self, x: Tensor) -> Tensor:
        maps = self.neck(self.trunk(self.standardize(x))[-self.levels :])
        y = torch.cat([head(m) for head, m in zip(self.heads, maps, strict=True)], dim=1)
        return y.float()                                               # (B, A, 4 + K + 1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"widths": (4, 6, 8, 8), "levels": 2, "depth": 1, "neck": 6, "size": (35, 44)}, torch.rand(
            batch_size, 3, 35, 44
        )
