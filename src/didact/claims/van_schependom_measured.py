"""Van Schependom: regions of networks, approximation, gradients through time and through samples."""

import math
from collections.abc import Callable
from itertools import accumulate, combinations, pairwise, product

import torch
from torch import Tensor, nn

from didact.claims.compare import Cases, Corrected, Inside, NeverMore, Rising, Same
from didact.claims.core import claim
from didact.claims.tools import Pair, gradients


def regions(W: Tensor, b: Tensor) -> int:
    """Activation patterns of relu(Wx + b), planes in general position: each region touches a corner, where D_in planes meet."""
    D, d = W.shape
    found = set()
    for chosen in map(list, combinations(range(D), d)):
        corner = torch.linalg.solve(W[chosen], -b[chosen])
        on = (W @ corner + b > 0).tolist()
        for sides in product((False, True), repeat=d):
            for unit, side in zip(chosen, sides, strict=True):
                on[unit] = side
            found.add(tuple(on))
    return len(found)


@claim("CV04", Inside(0, 1), condition="units in general position, which make Σ_{j ≤ D_in} C(D, j), below 2^D; equal units make fewer")
def regions_of_a_wide_network() -> Cases:
    """(regions − 2^D_in) / (2^D − 2^D_in), D_in = 2 and 3, D up to 8: random units, and D copies of one unit, which make two regions"""
    sizes = ((2, 3), (2, 8), (3, 4), (3, 7))
    drawn = [regions(torch.randn(D, d), torch.randn(D)) for d, D in sizes]

    def share(counts: list[int]) -> list[float]:
        return [(n - 2**d) / (2**D - 2**d) for n, (d, D) in zip(counts, sizes, strict=True)]

    return Cases(share(drawn), share([2] * len(sizes)))


def fold(D: int) -> Callable[[Tensor], Tensor]:
    """D ReLU units, two of them facing left, whose sum takes [0, 1] to [0, 1] D + 1 times, up and down."""
    steep = [1.0, 1, 1, 2] + [1.0] * (D - 3)          # the first slope is then what the two give that face left
    whole = sum(1 / s for s in steep)
    slopes = [(-1) ** k * s * whole for k, s in enumerate(steep)]
    kinks = list(accumulate(1 / (s * whole) for s in steep))[:-1]

    def f(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for j, (at, (before, after)) in enumerate(zip(kinks, pairwise(slopes), strict=True)):
            left = j in (1, 2)
            y = y + (after - before) * ((at - x).relu() - at if left else (x - at).relu())
        return y

    return f


@claim("CV05", Same())
def regions_of_a_deep_network() -> Pair:
    """turns of K layers, each folding [0, 1] D + 1 times, and one more, against (D + 1)^K; a unit breaks each piece once at most"""
    cases, x = [(3, 1), (3, 2), (3, 3), (4, 2), (5, 2)], torch.linspace(0, 1, 400_001)
    found = []
    for D, K in cases:
        y = x
        for _ in range(K):
            y = fold(D)(y)
        rising = y.diff() > 0
        found.append(1 + int((rising[1:] != rising[:-1]).sum()))
    return found, [(D + 1) ** K for D, K in cases]


@claim("CV49", Same(), right="only the second line: y_t depends on all inputs up to t through the state")
def likelihood_of_a_sequence() -> Corrected:
    """Σ_t log p(y_t | …) of an RNN that sees x_t alone, against nn.RNN over the sequence; mended: x_t and the state of x_<t"""
    rnn, head, x, y = nn.RNN(4, 8, batch_first=True), nn.Linear(8, 3), torch.randn(1, 6, 4), torch.randint(3, (6,))

    def likelihood(h: Tensor) -> Tensor:
        log_p: Tensor = head(h).log_softmax(-1)
        return log_p[torch.arange(6), y].sum()

    alone = torch.cat([rnn(x[:, t : t + 1])[0][0] for t in range(6)])
    state, steps = torch.zeros(1, 1, 8), []
    for t in range(6):
        h, state = rnn(x[:, t : t + 1], state)
        steps.append(h[0])
    whole = likelihood(rnn(x)[0][0])
    return Corrected((likelihood(alone), whole), (likelihood(torch.cat(steps)), whole))


@claim("CV42", NeverMore(), condition="a smooth f: for f = sin 20z the reparameterised gradient varies more than the score function's")
def variance_of_two_gradients() -> Cases:
    """Var f′(μ + ε) against Var f(z)(z − μ), both gradients of E f(z) for z ~ N(1, 1): f = z², and f = sin 20z"""
    μ, ε = 1.0, torch.randn(200_000)
    z = μ + ε

    def both(f: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Pair:
        return slope(z).var(), (f(z) * ε).var()

    return Cases(both(torch.square, lambda z: 2 * z), both(lambda z: (20 * z).sin(), lambda z: 20 * (20 * z).cos()))


@torch.no_grad()
def uniform_error(act: Callable[[Tensor], Tensor], width: int) -> float:
    """The largest error on [0, 1] of one hidden layer with units at even places, its output fitted to |x − 0.4| + sin 6x."""
    x = torch.linspace(0, 1, 4001)
    y = (x - 0.4).abs() + (6 * x).sin()
    h = act(x[:, None] - torch.arange(-1, width - 1) / (width - 1))
    h = torch.cat([h, torch.ones(len(x), 1)], dim=1)
    w = torch.linalg.lstsq(h, y[:, None], driver="gelsd").solution
    return float((h @ w - y[:, None]).abs().max())


@claim("CV48", Rising(), condition="an activation that is no polynomial; squares of affine functions stay parabolas at any width")
def approximation_by_one_layer() -> Cases:
    """−log₁₀ of the largest error of 5, 20, 80 and 320 units: ReLU, and z²"""
    widths = (5, 20, 80, 320)
    return Cases(*([-math.log10(uniform_error(act, n)) for n in widths] for act in (torch.relu, torch.square)))


@claim("CV50", Inside(-3, 3), right="it vanishes less where forget gates stay near 1; as PyTorch draws them it is gone after 100 steps")
def gradient_through_an_lstm() -> Corrected:
    """log₁₀ ‖∂Σc_T/∂c_0‖ of nn.LSTM after T = 100 steps as it is drawn; mended: forget gates at σ(10)"""
    found = []
    for forget in (0.0, 10.0):
        lstm, c = nn.LSTM(5, 16), torch.zeros(1, 1, 16, requires_grad=True)
        with torch.no_grad():
            lstm.get_parameter("bias_ih_l0")[16:32] += forget
        _, (_, last) = lstm(torch.randn(100, 1, 5), (torch.zeros(1, 1, 16), c))
        found.append(float(gradients(last.sum(), c)[0].norm().log10()))
    return Corrected(*found)
