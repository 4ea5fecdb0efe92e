"""Gaba, chapter 11: what is seen while networks learn, on data small enough for seconds.

The course names neither data nor sizes. Those here were tried until the thing showed: each check says that it can be seen, not how often,
and what it was found to depend on is computed beside it.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.claims.compare import Cases, NeverMore, Told
from didact.claims.core import claim
from didact.data.made import modular_sums
from didact.metrics import accuracy
from didact.metrics.information import binned, entropy, mutual_information
from didact.models.mlp import MLP
from didact.optim.sam import SAM
from didact.theory.curvature import sharpness


def sums_learned(decay: float, steps: int) -> tuple[Tensor, Tensor]:
    """The shares of training sums modulo 23, four in five of all, and of new ones that didact's MLP gets right: (steps / 25 + 1,) each."""
    a, b, y = modular_sums(23)
    x = torch.cat([F.one_hot(a), F.one_hot(b)], 1).float()
    parts = torch.randperm(len(y)).split([4 * len(y) // 5, len(y) - 4 * len(y) // 5])
    net, found = MLP(46, 23, hidden=(256,)).float(), []
    adamw = torch.optim.AdamW(net.parameters(), lr=0.03, weight_decay=decay)
    for step in range(steps + 1):
        if step % 25 == 0:
            with torch.no_grad():
                found.append(torch.stack([accuracy(net(x[i]).softmax(1), y[i]) for i in parts]))
        adamw.zero_grad()
        F.cross_entropy(net(x[parts[0]]), y[parts[0]]).backward()
        adamw.step()
    known, new = torch.stack(found).double().unbind(1)
    return known, new


@claim("C11.19", NeverMore(), condition="weight decay; without it not one new sum is right in the same time")
def learned_by_heart_then_understood() -> Cases:
    """all training sums modulo 23 right (1 ≤) while of the new ones at most chance, 1/23, is; at the end 97 % of the new ones;
    with AdamW's weight decay 1.5, and without any"""
    def grown(decay: float) -> Told:
        known, new = sums_learned(decay, steps=1000)
        at = int((known >= 1).double().argmax())               # the first time that all are right
        shown = {"step": 25 * at, "training sums then": known[at], "new sums then": new[at], "new sums at the end": new[-1]}
        return Told(([1, new[at], 0.97], [known[at], 1 / 23, new[-1]]), shown)

    return Cases(grown(1.5), grown(0.0))


def plane(activation: str, marks: tuple[int, ...], bins: int) -> Tensor:
    """I(X; T) and I(T; Y) in bits of the last hidden layer of didact's MLP 10 – 8 – 5 – 3 – 2, all 2¹⁰ inputs known: (marks, 2).

    Numbers are counted in bins between the ends of tanh, or between 0 and the largest of ReLU.
    """
    x = torch.tensor(list(product((-1.0, 1.0), repeat=10)), dtype=torch.float32)
    score = (x @ torch.randn(10, 6).float() / 3).tanh() @ torch.randn(6).float()
    y = (score > score.median()).long()
    net, found = MLP(10, 2, hidden=(8, 5, 3), activation=activation).float(), []
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    for step in range(max(marks) + 1):
        if step in marks:
            with torch.no_grad():
                t = net.hidden(x)
            ends = (-1.0, 1.0) if activation == "tanh" else (0.0, float(t.max()))
            symbols = binned(t, *ends, bins=bins)
            found.append(torch.stack([entropy(symbols), mutual_information(symbols, y)]))
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()
        adam.step()
    return torch.stack(found)


@claim("C11.20", NeverMore(), condition="tanh, and information counted in few bins; with 30 bins most of I(T; Y) is there from the start, "
       "with ReLU I(X; T) hardly falls")
def fitting_then_compression() -> Cases:
    """what the last of three hidden layers tells of the answer grows by 0.3 bits at least from step 0 to 100, and of the input falls to
    three quarters at most from step 100 to 1,000: with tanh and 8 bins; with ReLU, and with 30 bins"""
    def phases(*settings: tuple[str, int]) -> Told:
        low, high, shown = list[Tensor](), list[Tensor](), dict[str, Any]()
        for activation, bins in settings:
            torch.manual_seed(0)
            of_x, of_y = plane(activation, (0, 100, 1000), bins).T
            low, high = [*low, of_y[0] + 0.3, of_x[2]], [*high, of_y[1], 0.75 * of_x[1]]
            shown |= {f"{activation}, {bins} bins: I(T; Y)": of_y, f"{activation}, {bins} bins: I(X; T)": of_x}
        return Told((low, high), shown)

    return Cases(phases(("tanh", 8)), phases(("relu", 8), ("tanh", 30)))


def minimum(rho: float, wrong: float) -> Tensor:
    """Sharpness of the loss where SGD with momentum, or SAM around it, ends on 400 digits, a share of labels drawn by chance; and the
    share of new digits that didact's MLP 64 – 64 – 10 gets right there."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    seen, new = torch.randperm(len(y)).split((400, len(y) - 400))
    given = torch.where(torch.rand(400) < wrong, torch.randint(10, (400,)), y[seen])
    net = MLP(64, 10, hidden=(64,)).float()
    sam = SAM(net.parameters(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), rho=rho)
    for _ in range(300):
        i = torch.randint(400, (50,))

        def slope(i: Tensor = i) -> Tensor:
            sam.zero_grad()
            loss = F.cross_entropy(net(x[seen[i]]), given[i])
            loss.backward()
            return loss

        slope()
        sam.step(slope)
    λ = sharpness(F.cross_entropy(net(x[seen]), given), list(net.parameters()), steps=20)
    with torch.no_grad():
        right = accuracy(net(x[new]).softmax(1), y[new])
    return torch.stack([λ, right])


@claim("C11.18", NeverMore(), condition="wrong labels to be led astray by, and a radius ρ that leaves the loss learnable; "
       "with right labels it is flatter and gains little, with ρ = 1 it is flat and of no use")
def flat_minima() -> Cases:
    """λ_max of the Hessian under SAM at most two thirds of that under SGD, and at least two in a hundred new digits more right, in the mean
    of three seeds, on scikit-learn's digits: with three in ten labels drawn by chance and ρ = 0.3; with ρ = 1, and with right labels"""
    def ends(rho: float, wrong: float) -> Tensor:
        found = []
        for seed in range(3):
            torch.manual_seed(seed)
            found.append(minimum(rho, wrong))
        return torch.stack(found).double().mean(0)

    sgd = {wrong: ends(0.0, wrong) for wrong in (0.3, 0.0)}                # ρ = 0 is SGD

    def gained(*settings: tuple[float, float]) -> Told:
        low, high, shown = list[Tensor](), list[Tensor](), dict[str, Any]()
        for rho, wrong in settings:
            (λ, right), (flat, better) = sgd[wrong], ends(rho, wrong)
            low, high = [*low, flat, right + 0.02], [*high, 2 / 3 * λ, better]
            name = f"ρ = {rho:g}, {wrong:.0%} wrong labels"
            shown |= {f"{name}: λ of SGD and SAM": [λ, flat], f"{name}: new digits right": [right, better]}
        return Told((low, high), shown)

    return Cases(gained((0.3, 0.3)), gained((1.0, 0.3), (0.3, 0.0)))
