"""Gaba, chapter 12: applications and ethics."""

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact import metrics, scratch
from didact.claims.forms import CorrectedClaim, Display, Equal, InInterval, Printed, WithinStandardErrors
from didact.claims.helpers import Pair, count_multiplications, count_parameters
from didact.claims.registry import answer, claim, mark_not_checkable
from didact.explain.shapley import shapley
from didact.models.tabular.mlp import MLP
from didact.models.text.bert import BERT
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.registry import create_model
from didact.scratch.losses import mse_loss
from didact.scratch.optim import GD, clip_norm
from didact.training.distributed.federated import train_federated


@claim("C12.1", Equal())
def shapley_values() -> Pair:
    """φ_i = Σ_S |S|!(d − |S| − 1)!/d! [f(S ∪ i) − f(S)] for the five inputs of a network, missing ones at 0, against
    didact's explanation; Σ_S of the weights = 1, and Σ_i φ_i = f(all) − f(none)"""
    d, net, x = 5, MLP(5, 2, hidden=(7,), activation="tanh"), torch.randn(1, 5)
    # biases too: with the initial 0, f(none) would be 0
    for p in net.parameters():
        nn.init.normal_(p)

    def f(S: tuple[int, ...]) -> float:
        present = torch.zeros(5).index_fill(0, torch.tensor(S, dtype=torch.long), 1.0)
        return float(net(present * x)[0, 1].detach())

    weights, values = [], []
    for i in range(d):
        coalitions = [S for n in range(d) for S in combinations(range(d), n) if i not in S]
        w = [math.factorial(len(S)) * math.factorial(d - len(S) - 1) / math.factorial(d) for S in coalitions]
        weights.append(sum(w))
        values.append(sum(a * (f((*S, i)) - f(S)) for a, S in zip(w, coalitions, strict=True)))
    ours = shapley(net, x, 1)[0]
    return [*values, *weights, ours.sum()], [*ours, *[1.0] * d, f(tuple(range(d))) - f(())]


@claim("C12.2", Equal(), remark="per box; a grid cell with k boxes has k (5 + K)")
def length_of_a_box() -> Pair:
    """the numbers that didact's YOLO predicts for each box, for K = 1, 3, 20 classes, against 5 + K"""
    x, class_counts = torch.rand(1, 3, 64, 64), (1, 3, 20)
    return [create_model("yolo_tiny", num_classes=K)(x).shape[-1] for K in class_counts], [5 + K for K in class_counts]


def _group_rates(positive: int, negative: int) -> Tensor:
    """For every number of true and false positives: rates of positive predictions, of true positives and of false
    positives, by didact's metrics: (ways, 3)."""
    rates = []
    for TP, FP in product(range(positive + 1), range(negative + 1)):
        counts = torch.tensor([[negative - FP, FP], [positive - TP, TP]])
        recalls = metrics.recall(counts)
        rates.append(torch.stack([counts[:, 1].sum() / counts.sum(), recalls[1], 1 - recalls[0]]))
    return torch.stack(rates)


@claim(
    "C12.3",
    InInterval(low=0, is_open=True),
    correction="with equal true positive rates alone both can hold; with equal false positive rates too they cannot, "
    "except for equal base rates or a classifier no better than chance",
)
def fairness() -> CorrectedClaim:
    """the least violation of equal positive rates and equal true positive rates in two groups of 20 with 6 and 12
    positives, by any classifier better than chance in both; corrected: equal false positive rates too"""
    a, b = (r[r[:, 1] > r[:, 2] + 1e-9] for r in (_group_rates(6, 14), _group_rates(12, 8)))
    differences = (a[:, None] - b).abs()                                                            # (ways, ways, 3)
    return CorrectedClaim(differences[..., :2].amax(-1).min(), differences.amax(-1).min())


@claim("C12.4", WithinStandardErrors())
def noise_of_private_descent() -> Display:
    """the standard deviation of 10,000 samples of (Σ_i ḡ_i + N(0, σ²C²I))/B, ḡ_i clipped by didact to norm C, against
    σC/B; and against σ times the change of the mean without one example: how visible one example is in this noise
    depends neither on C nor on B"""
    def clipped_mean(grads: Tensor, C: float) -> Tensor:
        θ, clipped_sum = scratch.tensor(np.zeros(9), requires_grad=True), torch.zeros(9)
        for g in grads:
            θ.grad = g.numpy().copy()
            clip_norm([θ], C)
            clipped_sum = clipped_sum + torch.from_numpy(θ.grad)
        return clipped_sum / B

    σ, n, noise_stds, sensitivities, stated = 1.1, 10_000, [], [], []
    for C, B in ((0.5, 64), (1.0, 8), (2.0, 20)):
        grads = 5 * torch.randn(B, 9)                        # all longer than C
        mean_gradient, mean_without_one = clipped_mean(grads, C), clipped_mean(grads[1:], C)
        noise_stds.append((mean_gradient + σ * C * torch.randn(n, 9) / B).std(0).square().mean().sqrt())
        sensitivities.append((mean_gradient - mean_without_one).norm())
        stated.append(σ * C / B)
    error = [s / math.sqrt(2 * 9 * n) for s in noise_stds]
    return Display(
        (noise_stds * 2, error * 2, stated + [σ * m for m in sensitivities]), {"sampled": noise_stds, "σC/B": stated}
    )


