"""Language models: the next token at every position, from those before it.

`next_token_loss` is their cross-entropy. For large vocabularies `chunked_cross_entropy.py` beside this file computes it
without holding all logits, with the fused kernel of `didact/kernels/cross_entropy.py` on a GPU.
"""

from math import exp, log

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from didact.data.core import Batch
from didact.objectives.base import Objective

IGNORE_INDEX = -100  # a target that does not count: padding, or a token that was not masked


def next_token_loss(logits: Tensor, y: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy −log p(y_t | x_≤t) of each position, 0 where y is ignored: (B, T, V), (B, T) -> (B, T).

    Gaba eq. 7.14, Fleuret 3.2. `label_smoothing` spreads that fraction of the target over all tokens (Gaba eq. 3.34).
    """
    z = logits.flatten(0, 1).float()
    return cross_entropy(
        z, y.flatten(), ignore_index=IGNORE_INDEX, reduction="none", label_smoothing=label_smoothing
    ).view(y.shape)


def perplexity(nll: float) -> float:
    """Perplexity e^nll: among how many equally likely tokens the model seems to choose; inf where a float overflows."""
    return exp(nll) if nll < 700 else float("inf")


def bits_per_character(nll: float, chars_per_token: float = 1.0) -> float:
    """nll / (r · ln 2) for r characters per token: comparable between tokenizers, as perplexity is not."""
    return nll / (chars_per_token * log(2))


class LanguageModel(Objective):
    """min of −mean_t log p(x_{t+1} | x_≤t).  Gaba eq. 7.14, Fleuret 3.2, Lhotte 9.1."""

    def __init__(self, network: nn.Module, *, chars_per_token: float = 1.0):
        super().__init__()
        self.network, self.chars_per_token = network, chars_per_token

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        y = batch["y"]
        logits: Tensor = self.network(batch["x"])
        return {"loss": cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORE_INDEX)}

    def evaluate_batch(self, batch: Batch) -> Batch:
        logits, y = self.network(batch["x"]), batch["y"]
        is_target = y != IGNORE_INDEX
        n = is_target.sum(1)
        nll = next_token_loss(logits, y).sum(1)
        num_correct = ((logits.argmax(-1) == y) & is_target).sum(1)
        return {"loss": nll / n.clamp(min=1), "tokens": n, "correct": num_correct}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """Means over tokens, not over examples: a short text counts less."""
        n = outputs["tokens"].double()
        nll = float((outputs["loss"].double() * n).sum() / n.sum())
        scores = {"loss": nll, "accuracy": float(outputs["correct"].sum() / n.sum()), "perplexity": perplexity(nll)}
        return scores | {"bits_per_character": bits_per_character(nll, self.chars_per_token)}

    def classify(self, batch: Batch) -> Tensor:
        """Probabilities of the token after each text, (B, V)."""
        logits: Tensor = self.network(batch["x"])
        last_index = (
            batch["length"] - 1
            if "length" in batch
            else torch.full((len(logits),), logits.shape[1] - 1, device=logits.device)
        )
        return logits[torch.arange(len(logits), device=logits.device), last_index].softmax(-1)
