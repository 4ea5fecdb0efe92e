"""Gaba, chapter 11: theory."""

import math
from itertools import product

import numpy as np
import torch
from torch import Tensor

from didact.claims.compare import Asked, Cases, Corrected, Exactly, Inside, NeverMore, Same, Sampled
from didact.claims.core import claim, unable
from didact.claims.tools import Pair, gradients, parameters
from didact.registry import create


@claim("C11.1", NeverMore())
def bound_of_a_finite_class() -> Pair:
    """the chance that one of |H| independent guessers beats its risk ½ by √((log |H| + log 1/δ)/2m), from the binomial law, against δ"""
    found, δs = [], []
    for m, size, δ in product((20, 100, 400), (1, 10, 1000), (0.5, 0.1, 0.01)):
        ε = math.sqrt((math.log(size) + math.log(1 / δ)) / (2 * m))
        one = sum(math.comb(m, k) for k in range(m + 1) if 0.5 - k / m > ε) / 2**m
        found.append(1 - (1 - one) ** size)
        δs.append(δ)
    return found, δs


def separable(x: np.ndarray, labels: tuple[int, ...]) -> bool:
    """Is there a line with all points of label 1 on one side and all others on the other?"""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    y = np.where(np.array(labels) > 0, 1.0, -1.0)
    rows = -y[:, None] * np.concatenate([x, np.ones((len(x), 1))], axis=1)
    return bool(linprog(np.zeros(3), A_ub=rows, b_ub=-np.ones(len(x)), bounds=(None, None)).status == 0)


def dichotomies(m: int) -> int:
    """How many of the 2^m labellings of m random points a line can make."""
    x = torch.randn(m, 2).numpy()
    return sum(separable(x, labels) for labels in product((0, 1), repeat=m))


@claim("C11.2", Exactly(3))
def vc_dimension_of_half_planes() -> int:
    """the largest n ≤ 4 for which some of ten random sets of n points has all its 2ⁿ labellings"""
    return max(n for n in (1, 2, 3, 4) if any(dichotomies(n) == 2**n for _ in range(10)))


@claim("C11.3", NeverMore())
def sauer_shelah() -> Pair:
    """labellings of m points by half-planes, whose dimension is 3, against Σ_{i≤3} C(m, i), m = 1 … 6"""
    return [dichotomies(m) for m in range(1, 7)], [sum(math.comb(m, i) for i in range(4)) for m in range(1, 7)]


@claim("C11.4", Inside(low=1, open=True))
def vacuous_bound() -> float:
    """√(W L log W/m) for ResNet-50 on the 1.28 million images of ImageNet"""
    with torch.device("meta"):  # counted without being drawn
        W, L, m = parameters(create("resnet50")), 50, 1_281_167
    return math.sqrt(W * L * math.log(W) / m)


@claim("C11.5", NeverMore())
def rademacher_of_a_ball() -> Pair:
    """E_σ (B/m)‖Σ σ_i x_i‖ over all 2¹⁰ signs, against B √(Σ‖x_i‖²)/m, for twenty samples"""
    signs, B, m = torch.tensor(list(product((-1.0, 1.0), repeat=10))), 1.7, 10
    samples = [torch.randn(10, 4) * torch.rand(10, 1) for _ in range(20)]
    return [B / m * (signs @ x).norm(dim=1).mean() for x in samples], [B * x.square().sum().sqrt() / m for x in samples]


def hadamard(n: int) -> Tensor:
    """Orthogonal columns of ±1/√n, n a power of two."""
    H = torch.ones(1, 1)
    while len(H) < n:
        H = torch.cat([torch.cat([H, H], dim=1), torch.cat([H, -H], dim=1)])
    return H / math.sqrt(n)


@claim("C11.6", NeverMore(), right="the bound holds for Frobenius norms (Golowich et al. 2018); with spectral norms the width must enter")
def spectral_bound() -> Pair:
    """what w₂ᵀ ReLU(W₁x) of spectral norms 1 reaches on 256 unit inputs e_i, on average over signs, against √(4 log 2)/√m"""
    m = 256
    H, reached = hadamard(m), []
    for _ in range(10):
        plus = torch.randint(2, (m,)) > 0                    # W₁ = H on inputs of sign +, 0 on the others: norm 1
        reached.append(H[:, plus].relu().sum(1).norm() / m)  # w₂ along that sum, of norm 1
    return torch.stack(reached).mean(), math.sqrt(4 * math.log(2)) / math.sqrt(m)


