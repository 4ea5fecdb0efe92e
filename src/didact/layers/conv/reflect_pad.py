"""A margin around an image that goes on as its mirror image: for networks that ask for certain sides, or give back
less than they get."""

from typing import Protocol

import torch
from torch import Tensor, nn


class NeedsInputSize(Protocol):
    """A network of images that wants certain sides."""

    def input_size_for(self, output_size: int) -> int:
        """The least side it takes whose answer covers `side` pixels."""

    def __call__(self, x: Tensor) -> Tensor: ...


def reflect_pad_to(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Enlarged on all sides to this size, mirrored at the border again and again: (B, C, h, w) -> (B, C, H, W).

    Along an axis of n pixels, position p shows pixel |((p + n − 1) mod (2n − 2)) − (n − 1)|; F.pad mirrors once only.
    """
    for axis, target_size in zip((2, 3), size, strict=True):
        n = x.shape[axis]
        p = torch.arange(target_size, device=x.device) - (target_size - n) // 2
        x = x.index_select(axis, ((p + n - 1) % max(1, 2 * n - 2) - (n - 1)).abs())
    return x


def forward_padded(network: NeedsInputSize, x: Tensor) -> Tensor:
    """f of the image with as much margin as f needs, cut back to the image.  Ronneberger et al. 2015, fig. 2."""
    height, width = x.shape[2:]
    y = network(reflect_pad_to(x, (network.input_size_for(height), network.input_size_for(width))))
    top, left = (y.shape[2] - height) // 2, (y.shape[3] - width) // 2
    return y[:, :, top : top + height, left : left + width]


class ReflectPadded(nn.Module):
    """y = on_whole(f, x): what is said of every pixel, whatever the sides."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return forward_padded(self.network, x)  # type: ignore[arg-type]
