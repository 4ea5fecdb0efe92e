"""Gaba, chapter 12: applications and ethics."""

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact import metrics, scratch
from didact.claims.compare import Corrected, Inside, Printed, Same, Sampled, Told
from didact.claims.core import answer, claim, unable
from didact.claims.tools import Pair, count_products, parameters
from didact.explain.coalitions import shapley
from didact.models.bert import BERT
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.models.mlp import MLP
from didact.registry import create
from didact.scratch.losses import mse_loss
from didact.scratch.optim import GD, clip_norm
from didact.trust.federated import federate


@claim("C12.1", Same())
def shapley_values() -> Pair:
    """φ_i = Σ_S |S|!(d − |S| − 1)!/d! [f(S ∪ i) − f(S)] for the five inputs of a network, left out ones at 0, against didact's explanation;
    Σ_S of the weights = 1, and Σ_i φ_i = f(all) − f(none)"""
    d, net, x = 5, MLP(5, 2, hidden=(7,), activation="tanh"), torch.randn(1, 5)
    for p in net.parameters():                                               # biases too: of new ones, 0, f(none) would be 0
        nn.init.normal_(p)

    def f(S: tuple[int, ...]) -> float:
        there = torch.zeros(5).index_fill(0, torch.tensor(S, dtype=torch.long), 1.0)
        return float(net(there * x)[0, 1].detach())

    weights, values = [], []
    for i in range(d):
        others = [S for n in range(d) for S in combinations(range(d), n) if i not in S]
        w = [math.factorial(len(S)) * math.factorial(d - len(S) - 1) / math.factorial(d) for S in others]
        weights.append(sum(w))
        values.append(sum(a * (f((*S, i)) - f(S)) for a, S in zip(w, others, strict=True)))
    ours = shapley(net, x, 1)[0]
    return [*values, *weights, ours.sum()], [*ours, *[1.0] * d, f(tuple(range(d))) - f(())]


@claim("C12.2", Same(), remark="of each box; a grid cell that has k of them holds k (5 + K)")
def length_of_a_box() -> Pair:
    """the numbers that didact's YOLO says of each box, for K = 1, 3, 20 classes, against 5 + K"""
    x, kinds = torch.rand(1, 3, 64, 64), (1, 3, 20)
    return [create("yolo_tiny", classes=K)(x).shape[-1] for K in kinds], [5 + K for K in kinds]


def rates(positive: int, negative: int) -> Tensor:
    """Of every way to say yes to TP of the positive and FP of the negative: share of yes, and of yes among positive and among negative,
    by didact's metrics: (ways, 3)."""
    found = []
    for TP, FP in product(range(positive + 1), range(negative + 1)):
        counts = torch.tensor([[negative - FP, FP], [positive - TP, TP]])
        right = metrics.recall(counts)
        found.append(torch.stack([counts[:, 1].sum() / counts.sum(), right[1], 1 - right[0]]))
    return torch.stack(found)


@claim("C12.3", Inside(low=0, open=True), right="with true positives alone both can hold; with equal false positives too they cannot, "
       "but for equal base rates or a classifier that is no better than chance")
def fairness() -> Corrected:
    """the least violation of equal shares of yes and equal true positives in two groups of 20 with 6 and 12 positive, by any classifier
    better than chance in both; mended: equal false positives too"""
    a, b = (r[r[:, 1] > r[:, 2] + 1e-9] for r in (rates(6, 14), rates(12, 8)))
    apart = (a[:, None] - b).abs()                                                            # (ways, ways, 3)
    return Corrected(apart[..., :2].amax(-1).min(), apart.amax(-1).min())


@claim("C12.4", Sampled())
def noise_of_private_descent() -> Told:
    """the deviation of 10,000 draws of (Σ_i ḡ_i + N(0, σ²C²I))/B, ḡ_i cut by didact to length C, against σC/B; and against σ times as far
    as the mean goes without one example: what it shows through this noise depends neither on C nor on B"""
    def mean(grads: Tensor, C: float) -> Tensor:
        θ, cut = scratch.tensor(np.zeros(9), requires_grad=True), torch.zeros(9)
        for g in grads:
            θ.grad = g.numpy().copy()
            clip_norm([θ], C)
            cut = cut + torch.from_numpy(θ.grad)
        return cut / B

    σ, n, drawn, moved, stated = 1.1, 10_000, [], [], []
    for C, B in ((0.5, 64), (1.0, 8), (2.0, 20)):
        grads = 5 * torch.randn(B, 9)                        # all longer than C
        whole, without = mean(grads, C), mean(grads[1:], C)
        drawn.append((whole + σ * C * torch.randn(n, 9) / B).std(0).square().mean().sqrt())
        moved.append((whole - without).norm())
        stated.append(σ * C / B)
    error = [s / math.sqrt(2 * 9 * n) for s in drawn]
    return Told((drawn * 2, error * 2, stated + [σ * m for m in moved]), {"drawn": drawn, "σC/B": stated})


