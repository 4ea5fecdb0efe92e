"""Gaba, chapter 12: applications and ethics."""

import math
from itertools import combinations

import torch
from torch import Tensor

from didact.claims.compare import Asked, Corrected, Inside, Printed, Same, Sampled
from didact.claims.core import claim, unable
from didact.claims.tools import Pair, parameters
from didact.models.bert import BERT
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.registry import create


@claim("C12.1", Same())
def shapley_values() -> Pair:
    """Σ_S |S|!(d − |S| − 1)!/d! = 1, and Σ_i φ_i = f(all) − f(none), for a random game of five players"""
    d = 5
    game = {S: float(torch.randn(())) for n in range(d + 1) for S in combinations(range(d), n)}
    weights, values = [], []
    for i in range(d):
        others = [S for S in game if i not in S]
        w = [math.factorial(len(S)) * math.factorial(d - len(S) - 1) / math.factorial(d) for S in others]
        weights.append(sum(w))
        values.append(sum(a * (game[tuple(sorted((*S, i)))] - game[S]) for a, S in zip(w, others, strict=True)))
    return [*weights, sum(values)], [*[1.0] * d, game[tuple(range(d))] - game[()]]


@claim("C12.2", Same())
def length_of_a_box() -> Pair:
    """the numbers that didact's YOLO says of each box, for K = 1, 3, 20 classes, against 5 + K"""
    x, kinds = torch.rand(1, 3, 64, 64), (1, 3, 20)
    return [create("yolo_tiny", classes=K)(x).shape[-1] for K in kinds], [5 + K for K in kinds]


@claim("C12.3", Inside(low=0, open=True), right="with true positives alone both can hold; with equal false positives too they cannot")
def fairness() -> Corrected:
    """the least violation of both for base rates 0.3 and 0.6, classifiers better than chance; mended: equal false positives too"""
    positive = torch.linspace(0.01, 0.99, 99)
    a, b = 0.3, 0.6                                          # P(Y = 1) in the two groups
    tpr, rate = torch.cartesian_prod(positive, positive).unbind(1)

    def false_positives(base: float) -> Tensor:
        return (rate - base * tpr) / (1 - base)              # from P(Ŷ = 1) = base · TPR + (1 − base) · FPR

    fpr_a, fpr_b = false_positives(a), false_positives(b)
    possible = (fpr_a >= 0) & (fpr_b >= 0) & (fpr_a < tpr - 0.1) & (fpr_b < tpr - 0.1)
    return Corrected(0.0 if possible.any() else 1.0, (fpr_a - fpr_b).abs()[possible].min())


@claim("C12.4", Sampled())
def noise_of_private_descent() -> tuple[Tensor, Tensor, float]:
    """the standard deviation of the mean of B clipped gradients with N(0, σ²C²) added to their sum, against σC/B"""
    σ, C, B, n = 1.1, 0.5, 64, 1_000_000
    sd = ((σ * C * torch.randn(n)) / B).std()
    return sd, sd / math.sqrt(2 * n), σ * C / B


@claim("C12.5", Same())
def federated_average() -> Pair:
    """Σ (n_k/n) θ_k after one full local gradient step at each of three clients = the step on all data"""
    θ, η = torch.randn(4), 0.1
    clients = [(torch.randn(n, 4), torch.randn(n)) for n in (5, 20, 60)]

    def step(X: Tensor, y: Tensor) -> Tensor:
        return θ - η * 2 * X.T @ (X @ θ - y) / len(y)

    X, y = (torch.cat(parts) for parts in zip(*clients, strict=True))
    return sum(len(t) / 85 * step(x, t) for x, t in clients), step(X, y)


@claim("C12.6", Printed("3.4e8", "175e9", "7e10"))
def sizes_of_language_models() -> list[int]:
    """didact's own models in the published sizes: BERT-Large (24 layers of 1024, with its pooler), GPT-3 (96 of 12288, 2048 places),
    LLaMA 2 70B (80 of 8192, 8 key heads, 28672 hidden); zeros at the end of 340M and 70B are rounding, not digits"""
    with torch.device("meta"):
        bert = BERT(30_522, context=512, dim=1024, layers=24, heads=16, hidden=4096, pooler=True)
        gpt = GPT(context=2048, dim=12_288, layers=96, heads=96)
        llama = Llama(32_000, context=4096, dim=8192, layers=80, heads=64, groups=8, hidden=28_672, tie=False)
    return [parameters(net) for net in (bert, gpt, llama)]


@claim("C12.8", Asked())
def operations_of_a_forward_pass() -> float:
    """2 n L(12 d²) for the matrices and 4 n² d L for the attention, L = 32, d = 4096, n = 2048"""
    L, d, n = 32, 4096, 2048
    return float(2 * n * L * 12 * d**2 + 4 * n**2 * d * L)


unable("C12.10", "an exercise: it asks for a measurement with five clients and states no value")
unable("C12.11", "an exercise: it asks for an audit and states no value")
