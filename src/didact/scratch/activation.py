"""Activations that courses name beside ReLU, tanh and the sigmoid of `ops.py` (Gaba 1.1.2, Fleuret 4.3)."""

from math import pi, sqrt

import numpy as np

from didact.scratch.ops import erf, exp, tanh
from didact.scratch.special import erf_of
from didact.scratch.tensor import Grads, Tensor, is_recording, record


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """y = x for x > 0, else α x;  dx = dy or α dy.  Gaba's max(αx, x) is the same for α < 1."""
    steep = np.where(x.data > 0, x.dtype.type(1), x.dtype.type(slope))
    return record("leaky_relu", x.data * steep, (x,), lambda dy: (dy * steep,))


def gelu(x: Tensor) -> Tensor:
    """y = x Φ(x), Φ the distribution function of N(0, 1);  dx = dy (Φ(x) + x φ(x)).  Bounded below by −0.17 (Gaba's table says R)."""
    below = 0.5 * (1 + erf_of(x.data * sqrt(0.5)))

    def vjp(dy: Tensor) -> Grads:
        phi = exp(x * x * -0.5) * (1 / sqrt(2 * pi))
        share = (erf(x * sqrt(0.5)) + 1.0) * 0.5 if is_recording() else Tensor(below)
        return (dy * (share + x * phi),)

    return record("gelu", x.data * below, (x,), vjp, saved=(x,))


def gelu_tanh(x: Tensor) -> Tensor:
    """y = ½ x (1 + t), t = tanh u, u = √(2/π)(x + 0.044715 x³): GELU as GPT-2 computes it, within 5e-4 of it and cheaper.

    dx = dy (½ (1 + t) + ½ x (1 − t²) u′),  u′ = √(2/π)(1 + 3 · 0.044715 x²).
    """
    c, k = sqrt(2 / pi), 0.044715
    u = x.data * x.data
    u *= c * k
    u += c
    u *= x.data
    t = np.tanh(u)

    def vjp(dy: Tensor) -> Grads:
        s = tanh((x * x * k + 1.0) * x * c) if is_recording() else Tensor(t)
        slope = (x * x * (3 * k) + 1.0) * c
        return (dy * ((s + 1.0) + x * (1.0 - s * s) * slope) * 0.5,)

    return record("gelu_tanh", 0.5 * x.data * (1 + t), (x,), vjp, saved=(x,))
