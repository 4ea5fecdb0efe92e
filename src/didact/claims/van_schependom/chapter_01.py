"""Van Schependom, chapter 1: feed-forward networks."""

import math
from collections.abc import Callable
from itertools import accumulate, combinations, pairwise, product

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.claims.forms import Conditional, Display, Equal, Increasing, LessOrEqual
from didact.claims.gaba.chapter_11 import count_linear_pieces, relu_network
from didact.claims.groudiev.chapter_03 import to_scratch
from didact.claims.helpers import Pair, count_parameters
from didact.claims.registry import claim
from didact.layers.activation import make_activation
from didact.layers.mlp import make_mlp_layers
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical, MultiLabelBernoulli
from didact.objectives.distributions.regression import Heteroscedastic
from didact.scratch.activation import leaky_relu as scratch_leaky_relu


@claim("CV01", Equal())
def parameters_of_k_layers() -> Pair:
    """D₀D + D + (K − 1)(D² + D) + D D_L + D_L, against didact's own MLP"""
    cases = [(5, 7, 1, 3), (20, 64, 3, 10), (784, 32, 5, 1)]
    formula = [D0 * D + D + (K - 1) * (D**2 + D) + D * DL + DL for D0, D, K, DL in cases]
    return formula, [count_parameters(MLP(features=D0, hidden=(D,) * K, outputs=DL)) for D0, D, K, DL in cases]


@claim("CV02", Equal())
def parameters_of_k_layers_on_a_line() -> Pair:
    """3D + 1 + (K − 1) D(D + 1), against didact's own MLP with one input and one output"""
    cases = [(4, 1), (16, 3), (50, 6)]
    return [3 * D + 1 + (K - 1) * D * (D + 1) for D, K in cases], [
        count_parameters(MLP(features=1, hidden=(D,) * K, outputs=1)) for D, K in cases
    ]


@claim(
    "CV03",
    Equal(),
    remark="D distinct joints give D + 1 regions, coinciding ones fewer; pre-activations are affine, not piecewise "
    "linear",
)
def regions_of_a_shallow_network() -> Pair:
    """pieces on [0, 1] of didact's network of one layer, Σ c_d ReLU(x − d/(D + 1)), all slopes distinct, against D +
    1"""
    counts = []
    for D in range(1, 9):
        x = torch.linspace(0, 1, 64 * (D + 1) + 1)
        counts.append(
            count_linear_pieces(
                relu_network(x, [1.0] * D, [-d / (D + 1) for d in range(1, D + 1)], [1.5**d for d in range(1, D + 1)])
            )
        )
    return counts, range(2, 10)


@claim("CV06", Equal())
def products_of_densities() -> Pair:
    """−log of ∏ N(μ_d, σ_d²), of ∏ p^b (1 − p)^(1 − b) and of ∏ π_k^{y_k}, against didact's likelihoods: normal,
    Bernoulli, categorical"""
    μ, σ, y = torch.randn(4), torch.rand(4) + 0.1, torch.randn(4)
    normal = torch.exp(-((y - μ) ** 2) / (2 * σ**2)) / (σ * math.sqrt(2 * math.pi))
    p, b = torch.rand(6), torch.randint(2, (6,)).double()
    z, k = torch.randn(5), torch.tensor(3)
    stated = [
        -normal.prod().log(),
        -(p**b * (1 - p) ** (1 - b)).prod().log(),
        -(z.softmax(0) ** F.one_hot(k, 5)).prod().log(),
    ]
    # its loss is the mean over labels
    labels = 6 * MultiLabelBernoulli(6).loss(p.logit()[None], b[None])
    return stated, [
        Heteroscedastic().loss(torch.stack([μ, 2 * σ.log()], dim=1), y).sum(),
        labels,
        Categorical(5).loss(z[None], k[None]),
    ]


@claim("CV45", Equal())
def leaky_relu() -> Pair:
    """max(αz, z) for α = 0.01, 0.1, 0.5, against didact's engine, and for 0.01 its layer"""
    z = torch.randn(100)
    ours = [scratch_leaky_relu(to_scratch(z), α).data for α in (0.01, 0.1, 0.5)]
    return [torch.maximum(α * z, z) for α in (0.01, 0.1, 0.5, 0.01)], [*ours, make_activation("leaky_relu")(z)]


def _count_regions(W: Tensor, b: Tensor) -> int:
    """Number of activation patterns of relu(Wx + b), hyperplanes in general position: each region touches a vertex,
    where D_in hyperplanes meet."""
    D, d = W.shape
    patterns = set()
    for units in map(list, combinations(range(D), d)):
        corner = torch.linalg.solve(W[units], -b[units])
        pattern = (W @ corner + b > 0).tolist()
        for sides in product((False, True), repeat=d):
            for unit, side in zip(units, sides, strict=True):
                pattern[unit] = side
            patterns.add(tuple(pattern))
    return len(patterns)


