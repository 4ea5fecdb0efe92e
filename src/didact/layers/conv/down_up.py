"""Downsampling and upsampling convolutions: halve an image and return to exactly its size, odd sides included."""

from torch import nn


def downsampled_sizes(size: tuple[int, int], levels: int) -> list[tuple[int, int]]:
    """The sizes from `size` down, each side s -> ⌈s / 2⌉: 28, 14, 7, 4."""
    sizes = [size]
    for _ in range(levels):
        h, w = sizes[-1]
        sizes.append((-(-h // 2), -(-w // 2)))
    return sizes


def _kernel_for_size(size: tuple[int, int]) -> tuple[int, int]:
    """4 on an even side and 3 on an odd one: with stride 2 and padding 1, s -> ⌈s / 2⌉ and back to s.  Gaba 8.7.

    Down: ⌊(s + 2 − k) / 2⌋ + 1. Up: 2 (⌈s / 2⌉ − 1) − 2 + k.
    """
    h, w = (3 if side % 2 else 4 for side in size)
    return h, w


def halving_conv(n_in: int, n_out: int, size: tuple[int, int], *, bias: bool = True) -> nn.Conv2d:
    """Convolution of stride 2 that halves an image of this size."""
    return nn.Conv2d(n_in, n_out, _kernel_for_size(size), stride=2, padding=1, bias=bias)


def doubling_conv(n_in: int, n_out: int, size: tuple[int, int], *, bias: bool = True) -> nn.ConvTranspose2d:
    """Transposed convolution of stride 2 from half this size to this size."""
    return nn.ConvTranspose2d(n_in, n_out, _kernel_for_size(size), stride=2, padding=1, bias=bias)
