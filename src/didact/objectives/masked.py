"""Masked language models: some tokens are hidden, and the network says from both sides what they were."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.core import Objective
from didact.objectives.language import IGNORED, next_token, perplexity


class MaskedLanguage(Objective):
    """min of −mean_{i ∈ M} log p(x_i | x without M), M a random 15 % of the tokens.  Devlin et al. 2019; Gaba eq. 7.13.

    Of those, 80 % are replaced by the mask, 10 % by a random token and 10 % are left, so that what is read later, without masks, is
    not strange. Tokens are counted from 1, since 0 is the network's padding; the mask is the one behind the last.
    The share `cut` of the windows is learned from in pieces that know nothing of each other: what is filled in later is often short.
    """

    def __init__(self, network: nn.Module, vocabulary: int, *, share: float = 0.15, cut: float = 0.0):
        super().__init__()
        self.network, self.vocabulary, self.share, self.cut = network, vocabulary, share, cut

    @property
    def mask(self) -> int:
        return self.vocabulary + 1

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, hidden = self.hide(batch["x"] + 1)
        logits = self.network(x, pieces=pieces(x, self.cut)) if self.cut else self.network(x)
        nll = next_token(logits, torch.where(hidden, batch["x"] + 1, IGNORED))
        return {"loss": nll.sum() / (self.share * nll.numel())}       # by the expected number: micro-batches weigh alike

    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the network reads, and which tokens it is asked for: (B, S) -> (B, S), (B, S)."""
        u = torch.rand(x.shape, device=x.device) / self.share          # below 1 for those of M, and uniform there
        other = torch.randint_like(x, 1, self.vocabulary + 1)
        read = torch.where(u < 0.8, self.mask, torch.where(u < 0.9, other, x))
        return torch.where(u < 1, read, x), u < 1

    def judge(self, batch: Batch) -> Batch:
        """All of M masked; M follows from the row's number, so that two evaluations ask the same."""
        x, read = batch["x"] + 1, self.veil(batch) + 1
        hidden = read == self.mask
        logits = self.network(read)
        n = hidden.sum(1)
        nll = next_token(logits, torch.where(hidden, x, IGNORED)).sum(1)
        return {"loss": nll / n.clamp(min=1), "tokens": n, "right": ((logits.argmax(-1) == x) & hidden).sum(1)}

    def veil(self, batch: Batch) -> Tensor:
        return torch.where(chosen(batch["row"], batch["x"].shape[1], self.share), self.vocabulary, batch["x"])

    def score(self, rows: Batch) -> dict[str, float]:
        n = rows["tokens"].double()
        nll = float((rows["loss"].double() * n).sum() / n.sum())
        return {"loss": nll, "accuracy": float(rows["right"].sum() / n.sum()), "perplexity": perplexity(nll)}

    def fill(self, batch: Batch) -> Tensor:
        """p(x_i | the rest) where x_i is the mask, which is counted as the token behind the last: (B, T) -> (B, T, V), 0 elsewhere."""
        x = batch["x"] + 1
        p: Tensor = self.network(x)[..., 1 : self.mask].float().softmax(-1)
        return torch.where((x == self.mask)[..., None], p, 0.0)


def pieces(x: Tensor, share: float) -> Tensor:
    """Which piece each token belongs to, (B, S), from 0 on: a share of the rows is cut, the others are one piece.

    A row that is cut has pieces of S^u tokens on average, u uniform in [¼, 1]: as often around 4 as around 16, few of a single token.
    """
    u, other = torch.rand(2, len(x), 1, device=x.device)
    begins = torch.where(other < share, x.shape[1] ** -(0.25 + 0.75 * u), 0.0)       # how likely a piece begins at each token
    return (torch.rand(x.shape, device=x.device) < begins).long().cumsum(1)


def chosen(rows: Tensor, n: int, share: float) -> Tensor:
    """A share of the places of each row, (B,) -> (B, n): as if each were drawn by itself, and the same whenever asked."""
    at = torch.arange(n, device=rows.device)
    return scattered(scattered(rows.long())[:, None] + at) < share * 2**32


def scattered(x: Tensor) -> Tensor:
    """A whole number in [0, 2^32) for each whole number; neighbours have nothing in common.  Murmur3's finaliser (Appleby 2011)."""
    low = 2**32 - 1                                    # products wrap around at 2^64, which leaves their lower half as it is
    x = x & low
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * factor & low
    return x ^ (x >> 16)
