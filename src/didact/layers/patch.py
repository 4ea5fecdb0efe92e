"""Patch embedding: an image as a sequence of tokens, one for each square of pixels."""

from torch import Tensor, nn

from didact.errors import UsageError


class PatchEmbed(nn.Conv2d):
    """t_s = W vec(patch_s) + b: a convolution whose stride is its kernel.  Dosovitskiy et al. 2021, eq. 1; Gaba 7.8, Fleuret 5.3."""

    def __init__(self, channels: int, dim: int, *, patch: int):
        super().__init__(channels, dim, kernel_size=patch, stride=patch)

    def forward(self, input: Tensor) -> Tensor:              # (B, C, H, W)
        return super().forward(input).flatten(2).mT          # (B, S, D), S = H W / patch², row by row


def tokens(size: int, patch: int) -> int:
    """S, the patches of a square image; one that is not cut evenly is refused."""
    if size % patch:
        raise UsageError(f"size must be a multiple of patch={patch}, got size={size}")
    return (size // patch) ** 2
