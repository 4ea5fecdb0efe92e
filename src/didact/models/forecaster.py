"""A recurrent network over numbers: what comes next in a time series, a day or several ahead.

    x_1 … x_T -> left to right -> h_T -> x̂_{T+1} -> fed back, or the truth in its place -> x̂_{T+2} …
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.cells import State
from didact.layers.recurrent import Init, Recurrent
from didact.registry import register


@register("rnn_forecaster", cell="rnn", hidden=32)
@register("lstm_forecaster", cell="lstm", hidden=32)
@register("gru_forecaster", cell="gru", hidden=32)
class Forecaster(nn.Module):
    """x̂_{t+1} = x_t + w h_t + b: what is learned is the change, so that at first it says what the naive forecast says.  Gaba Ex 5.3."""

    def __init__(self, *, cell: str = "lstm", hidden: int = 32, layers: int = 1, dropout: float = 0.0, init: Init = "orthogonal"):
        super().__init__()
        self.reader = Recurrent(cell, 1, hidden, layers=layers, dropout=dropout, init=init)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:                                  # (B, T) -> (B, T): after each value, the next
        return self.after(x, None)[0]

    def after(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        h, then = self.reader(x[..., None], state)
        return x + self.head(self.dropout(h))[..., 0], then

    def forced(self, x: Tensor, y: Tensor) -> Tensor:
        """Each of the values behind x, the ones before it told: (B, T), (B, n) -> (B, n)."""
        return self.after(torch.cat([x, y[:, :-1]], dim=1), None)[0][:, -y.shape[1] :]

    def free(self, x: Tensor, n: int) -> Tensor:
        """The same from its own: (B, T) -> (B, n)."""
        said, state = self.after(x, None)
        found = [said[:, -1:]]
        for _ in range(n - 1):
            said, state = self.after(found[-1], state)
            found.append(said)
        return torch.cat(found, dim=1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        return {"hidden": 6}, torch.randn(batch, 9)
