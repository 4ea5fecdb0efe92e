"""Van Schependom: regions of networks, approximation, gradients through time and through samples."""

import math
from collections.abc import Callable
from itertools import accumulate, combinations, pairwise, product

import torch
from torch import Tensor, nn

from didact.claims.compare import Conditional, CorrectedClaim, Equal, Increasing, InInterval, LessOrEqual, ShownAs
from didact.claims.core import claim
from didact.claims.gaba_11 import relu_network
from didact.claims.tools import Pair, compute_gradients
from didact.explain.gradient_memory import compute_gradient_decay
from didact.layers.activation import make_activation
from didact.layers.mlp import make_mlp_layers
from didact.layers.recurrent.recurrent import Recurrent
from didact.objectives.distributions.classification import Categorical
from didact.objectives.generative.vae import log_normal


def _count_regions(W: Tensor, b: Tensor) -> int:
    """Activation patterns of relu(Wx + b), planes in general position: each region touches a corner, where D_in
    planes meet."""
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
    condition="units in general position, which make Σ_{j ≤ D_in} C(D, j), never 2^D; equal units make fewer",
)
def regions_of_a_wide_network() -> Conditional:
    """2^D_in ≤ regions ≤ 2^D − 1, D_in = 2 and 3, D up to 8: random units, no more and no fewer than Σ_{j ≤ D_in}
    C(D, j); and D copies of
    one of didact's"""
    sizes = ((2, 3), (2, 8), (3, 4), (3, 7))
    low, high = [2**d for d, _ in sizes], [2**D for _, D in sizes]
    region_counts = [_count_regions(torch.randn(D, d), torch.randn(D)) for d, D in sizes]
    formula_counts = [sum(math.comb(D, j) for j in range(d + 1)) for d, D in sizes]
    copied_counts = [
        len((make_mlp_layers((d, 1))(torch.randn(1000, d)).expand(-1, D) > 0).unique(dim=0)) for d, D in sizes
    ]
    high_minus_one = [n - 1 for n in high]
    return Conditional(
        ShownAs(
            (
                [*low, *region_counts, *region_counts, *formula_counts],
                [*region_counts, *high_minus_one, *formula_counts, *region_counts],
            ),
            {"regions": region_counts, "from": low, "to": high},
        ),
        ShownAs((low + copied_counts, copied_counts + high_minus_one), {"regions": copied_counts}),
    )


def _fold_interval(x: Tensor, D: int) -> Tensor:
    """Takes [0, 1] to [0, 1] D + 1 times, up and down: didact's network of D ReLU units, two of them facing left."""
    steepness = [1.0, 1, 1, 2] + [1.0] * (D - 3)          # the first slope is then what the two give that face left
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
    """Pieces of K such layers on [0, 1], each up or down."""
    y = torch.linspace(0, 1, 100_001)
    for _ in range(K):
        y = _fold_interval(y, D)
    is_rising = y.diff() > 0
    return 1 + int((is_rising[1:] != is_rising[:-1]).sum())


@claim("CV05", Equal())
def regions_of_a_deep_network() -> Pair:
    """turns of K of didact's layers, each folding [0, 1] D + 1 times, and one more, against (D + 1)^K: a unit
    breaks each piece once"""
    cases = [(3, 1), (3, 2), (3, 3), (4, 2), (5, 2)]
    return [count_monotone_pieces(D, K) for D, K in cases], [(D + 1) ** K for D, K in cases]


@claim("CV49", Equal(), correction="only the second line: y_t depends on all inputs up to t through the state")
def likelihood_of_a_sequence() -> CorrectedClaim:
    """Σ_t log p(y_t | …) of didact's RNN that sees x_t alone, against the same over the sequence; mended: x_t and
    the state of x_<t"""
    rnn, head, x, y = Recurrent("rnn", 4, 8), nn.Linear(8, 3), torch.randn(1, 6, 4), torch.randint(3, (6,))

    def likelihood(h: Tensor) -> Tensor:
        return -Categorical(3).loss(head(h), y).sum()

    step_outputs = torch.cat([rnn(x[:, t : t + 1])[0][0] for t in range(6)])
    state, steps = None, []
    for t in range(6):
        h, state = rnn(x[:, t : t + 1], state)
        steps.append(h[0])
    sequence_likelihood = likelihood(rnn(x)[0][0])
    return CorrectedClaim(
        (likelihood(step_outputs), sequence_likelihood), (likelihood(torch.cat(steps)), sequence_likelihood)
    )