@claim(
    "CV04",
    LessOrEqual(),
    condition="units in general position, which give Σ_{j ≤ D_in} C(D, j), never 2^D; equal units give fewer",
)
def regions_of_a_wide_network() -> Conditional:
    """2^D_in ≤ regions ≤ 2^D − 1, D_in = 2 and 3, D up to 8: random units, exactly Σ_{j ≤ D_in} C(D, j); and D copies
    of one of didact's"""
    sizes = ((2, 3), (2, 8), (3, 4), (3, 7))
    low, high = [2**d for d, _ in sizes], [2**D for _, D in sizes]
    region_counts = [_count_regions(torch.randn(D, d), torch.randn(D)) for d, D in sizes]
    formula_counts = [sum(math.comb(D, j) for j in range(d + 1)) for d, D in sizes]
    copied_counts = [
        len((make_mlp_layers((d, 1))(torch.randn(1000, d)).expand(-1, D) > 0).unique(dim=0)) for d, D in sizes
    ]
    high_minus_one = [n - 1 for n in high]
    return Conditional(
        Display(
            (
                [*low, *region_counts, *region_counts, *formula_counts],
                [*region_counts, *high_minus_one, *formula_counts, *region_counts],
            ),
            {"regions": region_counts, "from": low, "to": high},
        ),
        Display((low + copied_counts, copied_counts + high_minus_one), {"regions": copied_counts}),
    )


def _fold_interval(x: Tensor, D: int) -> Tensor:
    """Maps [0, 1] to [0, 1] D + 1 times, up and down: didact's network of D ReLU units, two of them facing left."""
    steepness = [1.0, 1, 1, 2] + [1.0] * (D - 3)          # the first slope is then that of the two units that face left
    total_length = sum(1 / s for s in steepness)
    slopes = [(-1) ** k * s * total_length for k, s in enumerate(steepness)]
    kinks = list(accumulate(1 / (s * total_length) for s in steepness))[:-1]
    slope_changes = [slope_after - slope_before for slope_before, slope_after in pairwise(slopes)]
    directions = [-1.0 if j in (1, 2) else 1.0 for j in range(D)]
    start = sum(
        slope_change * kink
        for slope_change, kink, direction in zip(slope_changes, kinks, directions, strict=True)
        if direction < 0
    )
    y: Tensor = (
        relu_network(
            x, directions, [-direction * kink for direction, kink in zip(directions, kinks, strict=True)], slope_changes
        )
        - start
    )
    return y


def count_monotone_pieces(D: int, K: int) -> int:
    """Number of monotone pieces of K such layers on [0, 1]."""
    y = torch.linspace(0, 1, 100_001)
    for _ in range(K):
        y = _fold_interval(y, D)
    is_rising = y.diff() > 0
    return 1 + int((is_rising[1:] != is_rising[:-1]).sum())


@claim("CV05", Equal())
def regions_of_a_deep_network() -> Pair:
    """monotone pieces of K of didact's layers, each folding [0, 1] D + 1 times, against (D + 1)^K: a unit breaks each
    piece once"""
    cases = [(3, 1), (3, 2), (3, 3), (4, 2), (5, 2)]
    return [count_monotone_pieces(D, K) for D, K in cases], [(D + 1) ** K for D, K in cases]


@torch.no_grad()
def uniform_error(act: Callable[[Tensor], Tensor], width: int) -> float:
    """The largest error on [0, 1] of one hidden layer with evenly spaced units, its output fitted to |x − 0.4| + sin
    6x."""
    x = torch.linspace(0, 1, 4001)
    y = (x - 0.4).abs() + (6 * x).sin()
    h = act(x[:, None] - torch.arange(-1, width - 1) / (width - 1))
    h = torch.cat([h, torch.ones(len(x), 1)], dim=1)
    w = torch.linalg.lstsq(h, y[:, None], driver="gelsd").solution
    return float((h @ w - y[:, None]).abs().max())


@claim(
    "CV48",
    Increasing(),
    condition="an activation that is not a polynomial; sums of squared affine functions are parabolas at any width",
)
def approximation_by_one_layer() -> Conditional:
    """−log₁₀ of the largest error of 5, 20, 80 and 320 units: with didact's ReLU, and with z²"""
    widths = (5, 20, 80, 320)
    errors = [[uniform_error(act, n) for n in widths] for act in (make_activation("relu"), torch.square)]
    return Conditional(
        *(
            Display([-math.log10(e) for e in errors_by_width], {"largest error": errors_by_width})
            for errors_by_width in errors
        )
    )
