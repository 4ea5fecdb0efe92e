"""What the courses ask, and what they leave unprinted: each answer against a value found another way, which a broken one misses.

An answer is no check: nothing is stated that it could disagree with. So the comparison stands here.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from test_broken import functions, tries
from torch import nn
from torch.nn import functional as F

import didact.claims  # noqa: F401 (registers the answers)
from didact.claims import gaba_11
from didact.claims.compare import About, Exactly, Same, Stated, bare
from didact.claims.core import ANSWERS, CHECKS, Check, repeatable, run, statements
from didact.models.mlp import MLP


def numbers(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def variance_of_polynomials() -> dict[int, float]:
    """bias² + variance in closed form: the fit of sin πx itself, and σ² ‖g(x)ᵀ X⁺‖² over the grid."""
    x, grid = np.linspace(-1, 1, 10), np.linspace(-1, 1, 200)
    found = {}
    for degree in (1, 3, 5, 9, 15):
        weights = np.vander(grid, degree + 1) @ np.linalg.pinv(np.vander(x, degree + 1))
        bias = weights @ np.sin(np.pi * x) - np.sin(np.pi * grid)
        found[degree] = float((bias**2 + 0.09 * (weights**2).sum(1)).mean())
    return found


def sizes_by_hand() -> Exactly:
    """(side + 2 padding − kernel) // stride + 1, and kernel² · in · out + out."""
    return Exactly(((32, (128 + 4 - 5) + 1, 25 * 3 * 32 + 32), (32, 64, 0), (64, (64 - 3) // 2 + 1, 9 * 32 * 64 + 64),
                    (128, 31, 9 * 64 * 128 + 128), (128, 1, 0)))


def fields_by_hand() -> Exactly:
    """r += (k − 1) jump, jump *= stride, along the longest way through 7 × 7, pooling and 3 + 4 + 6 + 3 bottlenecks."""
    def field(*, on_the_first: bool) -> int:
        r, jump = 1 + 6, 2
        r, jump = r + 2 * jump, 2 * jump
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                before, behind = (stride, 1) if on_the_first else (1, stride)
                jump *= before
                r, jump = r + 2 * jump, jump * behind
        return r

    return Exactly((field(on_the_first=False), field(on_the_first=True), 224))


def cifar10net_by_hand() -> Exactly:
    maps = (3, 64, 64, 128, 128, 256, 256)
    pairs = list(pairwise(maps))
    head = 256 * 128 + 128 + 128 * 10 + 10 + sum(2 * b for _, b in pairs)                # and a scale and a shift for each map
    split = sum(9 * a + a + a * b + b for a, b in pairs)                                 # depthwise and pointwise, each with its biases
    return Exactly((split + head, sum(9 * a * b + b for a, b in pairs) + head))


def transformer_of_pytorch() -> Exactly:
    """10,000 × 128, PyTorch's own encoder with its final norm, and a linear head of two classes."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(128), enable_nested_tensor=False)
    return Exactly(numbers(encoder) + numbers(nn.Embedding(10_000, 128)) + numbers(nn.Linear(128, 2)))


def densities_of_two_normals() -> Exactly:
    """p/(p + q) from e^{−(x−μ)²/2}."""
    def density(x: float, mean: float) -> float:
        return math.exp(-((x - mean) ** 2) / 2)

    return Exactly(tuple(round(density(x, 3) / (density(x, 3) + density(x, 0)), 6) for x in (0.0, 1.5, 3.0)))


def dcgan_by_hand() -> Exactly:
    generator = 100 * 256 * 4 * 4 + 256 * 128 * 3 * 3 + 128 * 64 * 4 * 4 + 64 * 4 * 4 + 2 * (256 + 128 + 64)
    discriminator = 64 * 4 * 4 + 64 * 128 * 4 * 4 + 128 * 256 * 3 * 3 + 256 * 4 * 4 + 2 * (128 + 256)
    return Exactly((generator, discriminator))


def vae_by_hand() -> Exactly:
    return Exactly(784 * 512 + 512 + 2 * (512 * 20 + 20) + 20 * 512 + 512 + 512 * 784 + 784)


def simple_unet_by_hand() -> Exactly:
    """Two convolutions, two norms and the time of each block, and one by one where the channels change."""
    def block(a: int, b: int) -> int:
        return 9 * a * b + b + 9 * b * b + b + 2 * a + 2 * b + 128 * b + b + (a * b + b) * (a != b)

    def grow(a: int, b: int) -> int:
        return 4 * a * b + b

    outside = 128 * 128 + 128 + 32 + 1
    inside = block(32, 64) + block(64, 128) + grow(128, 64) + block(128, 64) + grow(64, 32) + block(64, 32)
    return Exactly((outside + inside + block(32, 32) + 9 * 32 + 32, outside + inside + block(1, 32)))


LOSS = {1e6: 3.2, 1e7: 2.8, 1e8: 2.5, 1e9: 2.3}


def line() -> tuple[float, float]:
    """The normal equations of log L = a + b log N, by hand: N is a power of ten."""
    u, v = np.array([math.log(n) for n in LOSS]), np.array([math.log(l) for l in LOSS.values()])
    b = ((u - u.mean()) * (v - v.mean())).sum() / ((u - u.mean()) ** 2).sum()
    return v.mean() - b * u.mean(), b


def exponent_by_hand() -> About:
    return About(-line()[1], 1e-9, "rounding")


def extrapolated_by_hand() -> About:
    a, b = line()
    return About(math.exp(a + b * math.log(1e11)), 1e-9, "rounding")


def operations_by_hand() -> Exactly:
    n, d, layers = 2048, 4096, 32
    return Exactly(2 * n * layers * 12 * d**2 + 4 * n**2 * d * layers)


def averaging_by_hand() -> Exactly:
    """A second federated averaging, of state dicts, that meets the same random numbers; and the same passes over all examples."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    *shares, new = torch.randperm(len(y)).split([100, 150, 200, 250, 300, len(y) - 1000])

    def one_pass(net: nn.Module, rows: torch.Tensor) -> None:
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for i in rows[torch.randperm(len(rows))].split(50):
            sgd.zero_grad()
            F.cross_entropy(net(x[i]), y[i]).backward()
            sgd.step()

    found = []
    for clients in ([torch.cat(shares)], shares):
        torch.manual_seed(0)
        net = MLP(64, 10, hidden=(64,)).float()
        for n in range(1, 21):
            before, mean = {k: v.clone() for k, v in net.state_dict().items()}, {}
            for rows in clients:
                net.load_state_dict(before)
                one_pass(net, rows)
                for k, v in net.state_dict().items():
                    mean[k] = mean.get(k, 0) + v * len(rows) / sum(map(len, clients))
            net.load_state_dict(mean)
            if n in (1, 5, 20):
                found.append(float((net(x[new]).argmax(1) == y[new]).double().mean()))
    return Exactly(tuple(found))


EXPECTED: dict[str, Callable[[], Stated]] = {
    "C3.25": lambda: Exactly(min(variance_of_polynomials(), key=variance_of_polynomials().__getitem__)),
    "C4.27": sizes_by_hand,
    "C4.29": fields_by_hand,
    "C4.30": cifar10net_by_hand,
    "C7.7": transformer_of_pytorch,
    "C8.4": densities_of_two_normals,
    "C8.10": dcgan_by_hand,
    "C9.8": vae_by_hand,
    "C10.16": simple_unet_by_hand,
    "C11.21": exponent_by_hand,
    "C11.22": extrapolated_by_hand,
    "C12.8": operations_by_hand,
    "C12.10": averaging_by_hand,
}


@cache
def check(id: str) -> Check:
    """The answer, as if the course had stated what was found otherwise."""
    with repeatable():
        return Check(id, ANSWERS[id].function, EXPECTED[id](), "", "", "")


def test_every_answer_is_held_against_something():
    assert set(EXPECTED) == set(ANSWERS)


@pytest.mark.parametrize("id", sorted(ANSWERS))
def test_an_answer_is_right(id):
    form, value = check(id).form, check(id).compute()
    assert form.agrees(value), form.show(value)
    assert not any(other.agrees(value) for other in form.turned()) and list(form.turned()), "another value would do as well"


@pytest.mark.parametrize("id", sorted(ANSWERS))
def test_a_broken_answer_is_noticed(id):
    unseen = []
    for text, (seen, _) in tries(check(id), functions(check(id))):
        if seen:
            return
        unseen += [text] * (seen is False)
    pytest.fail(f"no broken formula is noticed, such as {unseen[:8]}")


def test_the_errors_of_polynomials_are_those_of_the_closed_form():
    """C3.25 shows one of each degree: means over 100 sets, of which a fifth more or less is chance."""
    shown = ANSWERS["C3.25"].answer().numbers
    expected = variance_of_polynomials()
    assert Same(0.3).agrees(([math.log(v) for v in shown.values()], [math.log(v) for v in expected.values()]))
    assert expected[3] < 0.9 * min(e for d, e in expected.items() if d != 3)


@pytest.mark.parametrize("id", sorted(ANSWERS))
def test_an_answer_is_counted_apart(id):
    outcome = run(id)
    assert id not in CHECKS and outcome.verdict == "answered"
    assert outcome.note.startswith("the course asks" if "question" in statements()[id].stated else "the course prints no value")
    assert outcome.value == bare(ANSWERS[id].answer()) or isinstance(outcome.value, tuple), outcome.value


def test_a_pruned_network_is_pruned_before_its_first_gradient(monkeypatch):
    """C11.16, the lottery ticket: whenever the second network is computed, nine in ten of its weights are 0."""
    seen = []

    class Watched(MLP):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = torch.cat([p.detach().flatten() for p in self.parameters() if p.dim() == 2])
            seen.append(float((weights == 0).double().mean()))
            return super().forward(x)

    monkeypatch.setattr(gaba_11, "MLP", Watched)
    with repeatable():
        gaba_11.right_after_pruning((0.0, 0.9))
    whole, pruned = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert max(whole) == 0.0 and min(pruned) > 0.89
