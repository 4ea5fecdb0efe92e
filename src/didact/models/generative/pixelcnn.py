"""Gated PixelCNN (van den Oord et al. 2016): an autoregressive model of images, each pixel predicted from those above
and to its left.

    x -> layers x [vertical stack: rows above; horizontal stack: this row to the left, and the vertical stack] -> logits

Two stacks, since masked square kernels alone leave a blind spot to the upper right.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.autoencoder_blocks import Shape
from didact.layers.conv.masked_conv import MaskedConv2d, MaskedHead, gated_activation, shift_down
from didact.registry import register_model


class GatedBlock(nn.Module):
    """v' = gate(conv(v)), h' = h + W gate(conv(h) + U shift_down(conv(v)) + label).  Fig. 2 of the paper."""

    def __init__(
        self, n_in: int, channels: int, *, kernel_size: int, is_first: bool, num_classes: int, channel_groups: int = 1
    ):
        super().__init__()
        self.vertical = MaskedConv2d(n_in, 2 * channels, (kernel_size, kernel_size), "rows")
        self.horizontal = MaskedConv2d(
            n_in, 2 * channels, (1, kernel_size), "A" if is_first else "B", channel_groups=channel_groups, gate_parts=2
        )
        self.across = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.out = MaskedConv2d(channels, channels, (1, 1), "B", channel_groups=channel_groups)
        self.label = nn.Embedding(num_classes, 2 * channels) if num_classes else None
        self.is_first, self.kernel_radius = is_first, kernel_size // 2

    def forward_vertical(self, v: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """v', and the condition of the horizontal stack: the rows above each position, and the class."""
        up = self.vertical(v)
        condition = self.across(shift_down(up))
        if self.label is not None and y is not None:
            condition = condition + self.label(y)[:, :, None, None]
        return gated_activation(up), condition

    def forward(self, v: Tensor, h: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        v, condition = self.forward_vertical(v, y)
        out = self.out(gated_activation(self.horizontal(h) + condition))
        # no residual path in the first block: it would show each pixel itself
        return v, out if self.is_first else h + out

    def forward_at(self, h: Tensor, row: Tensor, j: int, condition: Tensor) -> Tensor:
        """h' at column j, (B, width); `row` holds h of the columns before, padded at both sides, and receives this one.
        """
        row[..., self.kernel_radius + j] = h
        out = self.out.forward_at(
            gated_activation(self.horizontal.forward_at(row[..., j : j + 2 * self.kernel_radius + 1]) + condition)
        )
        return out if self.is_first else h + out


@register_model("pixelcnn", channels=32, num_layers=5)
class PixelCNN(nn.Module):
    """p(x) = Π_i p(x_i | x_<i).  Groudiev 9.2.4-9.2.5.

    With several `channel_groups` the channels of a pixel are predicted one after the other, with one group all together
    from the pixels before.
    """

    blocks: Sequence[GatedBlock]

    def __init__(
        self,
        *,
        shape: Shape,
        channels: int,
        num_layers: int,
        outputs: int,
        kernel_size: int = 3,
        num_classes: int = 0,
        channel_groups: int = 1,
    ):
        super().__init__()
        kernel_sizes = [kernel_size if k else max(5, kernel_size) for k in range(num_layers)]
        self.blocks = nn.ModuleList(  # type: ignore[assignment]
            GatedBlock(
                channels if k else shape[0],
                channels,
                kernel_size=block_kernel_size,
                is_first=not k,
                num_classes=num_classes,
                channel_groups=channel_groups,
            )
            for k, block_kernel_size in enumerate(kernel_sizes)
        )
        self.head = MaskedHead(channels, outputs, channel_groups=channel_groups)
        self.channel_groups = channel_groups
        self.visible_rows = sum(k // 2 for k in kernel_sizes)     # the vertical receptive field, above the row above

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Centered pixels (B, C, H, W) -> `outputs` numbers for each, from the pixels before it: (B, outputs, H, W)."""
        v = h = x
        for block in self.blocks:
            v, h = block(v, h, y)
        out: Tensor = self.head(F.relu(h))
        return out

    def iterate_conditional_logits(self, x: Tensor, y: Tensor | None, first_row: int) -> Iterator[Tensor]:
        """Cached sampling: the outputs of each position and channel group in turn, (B, outputs / channel_groups), from
        `first_row` on.

        After each one, x must hold the sampled value. The vertical stack is computed once per row, when the rows above
        are complete; the horizontal stack at one position at a time.
        """
        B, _, H, W = x.shape
        for i in range(first_row, H):
            v, conditions, row_buffers, rows_above = x[:, :, : i + 1], [], [], self.visible_rows
            for block in self.blocks:
                row_buffers.append(x.new_zeros(B, v.shape[1], W + 2 * block.kernel_radius))
                # this row, the one above, and the rows that the blocks still to come reach
                v, condition = block.forward_vertical(v[:, :, -2 - rows_above :], y)
                conditions.append(condition[:, :, -1])
                rows_above -= block.kernel_radius
            for j, t in product(range(W), range(self.channel_groups)):
                h = x[:, :, i, j]
                # values sampled since the last position
                row_buffers[0][..., self.blocks[0].kernel_radius : self.blocks[0].kernel_radius + W] = x[:, :, i]
                for block, row_buffer, condition in zip(self.blocks, row_buffers, conditions, strict=True):
                    h = block.forward_at(h, row_buffer, j, condition[..., j])
                yield self.head.forward_at(F.relu(h), t)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (1, 5, 6), "channels": 6, "num_layers": 3, "outputs": 4}, 2 * torch.rand(
            batch_size, 1, 5, 6
        ) - 1
