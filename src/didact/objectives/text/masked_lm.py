"""Masked language models: some tokens are masked, and the network predicts them from both sides."""

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.base import Objective
from didact.objectives.text.language_model import IGNORE_INDEX, next_token_loss, perplexity


class MaskedLanguageModel(Objective):
    """min of −mean_{i ∈ M} log p(x_i | x without M), M a random 15 % of the tokens.  Devlin et al. 2019; Gaba eq. 7.13.

    Of M, 80 % are replaced by the mask, 10 % by a random token and 10 % are kept, so that later inputs without masks
    are not unusual. Tokens are counted from 1, since 0 is the network's padding; the mask is the one after the last.
    With `short_seq_probability` a window is cut into segments that do not attend to each other: later inputs are often
    short.
    """

    def __init__(
        self, network: nn.Module, vocab_size: int, *, mlm_probability: float = 0.15, short_seq_probability: float = 0.0
    ):
        super().__init__()
        self.network, self.vocab_size, self.mlm_probability, self.short_seq_probability = (
            network,
            vocab_size,
            mlm_probability,
            short_seq_probability,
        )

    @property
    def mask_token_id(self) -> int:
        return self.vocab_size + 1

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, is_target = self.apply_mask(batch["x"] + 1)
        logits = (
            self.network(x, pieces=segment_ids(x, self.short_seq_probability))
            if self.short_seq_probability
            else self.network(x)
        )
        nll = next_token_loss(logits, torch.where(is_target, batch["x"] + 1, IGNORE_INDEX))
        # divided by the expected number of masked tokens, not the actual one: all micro-batches weigh the same
        return {"loss": nll.sum() / (self.mlm_probability * nll.numel())}

    def apply_mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The network's input, and the positions of M: (B, S) -> (B, S), (B, S)."""
        # below 1 exactly at M, and uniform there: one random number chooses M and what replaces it
        u = torch.rand(x.shape, device=x.device) / self.mlm_probability
        random_tokens = torch.randint_like(x, 1, self.vocab_size + 1)
        corrupted = torch.where(u < 0.8, self.mask_token_id, torch.where(u < 0.9, random_tokens, x))
        return torch.where(u < 1, corrupted, x), u < 1

    def evaluate_batch(self, batch: Batch) -> Batch:
        """All of M is masked; M follows from the example's index, so that each evaluation masks the same tokens."""
        x, masked = batch["x"] + 1, self.mask_inputs(batch) + 1
        is_masked = masked == self.mask_token_id
        logits = self.network(masked)
        n = is_masked.sum(1)
        nll = next_token_loss(logits, torch.where(is_masked, x, IGNORE_INDEX)).sum(1)
        return {"loss": nll / n.clamp(min=1), "tokens": n, "correct": ((logits.argmax(-1) == x) & is_masked).sum(1)}

    def mask_inputs(self, batch: Batch) -> Tensor:
        return torch.where(
            mask_positions(batch["row"], batch["x"].shape[1], self.mlm_probability), self.vocab_size, batch["x"]
        )

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        n = outputs["tokens"].double()
        nll = float((outputs["loss"].double() * n).sum() / n.sum())
        return {"loss": nll, "accuracy": float(outputs["correct"].sum() / n.sum()), "perplexity": perplexity(nll)}

    def fill(self, batch: Batch) -> Tensor:
        """p(x_i | the rest) where x_i is the mask, whose id is `vocab_size`: (B, T) -> (B, T, V), 0 elsewhere."""
        x = batch["x"] + 1
        p: Tensor = self.network(x)[..., 1 : self.mask_token_id].float().softmax(-1)
        return torch.where((x == self.mask_token_id)[..., None], p, 0.0)


def segment_ids(x: Tensor, short_seq_probability: float) -> Tensor:
    """The segment of each token, (B, S), counted from 0: a fraction of the examples is cut, the others are one segment.

    A cut example has segments of S^u tokens on average, u uniform in [¼, 1]: lengths around 4 are as frequent as around
    16, and few are of a single token.
    """
    u, v = torch.rand(2, len(x), 1, device=x.device)
    # the probability that a segment starts at a token
    start_probability = torch.where(v < short_seq_probability, x.shape[1] ** -(0.25 + 0.75 * u), 0.0)
    return (torch.rand(x.shape, device=x.device) < start_probability).long().cumsum(1)


def mask_positions(row_index: Tensor, n: int, mlm_probability: float) -> Tensor:
    """A fraction of each example's positions, (B,) -> (B, n): as if chosen at random, and always the same."""
    positions = torch.arange(n, device=row_index.device)
    return hash32(hash32(row_index.long())[:, None] + positions) < mlm_probability * 2**32


def hash32(x: Tensor) -> Tensor:
    """An integer in [0, 2^32) for each integer; neighbors share nothing.  Murmur3's finalizer (Appleby 2011)."""
    # products wrap around at 2^64, which leaves their lower half as it is
    mask32 = 2**32 - 1
    x = x & mask32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * factor & mask32
    return x ^ (x >> 16)
