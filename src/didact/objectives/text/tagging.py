"""Sequence tagging: a label for each token."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.base import Objective
from didact.objectives.text.language_model import IGNORE_INDEX, next_token_loss


class TaggingObjective(Objective):
    """min of −Σ_t log p(y_t | x) per labeled token of a sequence.  Gaba 5.7, Van Schependom 6.3.

    `query_token` is the token whose positions have labels; None: all positions but padding. Sums over a sequence are
    divided by `mean_length`, its mean number of labels, so that the gradient of a batch is the mean of its
    micro-batches' gradients.
    """

    def __init__(self, network: nn.Module, *, mean_length: float, query_token: int | None = None):
        super().__init__()
        self.network, self.mean_length, self.query_token = network, mean_length, query_token

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        return {"loss": next_token_loss(self.network(batch["x"]), batch["y"]).sum(1).mean() / self.mean_length}

    def evaluate_batch(self, batch: Batch) -> Batch:
        logits, y = self.network(batch["x"]), batch["y"]
        is_target = y != IGNORE_INDEX
        n, num_correct = is_target.sum(1), ((logits.argmax(-1) == y) & is_target).sum(1)
        return {"loss": next_token_loss(logits, y).sum(1) / n.clamp(min=1), "tokens": n, "correct": num_correct}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`accuracy` of labels; `exact`: sequences without a mistake."""
        n, num_correct = outputs["tokens"].double(), outputs["correct"]
        nll = float((outputs["loss"].double() * n).sum() / n.sum())
        return {
            "loss": nll,
            "accuracy": float(num_correct.sum() / n.sum()),
            "exact": float((num_correct == outputs["tokens"]).double().mean()),
        }

    def tag(self, batch: Batch) -> Tensor:
        """Probabilities of each token's label, (B, T, K); 0 at tokens without a label."""
        x = batch["x"]
        is_query = x != 0 if self.query_token is None else x == self.query_token
        p: Tensor = self.network(x).softmax(-1)
        return torch.where(is_query[..., None], p, 0.0)
