"""Van Schependom: regions of networks, approximation, gradients through time and through samples."""

import math
from collections.abc import Callable
from itertools import accumulate, combinations, pairwise, product

import torch
from torch import Tensor, nn

from didact.claims.compare import Cases, Corrected, Inside, NeverMore, Rising, Same, Told
from didact.claims.core import claim
from didact.claims.gaba_11 import relus
from didact.claims.tools import Pair, gradients
from didact.explain.memory import fading
from didact.layers.activation import activation
from didact.layers.recurrent import Recurrent
from didact.layers.stack import stack
from didact.objectives.elbo import log_normal
from didact.objectives.likelihoods import Categorical


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


@claim("CV04", NeverMore(), condition="units in general position, which make Σ_{j ≤ D_in} C(D, j), never 2^D; equal units make fewer")
def regions_of_a_wide_network() -> Cases:
    """2^D_in ≤ regions ≤ 2^D − 1, D_in = 2 and 3, D up to 8: random units, no more and no fewer than Σ_{j ≤ D_in} C(D, j); and D copies of
    one of didact's"""
    sizes = ((2, 3), (2, 8), (3, 4), (3, 7))
    low, high = [2**d for d, _ in sizes], [2**D for _, D in sizes]
    drawn = [regions(torch.randn(D, d), torch.randn(D)) for d, D in sizes]
    known = [sum(math.comb(D, j) for j in range(d + 1)) for d, D in sizes]
    copied = [len((stack((d, 1))(torch.randn(1000, d)).expand(-1, D) > 0).unique(dim=0)) for d, D in sizes]
    below = [n - 1 for n in high]
    return Cases(Told(([*low, *drawn, *drawn, *known], [*drawn, *below, *known, *drawn]), {"regions": drawn, "from": low, "to": high}),
                 Told((low + copied, copied + below), {"regions": copied}))


def fold(x: Tensor, D: int) -> Tensor:
    """Takes [0, 1] to [0, 1] D + 1 times, up and down: didact's network of D ReLU units, two of them facing left."""
    steep = [1.0, 1, 1, 2] + [1.0] * (D - 3)          # the first slope is then what the two give that face left
    whole = sum(1 / s for s in steep)
    slopes = [(-1) ** k * s * whole for k, s in enumerate(steep)]
    kinks = list(accumulate(1 / (s * whole) for s in steep))[:-1]
    turns = [after - before for before, after in pairwise(slopes)]
    faces = [-1.0 if j in (1, 2) else 1.0 for j in range(D)]
    start = sum(turn * at for turn, at, face in zip(turns, kinks, faces, strict=True) if face < 0)
    y: Tensor = relus(x, faces, [-face * at for face, at in zip(faces, kinks, strict=True)], turns) - start
    return y


def turns(D: int, K: int) -> int:
    """Pieces of K such layers on [0, 1], each up or down."""
    y = torch.linspace(0, 1, 100_001)
    for _ in range(K):
        y = fold(y, D)
    rising = y.diff() > 0
    return 1 + int((rising[1:] != rising[:-1]).sum())


@claim("CV05", Same())
def regions_of_a_deep_network() -> Pair:
    """turns of K of didact's layers, each folding [0, 1] D + 1 times, and one more, against (D + 1)^K: a unit breaks each piece once"""
    cases = [(3, 1), (3, 2), (3, 3), (4, 2), (5, 2)]
    return [turns(D, K) for D, K in cases], [(D + 1) ** K for D, K in cases]


@claim("CV49", Same(), right="only the second line: y_t depends on all inputs up to t through the state")
def likelihood_of_a_sequence() -> Corrected:
    """Σ_t log p(y_t | …) of didact's RNN that sees x_t alone, against the same over the sequence; mended: x_t and the state of x_<t"""
    rnn, head, x, y = Recurrent("rnn", 4, 8), nn.Linear(8, 3), torch.randn(1, 6, 4), torch.randint(3, (6,))

    def likelihood(h: Tensor) -> Tensor:
        return -Categorical(3).loss(head(h), y).sum()

    alone = torch.cat([rnn(x[:, t : t + 1])[0][0] for t in range(6)])
    state, steps = None, []
    for t in range(6):
        h, state = rnn(x[:, t : t + 1], state)
        steps.append(h[0])
    whole = likelihood(rnn(x)[0][0])
    return Corrected((likelihood(alone), whole), (likelihood(torch.cat(steps)), whole))


@claim("CV42", NeverMore(), condition="an f that varies slowly on the scale of σ: for sin 20z the score function's gradient varies less")
def variance_of_two_gradients() -> Cases:
    """Var ∂f(μ + ε)/∂μ against Var f(z) ∂log q(z)/∂μ, q didact's normal density, both gradients of E f(z) for z ~ N(1, 1), and that their
    means agree within five standard errors: f = z², and f = sin 20z"""
    ε = torch.randn(200_000)

    def both(f: Callable[[Tensor], Tensor]) -> Told:
        μ = torch.ones(200_000, requires_grad=True)
        (path,) = gradients(f(μ + ε).sum(), μ)
        z = (μ + ε).detach()
        (score,) = gradients(log_normal(z[:, None], μ[:, None]).sum(), μ)
        other = f(z) * score
        apart, error = (path.mean() - other.mean()).abs(), ((path.var() + other.var()) / len(ε)).sqrt()
        return Told(([path.var(), apart], [other.var(), 5 * error]), {"variance reparameterised": path.var(), "by the score": other.var()})

    return Cases(both(torch.square), both(lambda z: (20 * z).sin()))


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
    """−log₁₀ of the largest error of 5, 20, 80 and 320 units: didact's ReLU, and z²"""
    widths = (5, 20, 80, 320)
    errors = [[uniform_error(act, n) for n in widths] for act in (activation("relu"), torch.square)]
    return Cases(*(Told([-math.log10(e) for e in of], {"largest error": of}) for of in errors))


@claim("CV50", Inside(-3, 3),
       right="the gradient vanishes more slowly where forget gates stay near 1; with PyTorch's first weights it is gone "
       "after 100 steps, and with large ones it still explodes")
def gradient_through_an_lstm() -> Corrected:
    """log₁₀ ‖∂s_T/∂s_{T−100}‖, s = (h, c), of didact's LSTM as PyTorch draws it, by its explanation of memory, and at s = 0 without biases
    and inputs, W_h eight times as large; mended: forget gates at σ(10)"""
    drawn, opened, large = (Recurrent("lstm", 5, 8, init="random") for _ in range(3))
    with torch.no_grad():
        opened.rnn.get_parameter("bias_ih_l0")[8:16] += 10
        for name, p in large.rnn.named_parameters():
            p.mul_(8 if name == "weight_hh_l0" else 0)
    x = torch.randn(101, 5)
    vanished, kept, exploded = (fading(reader, x)[100] for reader in (drawn, opened, large))
    return Corrected(Told([vanished.log10(), exploded.log10()], {"‖∂s_T/∂s_{T−100}‖ as drawn": vanished, "with large weights": exploded}),
                     Told(kept.log10(), {"with forget gates near 1": kept}))
