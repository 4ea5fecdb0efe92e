"""Sequence tagging: a label for each token that is asked about."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.core import Objective
from didact.objectives.language import IGNORED, next_token


class Tag(Objective):
    """min of −Σ_t log p(y_t | x), over the tokens of a row that have a label, for each such token.  Gaba 5.7, Van Schependom 6.3.

    `asks` is the token at which labels are asked for; None asks at every one but padding. Sums over a row are divided by one `length`,
    the labels that a row has on average, so that the gradient of a batch is that of its parts.
    """

    def __init__(self, network: nn.Module, *, length: float, asks: int | None = None):
        super().__init__()
        self.network, self.length, self.asks = network, length, asks

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": next_token(self.network(batch["x"]), batch["y"]).sum(1).mean() / self.length}

    def judge(self, batch: Batch) -> Batch:
        logits, y = self.network(batch["x"]), batch["y"]
        asked = y != IGNORED
        n, right = asked.sum(1), ((logits.argmax(-1) == y) & asked).sum(1)
        return {"loss": next_token(logits, y).sum(1) / n.clamp(min=1), "tokens": n, "right": right}

    def score(self, rows: Batch) -> dict[str, float]:
        """`accuracy` of labels, `exact`: rows without a mistake."""
        n, right = rows["tokens"].double(), rows["right"]
        nll = float((rows["loss"].double() * n).sum() / n.sum())
        return {"loss": nll, "accuracy": float(right.sum() / n.sum()), "exact": float((right == rows["tokens"]).double().mean())}

    def tag(self, batch: Batch) -> Tensor:
        """Probabilities of each token's label, (B, T, K); 0 where none is asked for."""
        x = batch["x"]
        asked = x != 0 if self.asks is None else x == self.asks
        p: Tensor = self.network(x).softmax(-1)
        return torch.where(asked[..., None], p, 0.0)