@claim("C11.7", Same(1e-6))
def least_norm_solution() -> Pair:
    """gradient descent from 0 on ‖Xw − y‖², 4 equations and 9 unknowns, against X†y"""
    X, y, w = torch.randn(4, 9), torch.randn(4), torch.zeros(9)
    for _ in range(5000):
        w = w - 0.02 * X.T @ (X @ w - y)
    return w, torch.linalg.pinv(X) @ y


@claim("C11.8", Same())
def flow_of_the_tangent_kernel() -> Pair:
    """f(t) = y − e^{−ηΘt}(y − f(0)) begins at f(0) and has the slope −ηΘ(f − y), at three times"""
    A, y, f0, η = torch.randn(5, 5), torch.randn(5), torch.randn(5), 0.1
    Θ = A @ A.T

    def f(t: Tensor) -> Tensor:
        decay: Tensor = torch.linalg.matrix_exp(-η * Θ * t)
        return y - decay @ (y - f0)

    slopes = [torch.autograd.functional.jacobian(f, torch.tensor(t)) for t in (0.0, 0.7, 2.0)]
    return [f(torch.tensor(0.0)), *slopes], [f0, *(-η * Θ @ (f(torch.tensor(t)) - y) for t in (0.0, 0.7, 2.0))]


@claim("C11.9", Sampled())
def limit_of_the_tangent_kernel() -> tuple[Tensor, Tensor, float]:
    """(1/n) Σ a_j² 1[w_j·x > 0] 1[w_j·x′ > 0] x·x′ of a million units, against x·x′ (π − ∠(x, x′))/2π"""
    x, other = torch.tensor([1.0, 0.5, -0.2]), torch.tensor([0.8, -0.1, 0.4])
    w, a = torch.randn(1_000_000, 3), torch.randn(1_000_000)
    terms = a**2 * (w @ x > 0) * (w @ other > 0) * (x @ other)
    angle = float(torch.acos(x @ other / x.norm() / other.norm()))
    return terms.mean(), terms.std() / 1000, float(x @ other) * (math.pi - angle) / (2 * math.pi)


def tooth(x: Tensor) -> Tensor:
    return torch.relu(2 * x) - 2 * torch.relu(2 * x - 1)


@claim("C11.10", Same())
def tooth_of_the_saw() -> Pair:
    """ReLU(2x) − 2 ReLU(2x − 1) = 2 min(x, 1 − x) on [0, 1]"""
    x = torch.linspace(0, 1, 1001)
    return tooth(x), 2 * torch.minimum(x, 1 - x)


def pieces(y: Tensor) -> int:
    """Stretches of one slope in values on an even grid that meets every kink."""
    steps = y.diff()
    return 1 + int(((steps.diff()).abs() > 1e-9).sum())


@claim("C11.11", Same())
def pieces_of_the_saw() -> Pair:
    """linear pieces of g∘…∘g, k = 1 … 8 times, against 2ᵏ"""
    x, counts = torch.linspace(0, 1, 2**10 + 1), []
    for _ in range(8):
        x = tooth(x)
        counts.append(pieces(x))
    return counts, [2**k for k in range(1, 9)]


@claim("C11.12", NeverMore(), right="ℓ hidden layers of width w make up to (w + 1)^ℓ pieces, not w^ℓ: four with three units in one layer")
def pieces_of_a_small_network() -> Corrected:
    """pieces of ReLU(x − ¼) − 2 ReLU(x − ½) + 3 ReLU(x − ¾), width 3 and one layer, against w^ℓ; mended: (w + 1)^ℓ"""
    x = torch.linspace(0, 1, 1025)
    y = torch.relu(x - 0.25) - 2 * torch.relu(x - 0.5) + 3 * torch.relu(x - 0.75)
    return Corrected((pieces(y), 3), (pieces(y), 4))


def saw(x: Tensor, c: int) -> Tensor:
    """c pieces of slope ±c, from c ReLUs."""
    y = c * x
    for j in range(1, c):
        y = y + 2 * c * (-1) ** j * torch.relu(x - j / c)
    return y


