"""Activations that courses name beside the ReLU, tanh and sigmoid of `autograd/ops.py` (Gaba 1.1.2, Fleuret 4.3)."""

from math import pi, sqrt

import numpy as np

from didact.scratch.autograd.ops import erf, exp, sigmoid
from didact.scratch.autograd.special import erf_values
from didact.scratch.autograd.tensor import Array, Grads, Tensor, is_recording, record_op


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """y = x for x > 0, else α x;  dx = dy or α dy.  Gaba's max(αx, x) is the same for α < 1."""
    steep = np.where(x.data > 0, x.dtype.type(1), x.dtype.type(slope))
    return record_op("leaky_relu", x.data * steep, (x,), lambda dy: (dy * steep,))


def _normal_cdf(x: Array) -> Array:
    """Φ(x) = ½ (1 + erf(x/√2)), in blocks that stay in the cache: erf is some forty sweeps over its argument."""
    flat, y = x.reshape(-1), np.empty(x.size, x.dtype)
    for start in range(0, x.size, 65536):
        block = slice(start, start + 65536)
        y[block] = 0.5 * (1 + erf_values(flat[block] * sqrt(0.5)))
    return y.reshape(x.shape)


def gelu(x: Tensor) -> Tensor:
    """y = x Φ(x), Φ the distribution function of N(0, 1);  dx = dy (Φ(x) + x φ(x)).

    Bounded below by −0.17 (Gaba's table says R).
    """
    below = _normal_cdf(x.data)

    def vjp(dy: Tensor) -> Grads:
        phi = exp(x * x * -0.5) * (1 / sqrt(2 * pi))
        share = (erf(x * sqrt(0.5)) + 1.0) * 0.5 if is_recording() else Tensor(below)
        return (dy * (share + x * phi),)

    return record_op("gelu", x.data * below, (x,), vjp, saved=(x,))


def gelu_tanh(x: Tensor) -> Tensor:
    """y = ½ x (1 + tanh u), u = √(2/π)(x + 0.044715 x³): GELU as GPT-2 computes it, within 5e-4 of it and cheaper.

    Since ½ (1 + tanh u) = σ(2u), write v = 2u and s = σ(v):

        y = x s,    dx = dy (s + x s (1 − s) v′),    v′ = 2√(2/π)(1 + 3 · 0.044715 x²)
    """
    a, b = 2 * sqrt(2 / pi), 2 * sqrt(2 / pi) * 0.044715                          # v = a x + b x³
    # in place from here: new memory costs more than the sums
    s = np.multiply(x.data, x.data, out=np.empty_like(x.data))
    s *= -b
    s -= a
    s *= x.data
    with np.errstate(over="ignore"):                                              # e^(−v) = ∞ is s = 0
        np.exp(s, out=s)
    s += 1
    np.reciprocal(s, out=s)

    def vjp(dy: Tensor) -> Grads:
        gate = sigmoid((x * x * b + a) * x) if is_recording() else Tensor(s)
        return (dy * gate * (1.0 + x * (1.0 - gate) * (x * x * (3 * b) + a)),)

    return record_op("gelu_tanh", x.data * s, (x,), vjp, saved=(x,))
