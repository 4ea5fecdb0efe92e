"""Groudiev, chapter 8: reinforcement learning."""

from itertools import product

import torch
from torch import Tensor

from didact.claims.forms import CorrectedClaim, Display, Equal
from didact.claims.helpers import Pair
from didact.claims.registry import claim


@claim("CE70", Equal(), correction="the exponent is k − t − 1, so that the next reward is not discounted")
def discounted_return() -> CorrectedClaim:
    """Σ_{k>t} γ^{k−t−a} R_k with the action a = 2 in the exponent, against R_{t+1} + γ G_{t+1}; corrected: k − t − 1"""
    R, γ = torch.randn(12), 0.9

    def G(t: int, a: int) -> Tensor:
        return sum((γ ** (k - t - a) * R[k] for k in range(t + 1, 12)), torch.zeros(()))

    recursive = torch.zeros(())
    for r in R.flip(0)[:-3]:
        recursive = r + γ * recursive
    return CorrectedClaim((G(2, 2), recursive), (G(2, 1), recursive))


def _solve_grid_world(n: int = 5) -> tuple[Tensor, list[list[int]]]:
    """Values after 60 sweeps of v ← max_a(−1 + v(s′)), γ = 1, 0 in two opposite corners; and the next state of each
    action."""
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    next_states = [
        [min(n - 1, max(0, r + dr)) * n + min(n - 1, max(0, c + dc)) for dr, dc in moves]
        for r in range(n)
        for c in range(n)
    ]
    v = torch.zeros(n * n)
    for _ in range(60):
        v = (-1 + v[torch.tensor(next_states)]).amax(1)
        v[[0, -1]] = 0.0
    return v, next_states


@claim("CE71", Equal())
def values_of_the_grid() -> Pair:
    """optimal values of the 5 × 5 grid with reward −1 and γ = 1 against minus the steps to the nearer corner"""
    v, _ = _solve_grid_world()
    return v, [-min(r + c, 8 - r - c) for r in range(5) for c in range(5)]


@claim("CE72", Equal())
def bellman_iteration() -> Pair:
    """q ← r + γ max q′ from 0, 400 times, against the solution of v = max_a(r + γPv) by enumerating all 3⁴ policies"""
    P, r, γ = torch.randn(4, 3, 4).softmax(2), torch.randn(4, 3), 0.9
    q = torch.zeros(4, 3)
    for _ in range(400):
        q = r + γ * P @ q.amax(1)
    s = torch.arange(4)
    policies = [torch.tensor(p) for p in product(range(3), repeat=4)]
    values = torch.stack([torch.linalg.solve(torch.eye(4) - γ * P[s, p], r[s, p]) for p in policies])
    return q.amax(1), values.amax(0)


@claim("CE73", Equal(), correction="r + γ max_{a′} q*(s′, a′), which is q*(s, a); r + γ q*(s, a) counts r twice")
def optimal_action() -> CorrectedClaim:
    """the action with the largest r + γ q*(s, a) against the one with the largest return, of two with rewards 1 and 0
    that lead to states worth 0 and 1.2, γ = 0.9; corrected: r + γ max q*(s′, ·)"""
    # rewards of a′ in s′, after which the episode ends
    r, γ, next_rewards = torch.tensor([1.0, 0.0]), 0.9, torch.tensor([[-1.0, 0.0], [1.2, 0.3]])
    q = (r[:, None] + γ * next_rewards).amax(1)

    def score_choice(scores: Tensor) -> Display:
        return Display(
            (scores.argmax(), q.argmax()),
            {"scores of the two actions": scores, "return of the chosen action": q[scores.argmax()], "best": q.max()},
        )

    return CorrectedClaim(score_choice(r + γ * q), score_choice(r + γ * next_rewards.amax(1)))
