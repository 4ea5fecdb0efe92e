"""Groudiev, chapter 12: normalizing flows."""

import torch
from torch.autograd.functional import jacobian

from didact.claims.forms import Equal
from didact.claims.helpers import Pair, elementwise_derivative
from didact.claims.registry import claim
from didact.layers.coupling import AffineCoupling
from didact.layers.mlp import make_mlp_layers
from didact.models.generative.realnvp import RealNVP
from didact.objectives.generative.vae import log_normal


def _make_coupling() -> AffineCoupling:
    """didact's coupling layer on six dimensions, of which the first three stay."""
    return AffineCoupling(torch.tensor([1, 1, 1, 0, 0, 0]), make_mlp_layers((6, 8, 12), "tanh"))


@claim("CE88", Equal(1e-6))
def inverse_of_a_coupling() -> Pair:
    """didact's coupling layer is (x₁, x₂ e^s + t); (y₁, (y₂ − t) e^{−s}) of its output is x, as is its own inverse"""
    layer, x = _make_coupling(), torch.randn(9, 6)
    y, _ = layer(x)
    s, t = (v[:, 3:] for v in layer._scale_and_shift(x))
    forward_result, inverse_result = (
        torch.cat([x[:, :3], x[:, 3:] * s.exp() + t], dim=1),
        torch.cat([y[:, :3], (y[:, 3:] - t) * (-s).exp()], dim=1),
    )
    return [forward_result, inverse_result, layer.inverse(y)], [y, x, x]


@claim("CE89", Equal(1e-5))
def determinant_of_a_coupling() -> Pair:
    """log |det J| of didact's coupling layer = Σ s_j, which it also returns; the block of J above the diagonal is 0"""
    layer, x = _make_coupling(), torch.randn(6)
    J = jacobian(lambda x: layer(x[None])[0][0], x)
    exact = J.det().abs().log()
    return [exact, exact, J[:3, 3:]], [layer._scale_and_shift(x[None])[0].sum(), layer(x[None])[1], torch.zeros(3, 3)]


@claim("CE90", Equal(1e-3))
def change_of_variables() -> Pair:
    """∫ p_z(f(x)) |det J_f(x)| dx = 1: for f(x) = x + ½ tanh x and a normal p_z, and over the plane for didact's
    RealNVP"""
    x = torch.linspace(-12, 12, 10_001)
    p = log_normal((x + 0.5 * x.tanh())[:, None]).exp() * elementwise_derivative(lambda x: x + 0.5 * x.tanh(), x)
    axis = torch.linspace(-12, 12, 301)
    with torch.no_grad():
        density = RealNVP(shape=(2,), hidden=8, num_couplings=4)(torch.cartesian_prod(axis, axis)).exp().view(301, 301)
    return [torch.trapezoid(p, x), torch.trapezoid(torch.trapezoid(density, axis), axis)], [1.0, 1.0]


@claim("CE94", Equal(1e-6))
def coupling_without_shuffling() -> Pair:
    """scale and translation of a second pass through didact's coupling layer are those of the first, since x₁ does not
    change: two passes are (x₁, (x₂ e^s + t) e^s + t)"""
    layer, x = _make_coupling(), torch.randn(5, 6)
    y, _ = layer(x)
    y_twice, _ = layer(y)
    s, t = (v[:, 3:] for v in layer._scale_and_shift(x))
    stated_twice = torch.cat([x[:, :3], (x[:, 3:] * s.exp() + t) * s.exp() + t], dim=1)
    return [*layer._scale_and_shift(y), y_twice], [*layer._scale_and_shift(x), stated_twice]
