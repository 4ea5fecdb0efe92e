"""Groudiev, chapter 7: regularity and robustness."""

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims.forms import Conditional, Display, Equal, Increasing, LessOrEqual
from didact.claims.helpers import Pair, elementwise_derivative
from didact.claims.registry import claim
from didact.layers.init import activation_gain, he_uniform
from didact.layers.mlp import make_mlp_layers
from didact.models.tabular.mlp import MLP
from didact.scratch.gradients.dual import Dual, jvp
from didact.scratch.init import xavier_normal, xavier_uniform


@claim("CE59", Equal())
def derivative_of_a_composition() -> Pair:
    """the derivative at 0 of f∘…∘f, L = 1 … 12 times, for f(x) = c sin x with c = 0.7, by didact's dual numbers, and of
    L of its layers tanh(c x), against c^L"""
    def compose_sines(x: Dual, L: int) -> Dual:
        for _ in range(L):
            x = 0.7 * x.sin()
        return x

    def layer_derivative(L: int) -> Tensor:
        net = make_mlp_layers((1,) * (L + 1), "tanh")
        for p in net.parameters():
            nn.init.constant_(p, 0.7 if p.ndim == 2 else 0.0)
        return elementwise_derivative(net, torch.zeros(1))

    depths = range(1, 13)
    return [float(jvp(partial(compose_sines, L=L), 0.0, 1.0)[1]) for L in depths] + [
        layer_derivative(L) for L in depths
    ], [0.7**L for L in depths] * 2


@claim("CE62", Equal(5e-3))
def variance_of_a_uniform_law() -> Display:
    """didact's He initialization for ReLU samples from U(−r, r): the largest of a million weights over r = √(6/d), and
    their variance over r²/3 = 2/d, for d = 10 and 256"""
    d = torch.tensor([10.0, 256.0])
    weights = [he_uniform(torch.empty(1_000_000 // n, n), activation_gain("relu")) for n in (10, 256)]
    r, largest_weights, V = (
        (6 / d).sqrt(),
        torch.stack([w.abs().max() for w in weights]),
        torch.stack([w.var() for w in weights]),
    )
    value = [largest_weights / r, V / (r**2 / 3), V / (2 / d)], [torch.ones(2)] * 3
    return Display(value, {"largest weight": largest_weights, "r": r, "variance": V, "r²/3": r**2 / 3, "2/d": 2 / d})


@claim(
    "CE63", Equal(), condition="the widths are averaged, 2/((d + d′)/2); the mean of 2/d and 2/d′ itself is 1/d + 1/d′"
)
def average_heuristic() -> Conditional:
    """4/(d + d′) for widths of 784 and 10, and the squared scale of Xavier initialization with ReLU's gain √2 in
    didact's engine (its weights over NumPy's normal numbers of the same seed): against 2 over the mean width, and
    against the mean of 2/d and 2/d′"""
    d, d_out = 784, 10
    scales = xavier_normal((d_out, d), 0, gain=math.sqrt(2), dtype=np.float64) / np.random.default_rng(0).normal(
        size=(d_out, d)
    )
    V = [4 / (d + d_out), *(scales**2).flatten()]
    return Conditional((V, np.full(len(V), 2 / ((d + d_out) / 2))), (V, np.full(len(V), (2 / d + 2 / d_out) / 2)))


@claim("CE64", Equal(1e-3))
def bound_of_xavier() -> Pair:
    """r = √(6c²/(d + d′)), against the largest of 800,000 weights of Xavier initialization in didact's engine, gain c =
    5/3"""
    c, d, d_out = 5 / 3, 800, 1000
    return math.sqrt(6 * c**2 / (d + d_out)), np.abs(xavier_uniform((d_out, d), 0, gain=c, dtype=np.float64)).max()


@claim("CE67", LessOrEqual())
def lipschitz_constant() -> Pair:
    """‖J(x)‖ at fifty points of didact's ReLU network ≤ the product of its layers' spectral norms; equal where each
    layer stretches the output of the one before and all units are active"""
    net, aligned_net = MLP(5, 3, hidden=(9, 7)), MLP(5, 3, hidden=(9, 7))
    u = [F.normalize(torch.rand(n), dim=0) for n in (5, 9, 7, 3)]
    for layer, input_direction, output_direction in zip(
        (aligned_net.hidden[0], aligned_net.hidden[2], aligned_net.head), u, u[1:], strict=False
    ):
        layer.weight.data = 1.5 * torch.outer(output_direction, input_direction)

    def product_of_norms(net: MLP) -> float:
        return math.prod(
            float(torch.linalg.matrix_norm(m.weight.detach(), 2)) for m in net.modules() if isinstance(m, nn.Linear)
        )

    def jacobian_norm(net: MLP, x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.matrix_norm(jacobian(lambda x: net(x[None])[0], x), 2)
        return norm

    jacobian_norms = [jacobian_norm(net, torch.randn(5)) for _ in range(50)]
    return [*jacobian_norms, product_of_norms(aligned_net)], [product_of_norms(net)] * 50 + [
        jacobian_norm(aligned_net, u[0])
    ]


@claim("CE69", Increasing())
def remainder_of_the_linearization() -> list[Tensor]:
    """‖g(x + ε) − g(x) − Jε‖/‖ε‖ of didact's network for ‖ε‖ = 1e-5, 1e-4, …, 0.1: it tends to 0"""
    g, x, u = make_mlp_layers((4, 8, 3), "tanh"), torch.randn(4), F.normalize(torch.randn(4), dim=0)
    J = jacobian(g, x)
    return [(g(x + s * u) - g(x) - s * J @ u).norm().detach() / s for s in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)]


@claim(
    "CE68", LessOrEqual(), condition="a function of one variable; over thin triangles the interpolation can be steeper"
)
def interpolation_is_no_steeper() -> Conditional:
    """the steepest piece of the interpolation of sin(5x) − x² at 3 … 40 points ≤ its largest slope on [0, 2], and equal
    within a thousandth with 2,000 points; and the slope of the plane that interpolates sin(πx)/π at (0, 0), (1, 0),
    (0.5, 0.1) ≤ its largest slope on [0, 1]"""
    def f(x: Tensor) -> Tensor:
        return (5 * x).sin() - x**2       # steepest where it falls

    def g(x: Tensor) -> Tensor:
        return (math.pi * x).sin() / math.pi

    largest_f_slope, largest_g_slope = (
        elementwise_derivative(f, torch.linspace(0, 2, 20_001)).abs().max(),
        elementwise_derivative(g, torch.linspace(0, 1, 20_001)).abs().max(),
    )
    nodes = [torch.linspace(0, 2, n) for n in (*range(3, 41), 2000)]
    segment_slopes = [(f(x).diff() / x.diff()).abs().max() for x in nodes]
    compared = [*segment_slopes, 0.999 * largest_f_slope], [largest_f_slope] * len(nodes) + [segment_slopes[-1]]
    corners = torch.tensor([[0.0, 0, 1], [1, 0, 1], [0.5, 0.1, 1]])                     # x, y, 1
    triangle_slope = torch.linalg.solve(corners, g(corners[:, 0]))[:2].norm()
    numbers = {
        "slope through 3, 10 and 40 points": [segment_slopes[n - 3] for n in (3, 10, 40)],
        "of the target": largest_f_slope,
    }
    return Conditional(
        Display(compared, numbers),
        Display(
            (triangle_slope, largest_g_slope),
            {"slope over the triangle": triangle_slope, "of the target": largest_g_slope},
        ),
    )