@claim("C12.5", Same())
def federated_average() -> Pair:
    """Σ (n_k/n) θ_k after one step of didact's gradient descent at each of three clients = the step on all data"""
    start = torch.randn(4)
    clients = [(torch.randn(n, 4), torch.randn(n)) for n in (5, 20, 60)]

    def step(X: Tensor, y: Tensor) -> Tensor:
        θ = scratch.tensor(start.numpy().copy(), requires_grad=True)
        mse_loss(scratch.tensor(X.numpy()) @ θ, y.numpy()).backward()
        GD([θ], lr=0.1).step()
        return torch.from_numpy(θ.data)

    X, y = (torch.cat(parts) for parts in zip(*clients, strict=True))
    return sum(len(t) / len(y) * step(x, t) for x, t in clients), step(X, y)


@claim("C12.6", Printed("3.4e8", "1.75e11", "7e10"))      # as many digits as the page gives: 335 million and 69 billion round to these
def sizes_of_language_models() -> list[int]:
    """didact's own models in the published sizes: BERT-Large (24 layers of 1024, with its pooler), GPT-3 (96 of 12288, 2048 places),
    LLaMA 2 70B (80 of 8192, 8 key heads, 28672 hidden)"""
    with torch.device("meta"):
        bert = BERT(30_522, context=512, dim=1024, layers=24, heads=16, hidden=4096, pooler=True)
        gpt = GPT(context=2048, dim=12_288, layers=96, heads=96)
        llama = Llama(32_000, context=4096, dim=8192, layers=80, heads=64, groups=8, hidden=28_672, tie=False)
    return [parameters(net) for net in (bert, gpt, llama)]


@answer("C12.8")
def operations_of_a_forward_pass() -> float:
    """two for each product in didact's GPT, L = 32, d = 4096, h = 32, n = 2048, without the embedding: 2 n L(12 d²) for the matrices and
    4 n² d L for the attention"""
    def products(layers: int) -> int:
        with torch.device("meta"):  # counted without being computed
            net, x = GPT(2, context=2048, dim=4096, layers=layers, heads=32), torch.zeros(1, 2048, dtype=torch.long)
        return count_products(lambda: net(x))

    return 2.0 * 32 * (products(2) - products(1))


@answer("C12.10")
def federated_digits() -> Told:
    """new digits that didact's MLP 64 – 64 – 10 gets right after 1, 5 and 20 passes over all examples at once, and after as many rounds of
    federated averaging over five clients of unlike sizes, each a pass over its own share; scikit-learn's digits in place of MNIST"""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    *shares, new = torch.randperm(len(y)).split([100, 150, 200, 250, 300, len(y) - 1000])

    def learner(rows: Tensor) -> Callable[[nn.Module], None]:
        def learn(net: nn.Module) -> None:
            sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for i in rows[torch.randperm(len(rows))].split(50):
                sgd.zero_grad()
                F.cross_entropy(net(x[i]), y[i]).backward()
                sgd.step()
        return learn

    def right(*groups: Tensor) -> list[float]:
        torch.manual_seed(0)
        net, found = MLP(64, 10, hidden=(64,)).float(), []
        for more in (1, 4, 15):
            federate(net, [learner(rows) for rows in groups], [len(rows) for rows in groups], rounds=more)
            found.append(float(metrics.accuracy(net(x[new]), y[new])))
        return found

    together, apart = right(torch.cat(shares)), right(*shares)
    return Told([*together, *apart], {"centralised after 1, 5, 20 rounds": together, "federated": apart})


unable("C12.11", "an exercise that states no value; didact train mlp --data adult, then didact evaluate latest --by sex, is such an audit, "
       "and --reweigh sex a method against what it finds")
