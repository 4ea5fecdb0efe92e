"""Gaba, chapter 11, measured: what happens while networks learn, on data small enough for seconds.

The course names neither data nor sizes. Those here were tuned until the effect showed: each check says that it can be
observed, not how often, and computes what it was found to depend on.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.analysis.sharpness import hessian_top_eigenvalue
from didact.claims.forms import Conditional, Display, LessOrEqual
from didact.claims.registry import claim
from didact.data.datasets.synthetic.points import make_modular_sums
from didact.metrics import accuracy
from didact.metrics.information import bin_activations, entropy, mutual_information
from didact.models.tabular.mlp import MLP
from didact.optim.sam import SAM


def _train_modular_sums(decay: float, steps: int) -> tuple[Tensor, Tensor]:
    """Accuracy of didact's MLP on training sums modulo 23, four fifths of all, and on the others: (steps / 25 + 1,)
    each."""
    a, b, y = make_modular_sums(23)
    x = torch.cat([F.one_hot(a), F.one_hot(b)], 1).float()
    splits = torch.randperm(len(y)).split([4 * len(y) // 5, len(y) - 4 * len(y) // 5])
    net, accuracies = MLP(46, 23, hidden=(256,)).float(), []
    adamw = torch.optim.AdamW(net.parameters(), lr=0.03, weight_decay=decay)
    for step in range(steps + 1):
        if step % 25 == 0:
            with torch.no_grad():
                accuracies.append(torch.stack([accuracy(net(x[i]).softmax(1), y[i]) for i in splits]))
        adamw.zero_grad()
        F.cross_entropy(net(x[splits[0]]), y[splits[0]]).backward()
        adamw.step()
    train_accuracy, test_accuracy = torch.stack(accuracies).double().unbind(1)
    return train_accuracy, test_accuracy


@claim("C11.19", LessOrEqual(), condition="weight decay; without it no test sum is right in the same time")
def grokking_of_modular_sums() -> Conditional:
    """all training sums modulo 23 are right (1 ≤) while of the test sums at most chance, 1/23, are; at the end 97 % of
    the test sums; with AdamW's weight decay 1.5, and without"""
    def train_with_decay(decay: float) -> Display:
        train_accuracy, test_accuracy = _train_modular_sums(decay, steps=1000)
        memorized_at = int((train_accuracy >= 1).double().argmax())  # the first step at which all are right
        numbers = {
            "step": 25 * memorized_at,
            "training accuracy then": train_accuracy[memorized_at],
            "test accuracy then": test_accuracy[memorized_at],
            "test accuracy at the end": test_accuracy[-1],
        }
        return Display(
            ([1, test_accuracy[memorized_at], 0.97], [train_accuracy[memorized_at], 1 / 23, test_accuracy[-1]]), numbers
        )

    return Conditional(train_with_decay(1.5), train_with_decay(0.0))


def _information_plane(activation: str, steps_measured: tuple[int, ...], bins: int) -> Tensor:
    """I(X; T) and I(T; Y) in bits of the last hidden layer of didact's MLP 10 – 8 – 5 – 3 – 2, over all 2¹⁰ inputs:
    (steps, 2).

    Activations are binned between the ends of tanh, or between 0 and the largest value of ReLU.
    """
    x = torch.tensor(list(product((-1.0, 1.0), repeat=10)), dtype=torch.float32)
    score = (x @ torch.randn(10, 6).float() / 3).tanh() @ torch.randn(6).float()
    y = (score > score.median()).long()
    net, informations = MLP(10, 2, hidden=(8, 5, 3), activation=activation).float(), []
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    for step in range(max(steps_measured) + 1):
        if step in steps_measured:
            with torch.no_grad():
                t = net.hidden(x)
            bin_range = (-1.0, 1.0) if activation == "tanh" else (0.0, float(t.max()))
            symbols = bin_activations(t, *bin_range, bins=bins)
            informations.append(torch.stack([entropy(symbols), mutual_information(symbols, y)]))
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()
        adam.step()
    return torch.stack(informations)