@claim("C11.13", NeverMore())
def width_that_replaces_depth() -> Pair:
    """½ 2^{L/3}, against the width that ℓ layers need for the pieces of L layers of c ReLUs each, L = 3 … 6, ℓ = 1 … 6: the least w with
    (w + 1)^ℓ of them. c = ⌈2^{ℓ/3}⌉ does not grow with L; two, as in the sketch, are enough for ℓ ≤ 3"""
    needed, cases = [], list(product(range(3, 7), range(1, 7)))
    for L, depth in cases:
        c = math.ceil(2 ** (depth / 3) - 1e-9)
        x = torch.linspace(0, 1, 2 * c**L + 1)
        for _ in range(L):
            x = saw(x, c)
        needed.append(pieces(x) ** (1 / depth) - 1)
    return [2 ** (L / 3) / 2 for L, _ in cases], needed


@claim("C11.14", Same())
def chance_of_a_minimum() -> Pair:
    """the share of sign patterns of d eigenvalues that are all positive, d = 1 … 12, against 2^−d"""
    shares = [sum(all(s > 0 for s in signs) for signs in product((-1, 1), repeat=d)) / 2**d for d in range(1, 13)]
    return shares, [2.0**-d for d in range(1, 13)]


@claim("C11.15", NeverMore())
def perturbation_of_sam() -> Pair:
    """gᵀε ≤ gᵀε̂ = ρ‖g‖ with ε̂ = ρ g/‖g‖, for ten thousand other ε of length ρ"""
    ρ, w = 0.05, torch.randn(6, requires_grad=True)
    (g,) = gradients((w.sin() * w).sum(), w)
    ε = ρ * torch.nn.functional.normalize(torch.randn(10_000, 6), dim=1)
    best = g @ (ρ * g / g.norm())
    return [ε @ g, ρ * g.norm()], [best.expand(10_000), best]


SIZES, LOSSES = (1e6, 1e7, 1e8, 1e9), (3.2, 2.8, 2.5, 2.3)


@claim("C11.21", Asked())
def exponent_of_scale() -> float:
    """minus the slope of log L over log N, by least squares"""
    return float(-np.polyfit(np.log(SIZES), np.log(LOSSES), 1)[0])


@claim("C11.22", Asked())
def loss_at_scale() -> float:
    """the line of C11.21 at N = 10¹¹"""
    return float(np.exp(np.polyval(np.polyfit(np.log(SIZES), np.log(LOSSES), 1), math.log(1e11))))


def features_of_the_peak(outputs: int) -> int:
    """Random ReLU features at which the test error is largest, of 20 to 400 fitted by least norm to 140 examples of Gaba 11.10's set."""
    from sklearn.datasets import make_classification

    x, y = make_classification(200, 20, n_informative=10, random_state=42)
    X, Y = torch.tensor(x), torch.tensor(2.0 * y - 1)[:, None].repeat(1, outputs) + 0.1 * torch.randn(200, outputs)
    errors = {}
    for p in (20, 60, 100, 120, 140, 160, 200, 300, 400):
        runs = []
        for _ in range(20):
            H = (X @ torch.randn(20, p) / math.sqrt(20)).relu()
            w = torch.linalg.lstsq(H[:140], Y[:140], driver="gelsd").solution
            runs.append(float((H[140:] @ w - Y[140:]).square().mean()))
        errors[p] = sorted(runs)[10]
    return max(errors, key=lambda p: errors[p])


@claim("C11.17", Inside(0.85, 1.15), condition="one output, and only its layer trained; with ten outputs the peak is at 10 n parameters")
def interpolation_threshold() -> Cases:
    """parameters at the largest test error over n = 140: random ReLU features with one output, and with ten"""
    return Cases(features_of_the_peak(1) / 140, 10 * features_of_the_peak(10) / 140)


unable("C11.16", "a range from the literature: how much can be cut depends on network and data, and the course names neither")
unable("C11.18", "an exercise on ResNet-18 and CIFAR-10 that gives no numbers to compare with")
unable("C11.19", "neither task nor network nor number of steps is named, and what was seen elsewhere took tens of thousands of steps")
unable("C11.20", "neither network nor data nor estimate of the mutual information is named, and the phases depend on all three")
