"""Patch embedding: an image as a sequence of tokens, one for each square of pixels."""

from torch import Tensor, nn

from didact.errors import ImageTooSmallError, UsageError


class PatchEmbed(nn.Conv2d):
    """t_s = W vec(patch_s) + b: a convolution whose stride is its kernel size.

    Dosovitskiy et al. 2021, eq. 1; Gaba 7.5, Fleuret 5.3.
    """

    def __init__(self, channels: int, embed_dim: int, *, patch_size: int):
        super().__init__(channels, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, input: Tensor) -> Tensor:              # (B, C, H, W)
        return super().forward(input).flatten(2).mT          # (B, S, D), S = H W / patch², row by row


def count_patches(size: tuple[int, int], patch_size: int) -> int:
    """S, the number of patches of an image (H, W), whose sides must be multiples of the patch size."""
    h, w = size
    if min(h, w) < patch_size:
        raise ImageTooSmallError(f"images of {h}×{w} pixels hold no patch of {patch_size}; resize them", patch_size)
    if h % patch_size or w % patch_size:
        raise UsageError(
            f"images of {h}×{w} pixels cannot be cut into patches of {patch_size}; both sides must be multiples of "
            f"patch_size={patch_size}"
        )
    return (h // patch_size) * (w // patch_size)
