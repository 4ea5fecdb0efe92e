"""Groudiev, chapter 7, measured: variances of random networks, statistical errors, adversarial noise."""

import math
from itertools import pairwise, product

import torch
from torch import Tensor
from torch.distributions import Binomial
from torch.nn import functional as F

from didact import metrics
from didact.claims.forms import Conditional, Display, Equal, LessOrEqual, WithinStandardErrors
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.explain.gradients import compute_input_gradient
from didact.layers.init import activation_gain, he_normal
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical

_LAYER_WIDTHS = (5, 4, 3, 4)        # many narrow networks estimate a variance faster than wide ones
_NUM_NETWORKS = 900_000


def _jacobian_vector_products(x: Tensor, v: Tensor, *, forward: bool = True) -> Tensor:
    """The product of a ReLU network's Jacobian at x with v, of many networks: v = x gives g(x) itself, which is linear
    near x.

    Weights are didact's He initialization, Var W = 2 over the input width of each layer (`forward`), or its output
    width.
    """
    h, v = (u.float().expand(_NUM_NETWORKS, -1)[..., None] for u in (x, v))
    for l, (n, m) in enumerate(pairwise(_LAYER_WIDTHS), start=2):
        W = he_normal(
            torch.empty(_NUM_NETWORKS * (m if forward else n), n if forward else m, dtype=torch.float32),
            activation_gain("relu"),
        )
        W = W.view(_NUM_NETWORKS, m, n) if forward else W.view(_NUM_NETWORKS, n, m).mT
        z, v = W @ h, W @ v
        if l < len(_LAYER_WIDTHS):
            h, v = z.relu(), v * (z > 0)
    return v[..., 0]


def _variance_with_error(y: Tensor, expected: float) -> tuple[Tensor, Tensor, float]:
    """The variance of numbers with mean 0 by symmetry, and its standard error: networks are independent, outputs of one
    are not."""
    squares_by_network = y.double().square().mean(1)
    return squares_by_network.mean(), squares_by_network.std() / math.sqrt(len(y)), expected


@claim("CE60", WithinStandardErrors())
def variance_of_the_output() -> tuple[Tensor, Tensor, float]:
    """Var g(x)_i over 900,000 networks of widths 5 – 4 – 3 – 4, against 2‖x‖²/5"""
    x = torch.linspace(-1, 2, _LAYER_WIDTHS[0])
    return _variance_with_error(_jacobian_vector_products(x, x), 2 * float(x.square().sum()) / _LAYER_WIDTHS[0])


@claim("CE61", WithinStandardErrors())
def variance_of_the_jacobian() -> tuple[Tensor, Tensor, float]:
    """Var ∂g_i/∂x_1 over 900,000 networks with Var W = 2/(input width), against 2/5"""
    return _variance_with_error(
        _jacobian_vector_products(torch.randn(_LAYER_WIDTHS[0]), torch.eye(_LAYER_WIDTHS[0])[0]), 2 / _LAYER_WIDTHS[0]
    )


@claim("CE95", WithinStandardErrors())
def variance_of_the_jacobian_backwards() -> tuple[Tensor, Tensor, float]:
    """Var ∂g_i/∂x_1 over 900,000 networks with Var W = 2/(output width), against 2/4"""
    return _variance_with_error(
        _jacobian_vector_products(torch.randn(_LAYER_WIDTHS[0]), torch.eye(_LAYER_WIDTHS[0])[0], forward=False),
        2 / _LAYER_WIDTHS[-1],
    )


def _risk_deviations(n: int, p: float) -> tuple[Tensor, Tensor]:
    """|L_n − L| of a 0–1 loss with risk p for each number of mistakes in n examples, and its probability."""
    k = torch.arange(n + 1.0)
    return (k / n - p).abs(), Binomial(n, torch.tensor(p)).log_prob(k).exp()


