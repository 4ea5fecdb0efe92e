"""Depthwise separable convolution: filter each channel by itself, then mix channels at each pixel.

    full        C_in C_out k^2 products a pixel
    separable   C_in k^2 + C_in C_out: a fraction 1 / C_out + 1 / k^2 of them.  Gaba 4.9, eq. 4.10
"""

from torch import Tensor, nn


def depthwise(channels: int, kernel_size: int = 3, *, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """Depthwise convolution: one k x k filter for each channel; at stride 1 an odd k keeps the size.  Gaba 4.9."""
    return nn.Conv2d(
        channels, channels, kernel_size, stride=stride, padding=kernel_size // 2, groups=channels, bias=bias
    )


def pointwise(c_in: int, c_out: int, *, bias: bool = False) -> nn.Conv2d:
    """Pointwise (1 x 1) convolution: the same affine map of channels at every pixel.  Gaba 4.9."""
    return nn.Conv2d(c_in, c_out, 1, bias=bias)


class SeparableConv2d(nn.Module):
    """y = pointwise(depthwise(x)): the full convolution whose kernels are w_oc = p_oc d_c.  Gaba 4.9, Ex 4.4."""

    def __init__(self, c_in: int, c_out: int, kernel_size: int = 3, *, stride: int = 1, bias: bool = True):
        super().__init__()
        self.depthwise = depthwise(c_in, kernel_size, stride=stride, bias=bias)
        self.pointwise = pointwise(c_in, c_out, bias=bias)

    def forward(self, x: Tensor) -> Tensor:                            # (B, C_in, H, W)
        y: Tensor = self.pointwise(self.depthwise(x))                  # (B, C_out, H', W')
        return y
