"""Reflection padding: for networks that need certain input sizes, or return less than they get."""

from typing import Protocol

import torch
from torch import Tensor, nn


class NeedsInputSize(Protocol):
    """A network of images that accepts certain sides only."""

    def input_size_for(self, output_size: int) -> int:
        """The smallest accepted side whose output covers `output_size` pixels."""

    def __call__(self, x: Tensor) -> Tensor: ...


def reflect_pad_to(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Pad on all sides to this size by reflection, repeated as needed: (B, C, h, w) -> (B, C, H, W).

    Along an axis of n pixels, position p shows pixel |((p + n − 1) mod (2n − 2)) − (n − 1)|; F.pad reflects once only.
    """
    for axis, target_size in zip((2, 3), size, strict=True):
        n = x.shape[axis]
        p = torch.arange(target_size, device=x.device) - (target_size - n) // 2
        x = x.index_select(axis, ((p + n - 1) % max(1, 2 * n - 2) - (n - 1)).abs())
    return x


def forward_padded(network: NeedsInputSize, x: Tensor) -> Tensor:
    """The output for every pixel: the image is padded to a side that the network accepts, the output cropped to the
    image.

    Ronneberger et al. 2015, fig. 2.
    """
    height, width = x.shape[2:]
    y = network(reflect_pad_to(x, (network.input_size_for(height), network.input_size_for(width))))
    top, left = (y.shape[2] - height) // 2, (y.shape[3] - width) // 2
    return y[:, :, top : top + height, left : left + width]


class ReflectPadded(nn.Module):
    """y = forward_padded(network, x): an output for every pixel of an image of any size."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return forward_padded(self.network, x)  # type: ignore[arg-type]