@claim(
    "C11.20",
    LessOrEqual(),
    condition="tanh, and information estimated with few bins; with 30 bins most of I(T; Y) is present from the start, "
    "with ReLU I(X; T) hardly falls",
)
def fitting_then_compression() -> Conditional:
    """I(T; Y) of the last of three hidden layers grows by at least 0.3 bits from step 0 to 100, and I(X; T) falls to at
    most three quarters from step 100 to 1,000: with tanh and 8 bins; with ReLU, and with 30 bins"""
    def compare_phases(*settings: tuple[str, int]) -> Display:
        low, high, numbers = list[Tensor](), list[Tensor](), dict[str, Any]()
        for activation, bins in settings:
            torch.manual_seed(0)
            of_x, of_y = _information_plane(activation, (0, 100, 1000), bins).T
            low, high = [*low, of_y[0] + 0.3, of_x[2]], [*high, of_y[1], 0.75 * of_x[1]]
            numbers |= {f"{activation}, {bins} bins: I(T; Y)": of_y, f"{activation}, {bins} bins: I(X; T)": of_x}
        return Display((low, high), numbers)

    return Conditional(compare_phases(("tanh", 8)), compare_phases(("relu", 8), ("tanh", 30)))


def _train_to_minimum(rho: float, label_noise: float) -> Tensor:
    """Sharpness of the loss where SGD with momentum, or SAM around it, ends on 400 digits with a fraction of random
    labels, and the test accuracy of didact's MLP 64 – 64 – 10 there."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    train_rows, test_rows = torch.randperm(len(y)).split((400, len(y) - 400))
    noisy_labels = torch.where(torch.rand(400) < label_noise, torch.randint(10, (400,)), y[train_rows])
    net = MLP(64, 10, hidden=(64,)).float()
    sam = SAM(net.parameters(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), rho=rho)
    for _ in range(300):
        i = torch.randint(400, (50,))

        def closure(i: Tensor = i) -> Tensor:
            sam.zero_grad()
            loss = F.cross_entropy(net(x[train_rows[i]]), noisy_labels[i])
            loss.backward()
            return loss

        closure()
        sam.step(closure)
    λ = hessian_top_eigenvalue(F.cross_entropy(net(x[train_rows]), noisy_labels), list(net.parameters()), steps=20)
    with torch.no_grad():
        test_accuracy = accuracy(net(x[test_rows]).softmax(1), y[test_rows])
    return torch.stack([λ, test_accuracy])


@claim(
    "C11.18",
    LessOrEqual(),
    condition="some wrong labels, and a radius ρ with which the loss can still be learned; with clean labels the "
    "minimum is flatter but gains little, with ρ = 1 it is flat and useless",
)
def flat_minima() -> Conditional:
    """λ_max of the Hessian under SAM at most two thirds of that under SGD, and test accuracy at least 0.02 higher, mean
    of three seeds, on scikit-learn's digits: with 30 % random labels and ρ = 0.3; with ρ = 1, and with clean labels"""
    def mean_minimum(rho: float, label_noise: float) -> Tensor:
        minima = []
        for seed in range(3):
            torch.manual_seed(seed)
            minima.append(_train_to_minimum(rho, label_noise))
        return torch.stack(minima).double().mean(0)

    sgd = {label_noise: mean_minimum(0.0, label_noise) for label_noise in (0.3, 0.0)}                # ρ = 0 is SGD

    def compare_with_sgd(*settings: tuple[float, float]) -> Display:
        low, high, numbers = list[Tensor](), list[Tensor](), dict[str, Any]()
        for rho, label_noise in settings:
            (λ, sgd_accuracy), (sam_sharpness, sam_accuracy) = sgd[label_noise], mean_minimum(rho, label_noise)
            low, high = [*low, sam_sharpness, sgd_accuracy + 0.02], [*high, 2 / 3 * λ, sam_accuracy]
            name = f"ρ = {rho:g}, {label_noise:.0%} random labels"
            numbers |= {
                f"{name}: λ of SGD and SAM": [λ, sam_sharpness],
                f"{name}: test accuracy": [sgd_accuracy, sam_accuracy],
            }
        return Display((low, high), numbers)

    return Conditional(compare_with_sgd((0.3, 0.3)), compare_with_sgd((1.0, 0.3), (0.3, 0.0)))
