"""Mixture of experts: many feed-forward networks, of which each token is sent to the two that a router likes best."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu

from didact.errors import UsageError
from didact.layers.arithmetic import arithmetic
from didact.layers.penalty import Penalised

PARTS = 2      # blocks that an expert's even share is cut into: fewer are padded more, more copy its matrices more often


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


class Router(nn.Linear):
    """z = W x, not in half precision: near ties are decided here. Small and decisive, so that LoRA and int8 pass over it."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype)).float()


class MixtureOfExperts(Penalised):
    """y = Σ_{e ∈ top(x)} g_e(x) W2_e (silu(W1_e x) ⊙ W3_e x).  Gaba 7.10 (two of eight), Jiang et al. 2024.

    Every token is heard by those that it chose, however many others chose them: none depends on its neighbours. W1 and W3 begin with
    deviation `std`, W2, which adds to the residual path, with `out_std`; 1 / √inputs if not given. The penalty is the balance loss.
    """

    stacked = ("w1", "w2", "w3")                                 # (E, inputs, outputs)

    def __init__(
        self, dim: int, hidden: int, *, experts: int = 8, top: int = 2, std: float | None = None, out_std: float | None = None
    ):
        super().__init__()
        if not 1 <= top <= experts:
            raise UsageError(f"top must be from 1 to experts={experts}, got top={top}")
        self.experts, self.top = experts, top
        self.router = Router(dim, experts, bias=False)
        std, out_std = std or dim**-0.5, out_std or hidden**-0.5
        self.w1, self.w3 = (nn.Parameter(std * torch.randn(experts, dim, hidden)) for _ in range(2))
        self.w2 = nn.Parameter(out_std * torch.randn(experts, hidden, dim))

    def forward(self, x: Tensor) -> Tensor:                      # (…, D)
        tokens = x.reshape(-1, x.shape[-1])                      # (N, D)
        logits = self.router(tokens)
        gates, chosen = route(logits, self.top)
        self.penalty = balance_loss(logits, chosen) if self.training else None
        ask = self.in_turn if x.device.type == "cpu" and not torch.compiler.is_compiling() else self.in_blocks
        y = ask(tokens.repeat_interleave(self.top, dim=0), chosen.flatten()).unflatten(0, chosen.shape)          # (N, top, D)
        out: Tensor = (gates[..., None].to(y.dtype) * y).sum(1)
        return out.view(x.shape)

    def in_turn(self, x: Tensor, expert: Tensor) -> Tensor:
        """Each row by its expert, one expert after another with all of its rows: how many they are, the host must know."""
        order = expert.argsort(stable=True)
        rows = x[order].split(one_hot(expert, self.experts).sum(0).tolist())
        matrices = zip(self.w1.unbind(), self.w3.unbind(), self.w2.unbind(), strict=True)
        y = torch.cat([gated(x_e, *w) for x_e, w in zip(rows, matrices, strict=True)])
        return torch.empty_like(y).index_copy(0, order, y)

    def in_blocks(self, x: Tensor, expert: Tensor) -> Tensor:
        """The same in shapes that do not depend on who chose whom: rows in blocks of `size`, the last of each expert padded."""
        n, experts = len(x), self.experts
        size = -(-n // (PARTS * experts))
        most = (n + min(experts, n) * (size - 1)) // size        # Σ_e ceil(n_e / size) is never more
        counts = one_hot(expert, experts).sum(0)                 # (E,)
        ends = (-(-counts // size)).cumsum(0)                    # of each expert's blocks
        order = expert.argsort(stable=True)
        place = torch.empty_like(order).scatter(0, order, torch.arange(n, device=x.device))
        start, rank = ends - -(-counts // size), place - (counts.cumsum(0) - counts)[expert]
        at = start[expert] * size + rank                         # (N · top,)
        owner = (torch.arange(most, device=x.device)[:, None] >= ends).sum(1).clamp(max=experts - 1)    # of what is left over: anyone
        blocks = x.new_zeros(most * size, x.shape[1]).index_copy(0, at, x).view(most, size, -1)
        kind = arithmetic(self.w1)
        # copies in half precision are half as large; but of a few tokens' experts only those are copied, and then rounded
        w1, w3, w2 = (w.to(kind)[owner] if most > experts else w[owner] for w in (self.w1, self.w3, self.w2))
        return gated(blocks, w1, w3, w2).flatten(0, 1)[at]


def gated(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor) -> Tensor:
    return (silu(x @ w1) * (x @ w3)) @ w2
