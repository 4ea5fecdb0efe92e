"""YOLO (Redmon et al. 2016, with the anchors of 2017): the image is a grid, and the cell that contains an object's
center predicts it.

    x -> backbone -> one map -> at each cell k boxes: b_x, b_y, b_w, b_h, p_obj, c_1 … c_K

A vector of 5 + K numbers a box (Gaba 12.1.1).
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.conv.anchors import anchor_grid, default_sizes
from didact.layers.conv.fpn import AnchorHead, Backbone, FeaturePyramid, set_prior_bias, size_after_strides
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("yolo_tiny", widths=(16, 32, 48, 64), stride=8, depth=1, neck=48)
@register_model("yolo", widths=(32, 64, 128, 256, 256), stride=8, depth=2, neck=128)
class YOLO(nn.Module):
    """(B, C, H, W) -> (B, A, 5 + K): offsets from the A `anchors`, objectness, and logits of the K classes.

    The grid has cells of `stride` pixels; coarser maps are joined into it. `sizes` (1, k, 2) are those of the anchors,
    as fractions of the image; `anchors` (center and size) and `cell` (its sides) are saved with the weights.
    """

    anchors: Tensor
    cell: Tensor

    def __init__(
        self,
        *,
        widths: tuple[int, ...],
        stride: int = 8,
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
        halvings = stride.bit_length() - 1
        if stride != 2**halvings or not 2 <= halvings <= len(widths):
            strides = [2**n for n in range(2, len(widths) + 1)]
            raise UsageError(f"a YOLO of {len(widths)} widths has a stride among {strides}, got {stride}")
        sizes = default_sizes(1, 5) if sizes is None else sizes
        grid = size_after_strides(size, halvings)
        self.first_map = halvings - 1
        self.register_buffer("anchors", anchor_grid([grid], sizes))                    # (A, 4)
        self.register_buffer("cell", torch.tensor([1 / grid[1], 1 / grid[0]]))
        self.standardize = Standardize.or_identity(mean, std)
        self.trunk = Backbone(channels, widths, depth)
        self.neck = FeaturePyramid(widths[self.first_map :], neck, num_outputs=1)
        self.head = AnchorHead(neck, sizes.shape[1], 5 + num_classes)
        set_prior_bias(self.head, slice(4, 5), -4.0)                       # nearly all cells are background

    def forward(self, x: Tensor) -> Tensor:
        (finest,) = self.neck(self.trunk(self.standardize(x))[self.first_map :])
        y: Tensor = self.head(finest)
        return y.float()                                                               # (B, A, 5 + K)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"widths": (4, 6, 8, 8), "stride": 16, "depth": 1, "neck": 6, "size": (35, 44)}, torch.rand(
            batch_size, 3, 35, 44
        )
