"""Resizing images to the size for which a network was made."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.layers.standardize import Standardize


class Resize(nn.Module):
    """Bilinear interpolation, antialiased where it shrinks: (B, C, H, W) -> (B, C, *size)."""

    def __init__(self, size: tuple[int, int]):
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[2:]) == self.size:
            return x
        shrinks = x.shape[2] > self.size[0] or x.shape[3] > self.size[1]
        return F.interpolate(x, size=self.size, mode="bilinear", antialias=shrinks)


class ResizeAndStandardize(Standardize):
    """Resizing, then standardization; the state dict has the names of a Standardize."""

    def __init__(self, size: tuple[int, int], mean: Tensor, std: Tensor):
        super().__init__(mean, std)
        self.resize = Resize(size)

    @classmethod
    def from_standardize(cls, size: tuple[int, int], standardize: Standardize) -> "ResizeAndStandardize":
        """The same standardization behind a resizing."""
        layer = cls(size, torch.zeros_like(standardize.scale), torch.ones_like(standardize.scale))
        layer.load_state_dict(standardize.state_dict())
        return layer

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.resize(x))
