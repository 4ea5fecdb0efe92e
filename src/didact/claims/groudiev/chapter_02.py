"""Groudiev, chapter 2: automatic differentiation."""

import math

import numpy as np
import torch
from torch.autograd.functional import jacobian

from didact import scratch
from didact.claims.forms import CorrectedClaim, Display, Equal, Exactly, Increasing, LessOrEqual
from didact.claims.gaba import chapter_01 as gaba_1
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.mlp import make_mlp_layers
from didact.objectives.distributions.classification import Bernoulli
from didact.scratch.gradients.numerical import error_curve
from didact.scratch.gradients.symbolic import expression_swell


@claim("CE02", Equal(), correction="the minus sign is missing: −(y log ŷ + (1 − y) log(1 − ŷ))")
def logistic_loss() -> CorrectedClaim:
    """y log ŷ + (1 − y) log(1 − ŷ) against didact's binary likelihood; corrected: with a minus"""
    p, y = torch.rand(20), torch.randint(2, (20,)).double()
    printed, ours = y * p.log() + (1 - y) * (1 - p).log(), Bernoulli().loss(p.logit()[:, None], y)
    return CorrectedClaim((printed, ours), (-printed, ours))


@claim("CE03", Exactly((3.0, 3.0, -4.0, -4.0, -4.0)))
def worked_graph() -> tuple[float, ...]:
    """q = x + y, f = q z at (−2, 5, −4): q, ∂f/∂z, ∂f/∂q, ∂f/∂y, ∂f/∂x, by didact's own engine"""
    x, y, z = (scratch.tensor(v, requires_grad=True) for v in (-2.0, 5.0, -4.0))
    q = x + y
    (q * z).backward()
    q_leaf = scratch.tensor(q.data, requires_grad=True)
    (q_leaf * z.detach()).backward()
    return tuple(float(v) for v in (q.data, z.grad, q_leaf.grad, y.grad, x.grad))  # type: ignore[arg-type]


@claim("CE04", Increasing())
def round_off() -> list[float]:
    """error of (f(x + h) − f(x))/h for sin at 1, by didact's forward differences: h = 1e-8, 1e-10, 1e-12, 1e-14"""
    curve = error_curve(np.sin, math.cos(1.0), 1.0, (1e-8, 1e-10, 1e-12, 1e-14))
    return [float(point.forward) for point in curve]


@claim(
    "CE05",
    LessOrEqual(),
    remark="with equal parts shared, as in a graph, it grows by a constant at each iteration",
)
def swell_of_expressions() -> Display:
    """the logistic map iterated n = 2 … 12 times: symbols in didact's derivative, at least 2ⁿ/3 times the distinct
    parts of the map, and at least twice those of n − 1; but at most 2½ times as many distinct parts as the map"""
    rows = expression_swell(12)[1:]
    symbol_counts, part_counts, distinct_counts = (
        [r.unsimplified for r in rows],
        [r.f_shared for r in rows],
        [r.derivative_shared for r in rows],
    )
    lower_bounds = [2**r.n * r.f_shared / 3 for r in rows]
    value = (
        lower_bounds + [2 * n for n in symbol_counts[:-1]] + distinct_counts,
        symbol_counts + symbol_counts[1:] + [2.5 * n for n in part_counts],
    )
    return Display(
        value,
        {
            "parts of the map after four, eight and twelve iterations": part_counts[2::4],
            "symbols of its derivative": symbol_counts[2::4],
            "distinct parts of it": distinct_counts[2::4],
        },
    )


claim("CE06", Equal())(gaba_1.derivative_of_the_sigmoid)


@claim("CE07", Equal())
def chain_of_jacobians() -> Pair:
    """the Jacobian of didact's linear layer Wx + b is W, and J_{f∘g}(a) = J_f(g(a)) J_g(a) for two of its layers"""
    a, f, g = torch.randn(3), make_mlp_layers((4, 5), "tanh"), make_mlp_layers((3, 4), "sigmoid")
    composed_jacobian = jacobian(lambda x: f(g(x)), a)
    return [jacobian(g[0], a), composed_jacobian], [g[0].weight, jacobian(f, g(a).detach()) @ jacobian(g, a)]
