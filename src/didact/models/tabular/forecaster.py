"""Recurrent forecaster of a time series, one or several steps ahead.

    x_1 … x_T -> recurrent layers -> h_T -> x̂_{T+1} -> fed back, or the true value (teacher forcing) -> x̂_{T+2} …
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.recurrent.cells import State
from didact.layers.recurrent.recurrent import Init, Recurrent
from didact.registry import register_model


@register_model("rnn_forecaster", cell="rnn", hidden_size=32)
@register_model("lstm_forecaster", cell="lstm", hidden_size=32)
@register_model("gru_forecaster", cell="gru", hidden_size=32)
class RNNForecaster(nn.Module):
    """x̂_{t+1} = x_t + w h_t + b: the network learns the change, so that it starts near the naive forecast.  Gaba Ex
    5.3.
    """

    def __init__(
        self,
        *,
        cell: str = "lstm",
        hidden_size: int = 32,
        num_layers: int = 1,
        dropout: float = 0.0,
        init: Init = "orthogonal",
    ):
        super().__init__()
        self.reader = Recurrent(cell, 1, hidden_size, num_layers=num_layers, dropout=dropout, init=init)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(hidden_size, 1)

    def forward(self, x: Tensor) -> Tensor:                        # (B, T) -> (B, T): the next value after each
        return self.forward_from_state(x, None)[0]

    def forward_from_state(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        h, new_state = self.reader(x[..., None], state)
        return x + self.head(self.dropout(h))[..., 0], new_state

    def predict_teacher_forced(self, x: Tensor, y: Tensor) -> Tensor:
        """Predictions of the n values after x, each from the true values before it: (B, T), (B, n) -> (B, n)."""
        return self.forward_from_state(torch.cat([x, y[:, :-1]], dim=1), None)[0][:, -y.shape[1] :]

    def predict_autoregressive(self, x: Tensor, n: int) -> Tensor:
        """Predictions of n values, each from the predictions before it: (B, T) -> (B, n)."""
        output, state = self.forward_from_state(x, None)
        predictions = [output[:, -1:]]
        for _ in range(n - 1):
            output, state = self.forward_from_state(predictions[-1], state)
            predictions.append(output)
        return torch.cat(predictions, dim=1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"hidden_size": 6}, torch.randn(batch_size, 9)