@claim("C12.5", Equal())
def federated_average() -> Pair:
    """Σ (n_k/n) θ_k after one step of didact's gradient descent at each of three clients = the step on all data"""
    start = torch.randn(4)
    clients = [(torch.randn(n, 4), torch.randn(n)) for n in (5, 20, 60)]

    def descent_step(X: Tensor, y: Tensor) -> Tensor:
        θ = scratch.tensor(start.numpy().copy(), requires_grad=True)
        mse_loss(scratch.tensor(X.numpy()) @ θ, y.numpy()).backward()
        GD([θ], lr=0.1).step()
        return torch.from_numpy(θ.data)

    X, y = (torch.cat(tensors) for tensors in zip(*clients, strict=True))
    return sum(len(t) / len(y) * descent_step(x, t) for x, t in clients), descent_step(X, y)


# as many digits as on the page: 335 million and 69 billion round to these
@claim("C12.6", Printed("3.4e8", "1.75e11", "7e10"))
def sizes_of_language_models() -> list[int]:
    """didact's own models in the published sizes: BERT-Large (24 layers of 1024, with its pooler), GPT-3 (96 of 12288,
    2048 positions), LLaMA 2 70B (80 of 8192, 8 key-value heads, feed-forward size 28672)"""
    with torch.device("meta"):
        bert = BERT(30_522, context_length=512, embed_dim=1024, num_layers=24, num_heads=16, ffn_dim=4096, pooler=True)
        gpt = GPT(context_length=2048, embed_dim=12_288, num_layers=96, num_heads=96)
        llama = Llama(
            32_000,
            context_length=4096,
            embed_dim=8192,
            num_layers=80,
            num_heads=64,
            num_kv_heads=8,
            ffn_dim=28_672,
            tie_weights=False,
        )
    return [count_parameters(net) for net in (bert, gpt, llama)]


@answer("C12.8")
def operations_of_a_forward_pass() -> float:
    """two for each multiplication in didact's GPT, L = 32, d = 4096, h = 32, n = 2048, without the embedding: 2 n L(12
    d²) for the matrices and 4 n² d L for the attention"""
    def products(layers: int) -> int:
        with torch.device("meta"):  # counted without being computed
            net, x = (
                GPT(2, context_length=2048, embed_dim=4096, num_layers=layers, num_heads=32),
                torch.zeros(1, 2048, dtype=torch.long),
            )
        return count_multiplications(lambda: net(x))

    return 2.0 * 32 * (products(2) - products(1))


@answer("C12.10")
def federated_digits() -> Display:
    """test accuracy of didact's MLP 64 – 64 – 10 after 1, 5 and 20 passes over all examples at once, and after as many
    rounds of federated averaging over five clients of different sizes, each with one pass over its own part;
    scikit-learn's digits instead of MNIST"""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    *shares, test_rows = torch.randperm(len(y)).split([100, 150, 200, 250, 300, len(y) - 1000])

    def make_learner(rows: Tensor) -> Callable[[nn.Module], None]:
        def train_one_pass(net: nn.Module) -> None:
            sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for i in rows[torch.randperm(len(rows))].split(50):
                sgd.zero_grad()
                F.cross_entropy(net(x[i]), y[i]).backward()
                sgd.step()
        return train_one_pass

    def accuracy_by_round(*groups: Tensor) -> list[float]:
        torch.manual_seed(0)
        net, accuracies = MLP(64, 10, hidden=(64,)).float(), []
        for num_rounds in (1, 4, 15):
            train_federated(
                net, [make_learner(rows) for rows in groups], [len(rows) for rows in groups], rounds=num_rounds
            )
            accuracies.append(float(metrics.accuracy(net(x[test_rows]), y[test_rows])))
        return accuracies

    centralized, federated = accuracy_by_round(torch.cat(shares)), accuracy_by_round(*shares)
    return Display(
        [*centralized, *federated], {"centralized after 1, 5, 20 rounds": centralized, "federated": federated}
    )


mark_not_checkable(
    "C12.11",
    "an exercise without a value; didact train mlp --data adult, then didact evaluate latest --by sex, is such an "
    "audit, and --reweigh sex a method against what it finds",
)
