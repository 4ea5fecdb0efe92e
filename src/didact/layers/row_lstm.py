"""An LSTM whose step is a row of an image: every place of it at once, told from the row above and from what lies to its left."""

import torch
from torch import Tensor, nn

from didact.layers.masked_conv import MaskedConv2d

State = tuple[Tensor, Tensor]   # h and c of a row, (B, width, W)


class RowLSTM(nn.Module):
    """i, f, g, o = K_is ⊛ x_r + K_ss ⊛ h_(r−1);  c_r = σ(f) c_(r−1) + σ(i) tanh g,  h_r = σ(o) tanh c_r.  Van den Oord et al. 2016, eq. 3.

    K_is is masked, since it reads the row that is being told; K_ss is not, since its row is known.
    Kernels of 1 make a plain LSTM of each column.
    """

    def __init__(self, n_in: int, width: int, *, kernel: int = 3, turns: int = 1):
        super().__init__()
        self.width = width
        self.input_to_state = MaskedConv2d(n_in, 4 * width, (1, kernel), "B", turns=turns, parts=4)
        self.state_to_state = nn.Conv1d(width, 4 * width, kernel, padding=kernel // 2, bias=False)

    def cell(self, gates: Tensor, c: Tensor) -> State:
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def unrolled(self, x: Tensor) -> tuple[Tensor, State]:
        """(B, C, H, W) -> (B, width, H, W), and the state of the last row."""
        rows = self.input_to_state(x).unbind(2)                   # all rows at once: only the state has to wait
        h = c = torch.zeros_like(rows[0][:, : self.width])
        out = []
        for row in rows:
            h, c = self.cell(row + self.state_to_state(h), c)
            out.append(h)
        return torch.stack(out, dim=2), (h, c)

    def forward(self, x: Tensor) -> Tensor:
        return self.unrolled(x)[0]
