"""Shapley values: the score shared out among the parts of the input, each paid what it adds on average to all coalitions."""

from collections.abc import Callable
from math import comb

import torch
from torch import Tensor

from didact.explain.gradients import Score
from didact.explain.occlude import covered_scores

EXACT = 10  # players: 2^10 coalitions are asked, beyond that orders are sampled

Value = Callable[[Tensor], Tensor]  # (M, d) True where a player is in -> (M,)


def shapley(
    model_fn: Score, x: Tensor, target: int | Tensor, *,
    players: Tensor | None = None, baseline: Tensor | float = 0.0, exact: int = EXACT, samples: int = 32,
    generator: torch.Generator | None = None,
) -> Tensor:
    """φ_i = Σ_{S ∌ i} |S|! (d − |S| − 1)! / d! [v(S ∪ i) − v(S)], v(S) = s_c(x with all outside S at the baseline).  Gaba 12.5.3.

    (B, d) for d players; they sum to s_c(x) − s_c(baseline). `players` gives each number of an input, or each pixel of an
    image, its player's number (-1: it is always there); without it each number is a player.
    """
    members = torch.arange(x[0].numel()).view(x.shape[1:]) if players is None else players
    members = members.to(x.device)
    d = int(members.max()) + 1
    each = torch.as_tensor(target).expand(len(x)).tolist()
    if d == 0:                                                          # a text without a known word
        return x.new_zeros(len(x), 0)

    def value(row: Tensor, c: int) -> Value:
        def v(coalitions: Tensor) -> Tensor:                            # -1 looks up the last column: always there
            known = torch.cat([coalitions, torch.ones_like(coalitions[:, :1])], dim=1).to(x.device)
            there = [part[:, members] for part in known.split(512)]
            there = [part[:, None] if members.ndim < row.ndim else part for part in there]   # one pixel, all its channels
            return torch.cat([covered_scores(model_fn, row, c, part, baseline) for part in there]).double()
        return v

    games = [value(row, c) for row, c in zip(x, each, strict=True)]
    found = [enumerated(v, d) if d <= exact else sampled(v, d, samples, generator) for v in games]
    return torch.stack(found).to(x)


def enumerated(v: Value, d: int) -> Tensor:
    """Exactly, from the values of all 2^d coalitions; player i is bit i of a coalition's number."""
    number = torch.arange(2**d)
    inside = (number[:, None] >> torch.arange(d)) & 1 == 1              # (2^d, d)
    worth, size = v(inside).cpu(), inside.sum(1)
    weight = torch.tensor([1 / (d * comb(d - 1, s)) for s in range(d)], dtype=torch.float64)
    found = []
    for i in range(d):
        without = number[~inside[:, i]]
        found.append((weight[size[without]] * (worth[without | 1 << i] - worth[without])).sum())
    return torch.stack(found)


def sampled(v: Value, d: int, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """The mean over random orders of what each player adds when it comes; every other order is the one before, backwards.

    What is added along one order telescopes, so the values sum to v(all) − v(none) however few orders are drawn.
    """
    total = torch.zeros(d, dtype=torch.float64)
    order = torch.arange(d)
    for k in range(samples):
        order = torch.randperm(d, generator=generator) if k % 2 == 0 else order.flip(0)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(d)
        worth = v(rank < torch.arange(d + 1)[:, None]).cpu()            # (d + 1, d): the first 0, 1, … d have come
        total[order] += worth.diff()
    return total / samples
