"""Convolutions beyond the plain one: dilated, transposed, with TensorFlow's padding, deformable."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.errors import UsageError


def dilated_conv(c_in: int, c_out: int, kernel_size: int = 3, *, dilation: int = 1, bias: bool = True) -> nn.Conv2d:
    """Dilated convolution: taps d pixels apart, padded by d (k - 1) / 2 so that the size stays.  Fleuret 4.2."""
    if kernel_size % 2 == 0:
        raise UsageError(f"a dilated convolution keeps the size for an odd kernel only, got kernel_size={kernel_size}")
    return nn.Conv2d(c_in, c_out, kernel_size, padding=dilation * (kernel_size - 1) // 2, dilation=dilation, bias=bias)


def upsample_conv(c_in: int, c_out: int, factor: int = 2, *, bias: bool = True) -> nn.ConvTranspose2d:
    """Transposed convolution with stride = kernel size: sizes times `factor`; its patches do not overlap, so no
    checkerboard.

    Fleuret 4.2.
    """
    return nn.ConvTranspose2d(c_in, c_out, factor, stride=factor, bias=bias)


class SameConv2d(nn.Conv2d):
    """"Same" padding as in TensorFlow: output ceil(size / stride); an odd row of padding goes below and to the right.

    Weights that were trained there need it: symmetric padding shifts their input by a pixel at each stride.
    """

    def forward(self, input: Tensor) -> Tensor:
        (top, bottom), (left, right) = (self._same_padding(axis, input.shape[axis - 2]) for axis in (0, 1))
        if top == bottom and left == right:  # padding inside the convolution needs no copy
            return F.conv2d(input, self.weight, self.bias, self.stride, (top, left), self.dilation, self.groups)
        padded = F.pad(input, (left, right, top, bottom))
        return F.conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _same_padding(self, axis: int, size: int) -> tuple[int, int]:
        k, s, d = self.kernel_size[axis], self.stride[axis], self.dilation[axis]
        total_padding = max(0, (-(-size // s) - 1) * s + d * (k - 1) + 1 - size)
        return total_padding // 2, total_padding - total_padding // 2


def deformable_conv2d(
    x: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None = None,
    *, stride: int = 1, padding: int = 0, dilation: int = 1,
) -> Tensor:
    """y(p0) = sum_n w_n x(p0 + p_n + dp_n), x bilinear between pixels and 0 outside.  Gaba 4.10, eq. 4.12; Dai et al.
    2017.

    `offset` is (B, 2 K, H', W'): for each of the K taps, row by row, its displacement down and right.
    """
    B, C, H, W = x.shape
    O, _, kh, kw = weight.shape
    _, _, Ho, Wo = offset.shape
    rows, columns = (torch.arange(n, device=x.device, dtype=x.dtype) for n in (Ho, Wo))
    tap_y, tap_x = (dilation * torch.arange(k, device=x.device, dtype=x.dtype) for k in (kh, kw))
    dp = offset.view(B, kh, kw, 2, Ho, Wo)
    y = rows[:, None] * stride - padding + tap_y[:, None, None, None] + dp[:, :, :, 0]       # (B, kh, kw, H', W')
    z = columns * stride - padding + tap_x[:, None, None] + dp[:, :, :, 1]
    grid = torch.stack(((2 * z + 1) / W - 1, (2 * y + 1) / H - 1), dim=-1)                   # pixel centers in (-1, 1)
    samples = F.grid_sample(x, grid.view(B, kh * kw * Ho, Wo, 2), align_corners=False)          # (B, C, K H', W')
    out = torch.einsum("ock,bckl->bol", weight.flatten(2), samples.view(B, C, kh * kw, Ho * Wo)).view(B, O, Ho, Wo)
    return out if bias is None else out + bias[:, None, None]


class DeformableConv2d(nn.Module):
    """Deformable convolution: a second convolution, zero at first, predicts the offsets of the taps."""

    def __init__(
        self, c_in: int, c_out: int, kernel_size: int = 3, *, stride: int = 1, padding: int = 0, dilation: int = 1
    ):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel_size, stride=stride, padding=padding, dilation=dilation)
        self.offset = nn.Conv2d(
            c_in, 2 * kernel_size**2, kernel_size, stride=stride, padding=padding, dilation=dilation
        )
        nn.init.zeros_(self.offset.weight)
        assert self.offset.bias is not None
        nn.init.zeros_(self.offset.bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:                            # (B, C_in, H, W)
        return deformable_conv2d(
            x, self.offset(x), self.conv.weight, self.conv.bias,
            stride=self.stride, padding=self.padding, dilation=self.dilation,
        )