@claim(
    "CV42",
    LessOrEqual(),
    condition="an f that varies slowly on the scale of σ: for sin 20z the score function's gradient varies less",
)
def variance_of_two_gradients() -> Conditional:
    """Var ∂f(μ + ε)/∂μ against Var f(z) ∂log q(z)/∂μ, q didact's normal density, both gradients of E f(z) for z ~
    N(1, 1), and that their
    means agree within five standard errors: f = z², and f = sin 20z"""
    ε = torch.randn(200_000)

    def both(f: Callable[[Tensor], Tensor]) -> ShownAs:
        μ = torch.ones(200_000, requires_grad=True)
        (path_gradient,) = compute_gradients(f(μ + ε).sum(), μ)
        z = (μ + ε).detach()
        (score,) = compute_gradients(log_normal(z[:, None], μ[:, None]).sum(), μ)
        score_gradient = f(z) * score
        mean_difference, error = (
            (path_gradient.mean() - score_gradient.mean()).abs(),
            ((path_gradient.var() + score_gradient.var()) / len(ε)).sqrt(),
        )
        return ShownAs(
            ([path_gradient.var(), mean_difference], [score_gradient.var(), 5 * error]),
            {"variance reparameterised": path_gradient.var(), "by the score": score_gradient.var()},
        )

    return Conditional(both(torch.square), both(lambda z: (20 * z).sin()))


@torch.no_grad()
def uniform_error(act: Callable[[Tensor], Tensor], width: int) -> float:
    """The largest error on [0, 1] of one hidden layer with units at even places, its output fitted to |x − 0.4| +
    sin 6x."""
    x = torch.linspace(0, 1, 4001)
    y = (x - 0.4).abs() + (6 * x).sin()
    h = act(x[:, None] - torch.arange(-1, width - 1) / (width - 1))
    h = torch.cat([h, torch.ones(len(x), 1)], dim=1)
    w = torch.linalg.lstsq(h, y[:, None], driver="gelsd").solution
    return float((h @ w - y[:, None]).abs().max())


@claim(
    "CV48",
    Increasing(),
    condition="an activation that is no polynomial; squares of affine functions stay parabolas at any width",
)
def approximation_by_one_layer() -> Conditional:
    """−log₁₀ of the largest error of 5, 20, 80 and 320 units: didact's ReLU, and z²"""
    widths = (5, 20, 80, 320)
    errors = [[uniform_error(act, n) for n in widths] for act in (make_activation("relu"), torch.square)]
    return Conditional(
        *(
            ShownAs([-math.log10(e) for e in errors_by_width], {"largest error": errors_by_width})
            for errors_by_width in errors
        )
    )


@claim(
    "CV50",
    InInterval(-3, 3),
    correction="the gradient vanishes more slowly where forget gates stay near 1; with PyTorch's first weights it is "
               "gone "
    "after 100 steps, and with large ones it still explodes",
)
def gradient_through_an_lstm() -> CorrectedClaim:
    """log₁₀ ‖∂s_T/∂s_{T−100}‖, s = (h, c), of didact's LSTM as PyTorch draws it, by its explanation of memory, and
    at s = 0 without biases
    and inputs, W_h eight times as large; mended: forget gates at σ(10)"""
    default_lstm, open_gate_lstm, large_weight_lstm = (Recurrent("lstm", 5, 8, init="random") for _ in range(3))
    with torch.no_grad():
        open_gate_lstm.rnn.get_parameter("bias_ih_l0")[8:16] += 10
        for name, p in large_weight_lstm.rnn.named_parameters():
            p.mul_(8 if name == "weight_hh_l0" else 0)
    x = torch.randn(101, 5)
    vanished, preserved, exploded = (
        compute_gradient_decay(reader, x)[100] for reader in (default_lstm, open_gate_lstm, large_weight_lstm)
    )
    return CorrectedClaim(
        ShownAs(
            [vanished.log10(), exploded.log10()],
            {"‖∂s_T/∂s_{T−100}‖ as drawn": vanished, "with large weights": exploded},
        ),
        ShownAs(preserved.log10(), {"with forget gates near 1": preserved}),
    )
