"""Shapley values: each part of the input gets the mean of what it adds to the score over all coalitions."""

from collections.abc import Callable
from math import comb

import torch
from torch import Tensor

from didact.explain.gradients import ScoreFn
from didact.explain.occlusion import score_masked_inputs

MAX_EXACT_PLAYERS = 10  # up to here all 2^d coalitions are evaluated, beyond that random permutations are sampled

_CoalitionValue = Callable[[Tensor], Tensor]  # (M, d), True where a player is in the coalition -> (M,)


def shapley(
    model_fn: ScoreFn,
    x: Tensor,
    target: int | Tensor,
    *,
    players: Tensor | None = None,
    baseline: Tensor | float = 0.0,
    max_exact: int = MAX_EXACT_PLAYERS,
    num_samples: int = 32,
    generator: torch.Generator | None = None,
) -> Tensor:
    """φ_i = Σ_{S ∌ i} |S|! (d − |S| − 1)! / d! [v(S ∪ i) − v(S)], v(S) = s_c(x, baseline outside S).  Gaba 12.5.3.

    (B, d) for d players; they sum to s_c(x) − s_c(baseline). `players` gives the player of each number of an input, or
    of each pixel of an image (-1: always present); without it each number is a player. Up to `max_exact` players the
    values are exact, above they are estimated from `num_samples` permutations.
    """
    player_index = torch.arange(x[0].numel()).view(x.shape[1:]) if players is None else players
    player_index = player_index.to(x.device)
    d = int(player_index.max()) + 1
    targets = torch.as_tensor(target).expand(len(x)).tolist()
    if d == 0:                                                          # a text without any known word
        return x.new_zeros(len(x), 0)

    def make_value(row: Tensor, c: int) -> _CoalitionValue:
        def v(coalitions: Tensor) -> Tensor:                            # index -1: a last column that is always True
            padded = torch.cat([coalitions, torch.ones_like(coalitions[:, :1])], dim=1).to(x.device)
            keep_masks = [keep_mask[:, player_index] for keep_mask in padded.split(512)]
            # a pixel is masked in all channels
            keep_masks = [keep_mask[:, None] if player_index.ndim < row.ndim else keep_mask for keep_mask in keep_masks]
            return torch.cat(
                [score_masked_inputs(model_fn, row, c, keep_mask, baseline) for keep_mask in keep_masks]
            ).double()

        return v

    games = [make_value(row, c) for row, c in zip(x, targets, strict=True)]
    values = [exact_shapley(v, d) if d <= max_exact else sample_shapley(v, d, num_samples, generator) for v in games]
    return torch.stack(values).to(x)


def exact_shapley(v: _CoalitionValue, d: int) -> Tensor:
    """Exact values from all 2^d coalitions; player i is bit i of a coalition's number."""
    coalition_ids = torch.arange(2**d)
    is_member = (coalition_ids[:, None] >> torch.arange(d)) & 1 == 1              # (2^d, d)
    coalition_values, sizes = v(is_member).cpu(), is_member.sum(1)
    weight = torch.tensor([1 / (d * comb(d - 1, s)) for s in range(d)], dtype=torch.float64)
    values = []
    for i in range(d):
        without_player = coalition_ids[~is_member[:, i]]
        values.append(
            (
                weight[sizes[without_player]]
                * (coalition_values[without_player | 1 << i] - coalition_values[without_player])
            ).sum()
        )
    return torch.stack(values)


def sample_shapley(v: _CoalitionValue, d: int, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
    """The mean over random permutations of what each player adds; every other permutation is a reversed one.

    What is added along a permutation telescopes, so the values sum to v(all) − v(none) however few are sampled.
    """
    total = torch.zeros(d, dtype=torch.float64)
    order = torch.arange(d)
    for k in range(num_samples):
        order = torch.randperm(d, generator=generator) if k % 2 == 0 else order.flip(0)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(d)
        # (d + 1, d): the first 0, 1, … d players of the permutation
        coalition_values = v(rank < torch.arange(d + 1)[:, None]).cpu()
        total[order] += coalition_values.diff()
    return total / num_samples
