"""PixelRNN (van den Oord et al. 2016): an autoregressive model of images with row LSTMs, whose state holds the rows
above.

    x -> masked 7×7 -> layers x [v + W RowLSTM(v)] -> logits

The receptive field of a pixel is a triangle that opens upwards: r rows above it, r + 2 columns to its right.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.autoencoder_blocks import Shape
from didact.layers.conv.masked_conv import MaskedConv2d, MaskedHead
from didact.layers.recurrent.row_lstm import RowLSTM, State
from didact.registry import register_model

_FIRST_KERNEL = (7, 7)
_FIRST_PADDING = _FIRST_KERNEL[0] // 2


@register_model("pixelrnn", channels=32, num_layers=2)
class PixelRNN(nn.Module):
    """p(x) = Π_i p(x_i | x_<i), h_r = f(h_(r−1), x_r).  Groudiev 9.2.3.

    With several `channel_groups` the channels of a pixel are predicted one after the other, with one group all together
    from the pixels before.
    """

    rows: Sequence[RowLSTM]
    out: Sequence[MaskedConv2d]

    def __init__(
        self,
        *,
        shape: Shape,
        channels: int,
        num_layers: int,
        outputs: int,
        num_classes: int = 0,
        channel_groups: int = 1,
    ):
        super().__init__()
        self.first = MaskedConv2d(shape[0], channels, _FIRST_KERNEL, "A", channel_groups=channel_groups)
        self.label = nn.Embedding(num_classes, channels) if num_classes else None
        self.rows = nn.ModuleList(RowLSTM(channels, channels, channel_groups=channel_groups) for _ in range(num_layers))  # type: ignore[assignment]
        self.out = nn.ModuleList(
            MaskedConv2d(channels, channels, (1, 1), "B", channel_groups=channel_groups) for _ in range(num_layers)
        )  # type: ignore[assignment]
        self.head = MaskedHead(channels, outputs, channel_groups=channel_groups)
        self.channel_groups, self.channels = channel_groups, channels

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Centered pixels (B, C, H, W) -> `outputs` numbers for each, from the pixels before it: (B, outputs, H, W)."""
        logits: Tensor = self.head(F.relu(self.forward_with_states(x, y)[0]))
        return logits

    def forward_with_states(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, list[State]]:
        """Input of the head, and the state of each LSTM after the last row."""
        v, states = self.first(x), []
        if self.label is not None and y is not None:
            v = v + self.label(y)[:, :, None, None]
        for row_lstm, out in zip(self.rows, self.out, strict=True):
            h, state = row_lstm.forward_with_state(v)
            v = v + out(h)
            states.append(state)
        return v, states

    def iterate_conditional_logits(self, x: Tensor, y: Tensor | None, first_row: int) -> Iterator[Tensor]:
        """Cached sampling: the outputs of each position and channel group in turn, (B, outputs / channel_groups), from
        `first_row` on.

        After each one, x must hold the sampled value. LSTM states advance once per row; inside a row only the masked
        convolutions are computed, at one position at a time.
        """
        B, _, H, W = x.shape
        blank = x.new_zeros(B, self.channels, W)
        states = self.forward_with_states(x[:, :, :first_row], y)[1] if first_row else [(blank, blank)] * len(self.rows)
        label_bias = self.label(y) if self.label is not None and y is not None else 0.0
        for i in range(first_row, H):
            # the kernel's rows around row i
            window = F.pad(
                x[:, :, max(0, i - _FIRST_PADDING) : i + 1],
                (_FIRST_PADDING, _FIRST_PADDING, max(0, _FIRST_PADDING - i), _FIRST_PADDING),
            )
            state_inputs = [row_lstm.state_to_state(h) for row_lstm, (h, _) in zip(self.rows, states, strict=True)]
            row_buffers = [F.pad(blank, (1, 1)) for _ in self.rows]
            new_states = [(blank.clone(), blank.clone()) for _ in self.rows]
            for j, t in product(range(W), range(self.channel_groups)):
                # values sampled since the last position
                window[:, :, _FIRST_PADDING, _FIRST_PADDING:-_FIRST_PADDING] = x[:, :, i]
                v = self.first.forward_at(window[..., j : j + _FIRST_KERNEL[1]]) + label_bias
                for k, (row_lstm, out) in enumerate(zip(self.rows, self.out, strict=True)):
                    row_buffers[k][..., 1 + j] = v
                    gates = row_lstm.input_to_state.forward_at(row_buffers[k][..., j : j + 3]) + state_inputs[k][..., j]
                    h, new_states[k][1][..., j] = row_lstm.step(gates, states[k][1][..., j])
                    new_states[k][0][..., j] = h
                    v = v + out.forward_at(h)
                yield self.head.forward_at(F.relu(v), t)
            states = new_states

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (1, 5, 6), "channels": 6, "num_layers": 2, "outputs": 4}, 2 * torch.rand(
            batch_size, 1, 5, 6
        ) - 1