@claim("CE65", LessOrEqual())
def confidence_of_the_bound() -> Pair:
    """1 − δ = 0.9 ≤ P(|L_n − L| ≤ ‖ℓ‖_∞ √(2 ln(2/δ)/n)) of a predictor fixed in advance, losses 0 or 1 and −1 or 1,
    from the binomial law; and the bound is nearly tight: for δ = 10⁻¹² and losses ±1, 0.9 of it is exceeded more often
    than δ"""
    def t(n: int, δ: float) -> float:
        return math.sqrt(2 * math.log(2 / δ) / n)

    coverages = []
    for n, p in product((10, 100, 1000), (0.01, 0.2, 0.5)):
        gap, probability = _risk_deviations(n, p)
        # losses ±1 deviate twice as far
        coverages += [probability[gap <= t(n, 0.1)].sum(), probability[2 * gap <= t(n, 0.1)].sum()]
    gap, probability = _risk_deviations(1000, 0.5)
    return [0.9] * len(coverages) + [1.0], [*coverages, probability[2 * gap > 0.9 * t(1000, 1e-12)].sum() / 1e-12]


@claim("CE96", Equal(5e-3))
def rate_of_the_statistical_error() -> Pair:
    """d log E|L_n − L| / d log n between n = 2,000 and 8,000, from the binomial law, against −½"""
    slopes = []
    for p in (0.1, 0.3, 0.5):
        error_few, error_many = (
            float((gap * chance).sum()) for gap, chance in (_risk_deviations(n, p) for n in (2000, 8000))
        )
        slopes.append(math.log(error_many / error_few) / math.log(4))
    return slopes, [-0.5] * 3


@claim("CE66", Equal())
def parts_of_the_error() -> Display:
    """L(θ̂) = [L(θ̂) − L_n(θ̂)] + [L_n(θ̂) − L_n(θ*)] + [L_n(θ*) − L(θ*)] + L(θ*) for threshold classifiers and n = 15
    examples, θ* the best by L and θ̂ the fourth best by L_n"""
    x = torch.arange(40.0)
    p = 0.5 + 0.4 * (x / 6).sin()                        # P(y = 1 | x), x uniform on 40 points
    examples = torch.randint(40, (15,))
    y = (torch.rand(15) < p[examples]).double()
    predictions = torch.stack([(x >= t).double() for t in range(41)])                              # (41, 40)
    risk = (predictions * (1 - p) + (1 - predictions) * p).mean(1)
    empirical = (predictions[:, examples] != y).double().mean(1)
    # an optimizer that has not converged yet
    learned, best = int(empirical.argsort(stable=True)[3]), int(risk.argmin())
    errors = {
        "generalization": risk[learned] - empirical[learned], "optimization": empirical[learned] - empirical[best],
        "statistical": empirical[best] - risk[best], "approximation": risk[best],
    }
    total = torch.stack(list(errors.values())).sum()
    return Display((total, risk[learned]), {**errors, "together": total, "L(θ̂)": risk[learned]})


@claim(
    "CE92",
    LessOrEqual(),
    condition="noise added to an image; pure noise, which the page mentions too, is classified with confidence",
)
def random_and_adversarial_noise() -> Conditional:
    """accuracy of didact's network on digits with noise of 15 % of the image's norm: against the gradient of the true
    class's score at most half of the clean accuracy; in a random direction at least nine tenths; and the mean
    confidence on pure noise images, at most ½"""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images) / 16, torch.tensor(labels)
    net, classes = MLP(64, 10, hidden=(64,)), Categorical(10)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        classes.mean_loss(net(x[:1200]), y[:1200]).backward()
        optimizer.step()
    x, y = x[1200:], y[1200:]
    adversarial = -compute_input_gradient(lambda x: classes.log_p(net(x)), x, y)

    def accuracy(direction: Tensor) -> float:
        noise = 0.15 * x.norm(dim=1, keepdim=True) * F.normalize(direction, dim=1)
        return float(metrics.accuracy(net(x + noise), y))

    clean, crafted, random = (
        accuracy(direction) for direction in (torch.zeros_like(x), adversarial, torch.randn_like(x))
    )
    noise_confidence = net(torch.rand_like(x)).softmax(1).amax(1).mean()
    numbers = {"accuracy on clean images": clean, "random": random, "crafted": crafted}
    return Conditional(
        Display(([crafted, 0.9 * clean], [0.5 * clean, random]), numbers),
        Display((noise_confidence, 0.5), {"confidence in images of noise": noise_confidence}),
    )
