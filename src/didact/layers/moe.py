"""Mixture of experts: many feed-forward networks, of which each token is sent to the two that a router likes best."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu

from didact.errors import UsageError
from didact.layers.penalty import Penalised


def route(logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """softmax over the `top` largest logits: weights (N, top) that sum to one, and whose they are.  Shazeer et al. 2017; Gaba 7.10."""
    best = logits.topk(top, dim=-1)
    return best.values.softmax(dim=-1), best.indices


def balance_loss(logits: Tensor, chosen: Tensor) -> Tensor:
    """E Σ_e f_e P_e, f_e the share of choices and P_e the mean probability of expert e; 1 where both are even.

    Fedus et al. 2022, eq. 4, for `top` choices a token. f is counted, so the gradient comes through P.
    """
    experts = logits.shape[-1]
    f = one_hot(chosen, experts).float().mean(dim=(0, 1))        # (N, top, E) -> (E,)
    p = logits.softmax(dim=-1).mean(dim=0)
    return experts * (f * p).sum()


class MixtureOfExperts(Penalised):
    """y = Σ_{e ∈ top(x)} g_e(x) W2_e (silu(W1_e x) ⊙ W3_e x).  Gaba 7.10 (two of eight), Jiang et al. 2024.

    Every expert reads a queue, so that shapes are fixed. While training it may hold `capacity` · N · top / E tokens: who finds it full is
    passed over there and lives on its residual. Otherwise queues hold all tokens. The penalty is the balance loss.
    """

    def __init__(self, dim: int, hidden: int, *, experts: int = 8, top: int = 2, capacity: float | None = None):
        super().__init__()
        if not 1 <= top <= experts:
            raise UsageError(f"top must be from 1 to experts={experts}, got top={top}")
        self.experts, self.top, self.capacity = experts, top, capacity
        self.router = nn.Linear(dim, experts, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.randn(experts, dim, hidden) * dim**-0.5) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(experts, hidden, dim) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:                      # (…, D)
        tokens = x.reshape(-1, x.shape[-1])                      # (N, D)
        with torch.autocast(x.device.type, enabled=False):       # near ties are decided here: not in half precision
            logits = self.router(tokens.to(self.w1.dtype)).float()
        gates, chosen = route(logits, self.top)
        if self.training:
            self.penalty = balance_loss(logits, chosen)
        n, places = len(tokens), self.places(len(tokens))
        expert = chosen.mT.flatten()                             # first choices stand in the queues before second ones
        turn = (one_hot(expert, self.experts).cumsum(0) - 1).gather(1, expert[:, None])[:, 0]
        at = torch.where(turn < places, expert * places + turn, self.experts * places)   # the last place is for the turned away
        queues = tokens.new_zeros(self.experts * places + 1, tokens.shape[1]).index_copy(0, at, tokens.repeat(self.top, 1))
        out = self.apply_experts(queues[:-1].view(self.experts, places, -1)).flatten(0, 1)
        back = torch.cat([out, out.new_zeros(1, out.shape[1])])[at].view(self.top, n, -1)
        return (gates.mT[..., None].to(back.dtype) * back).sum(0).view(x.shape)

    def places(self, n: int) -> int:
        """The length of each queue."""
        return n if self.capacity is None or not self.training else min(n, -int(-self.capacity * n * self.top // self.experts))

    def apply_experts(self, x: Tensor) -> Tensor:                # (E, places, D), each row by its own expert
        return (silu(x @ self.w1) * (x @ self.w3)) @ self.w2
