"""Masked convolutions of autoregressive image models: a pixel depends on those before it alone, row by row, left to
right.

The channels of a pixel may be ordered, too (red before green before blue): each feature then belongs to one group of
channels and sees its own and earlier groups.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MaskType = Literal["A", "B", "rows"]


def causal_mask2d(kernel_size: tuple[int, int], mask_type: MaskType) -> Tensor:
    """1 where a weight is allowed: A before the center, B the center too, rows all of this row and those above.

    Van den Oord et al. 2016.
    """
    h, w = kernel_size
    order = torch.arange(h * w).view(h, w) - (h // 2 * w + w // 2)      # the center is 0
    max_offset = {"A": -1, "B": 0, "rows": w // 2}[mask_type]
    return (order <= max_offset).float()


def _channel_group(n: int, channel_groups: int, gate_parts: int = 1) -> Tensor:
    """The channel group of each of n features: 0, 1, …, 0, 1, …; the same in each of the parts into which a gate splits
    them.
    """
    return (torch.arange(n // gate_parts) % channel_groups).repeat(gate_parts)


class MaskedConv2d(nn.Conv2d):
    """y = (W ⊙ M) * x, the size kept.  Groudiev 9.2.3-9.2.4.

    At the center, the features of a group see those of earlier groups (mask A), and of their own, too (B). With one
    group a pixel is predicted as a whole.
    """

    mask: Tensor

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel_size: tuple[int, int],
        mask_type: MaskType,
        *,
        channel_groups: int = 1,
        gate_parts: int = 1,
    ):
        super().__init__(n_in, n_out, kernel_size, padding=(kernel_size[0] // 2, kernel_size[1] // 2))
        allowed = causal_mask2d(kernel_size, mask_type).repeat(n_out, n_in, 1, 1)
        if mask_type != "rows":
            in_group = _channel_group(n_in, channel_groups)
            out_group = _channel_group(n_out, channel_groups, gate_parts)[:, None]
            center_mask = in_group < out_group if mask_type == "A" else in_group <= out_group
            allowed[:, :, kernel_size[0] // 2, kernel_size[1] // 2] = center_mask.float()
        self.register_buffer("mask", allowed, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)

    def forward_at(self, window: Tensor) -> Tensor:
        """The output at one position, from the inputs under the kernel: (B, n_in, *kernel) -> (B, n_out)."""
        return F.linear(window.flatten(1), (self.weight * self.mask).flatten(1), self.bias)


def gated_activation(x: Tensor) -> Tensor:
    """tanh(a) σ(b), (a, b) = x.  Van den Oord et al. 2016 (gated), eq. 2."""
    a, b = x.chunk(2, dim=1)
    return a.tanh() * b.sigmoid()


def shift_down(x: Tensor) -> Tensor:
    """Shift by one row, so that each row depends on the rows above it alone."""
    return F.pad(x, (0, 0, 1, 0))[:, :, :-1]


class MaskedHead(nn.Sequential):
    """1×1 masked convolutions to the outputs of each position: (B, width, H, W) -> (B, outputs, H, W).

    Output k belongs to channel group k mod `channel_groups`.
    """

    def __init__(self, channels: int, outputs: int, *, channel_groups: int = 1):
        first, last = (
            MaskedConv2d(*sizes, (1, 1), "B", channel_groups=channel_groups)
            for sizes in ((channels, 2 * channels), (2 * channels, outputs))
        )
        super().__init__(first, nn.ReLU(), last)
        self.channel_groups = channel_groups

    def forward_at(self, h: Tensor, group: int) -> Tensor:
        """The outputs of one channel group at one position: (B, width) -> (B, outputs / channel_groups)."""
        outputs: Tensor = self[2].forward_at(F.relu(self[0].forward_at(h)))  # type: ignore[operator]
        return outputs[:, group :: self.channel_groups]
