"""Row LSTM: an LSTM whose step is a row of an image, for all its positions at once, from the row above and the pixels
to the left.
"""

import torch
from torch import Tensor, nn

from didact.layers.conv.masked_conv import MaskedConv2d

State = tuple[Tensor, Tensor]   # h and c of a row, (B, width, W)


class RowLSTM(nn.Module):
    """i, f, g, o = K_is ⊛ x_r + K_ss ⊛ h_(r−1);  c_r = σ(f) c_(r−1) + σ(i) tanh g,  h_r = σ(o) tanh c_r.

    K_is is masked, since it reads the row that is being predicted; K_ss is not, since its row is known. Kernels of size
    1 make a plain LSTM of each column.  Van den Oord et al. 2016, eq. 3.
    """

    def __init__(self, n_in: int, channels: int, *, kernel_size: int = 3, channel_groups: int = 1):
        super().__init__()
        self.channels = channels
        self.input_to_state = MaskedConv2d(
            n_in, 4 * channels, (1, kernel_size), "B", channel_groups=channel_groups, gate_parts=4
        )
        self.state_to_state = nn.Conv1d(channels, 4 * channels, kernel_size, padding=kernel_size // 2, bias=False)

    def step(self, gates: Tensor, c: Tensor) -> State:
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def forward_with_state(self, x: Tensor) -> tuple[Tensor, State]:
        """(B, C, H, W) -> (B, width, H, W), and the state of the last row."""
        rows = self.input_to_state(x).unbind(2)                   # all rows at once: only the state is sequential
        h = c = torch.zeros_like(rows[0][:, : self.channels])
        out = []
        for row in rows:
            h, c = self.step(row + self.state_to_state(h), c)
            out.append(h)
        return torch.stack(out, dim=2), (h, c)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_with_state(x)[0]
