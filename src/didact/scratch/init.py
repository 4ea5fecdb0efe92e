"""Weight initialization: a variance that neither vanishes nor explodes from layer to layer (Gaba 1.5, Van Schependom
3.1).

A layer's output has n_in · Var(w) times the variance of its input, and its gradient n_out · Var(w) times that of its
output. Xavier averages the two; He takes the first and doubles it, because a ReLU zeroes half of its input. `gain`
multiplies the standard deviation to suit the activation: 1 for none, 5/3 for tanh, √2 for ReLU (He includes it). Shapes
are (out, in, *kernel).
"""

from math import prod, sqrt
from typing import Any

import numpy as np

from didact.scratch.autograd.tensor import Array, ScratchError

Shape = tuple[int, ...]
Rng = np.random.Generator | int | None


def fans(shape: Shape) -> tuple[int, int]:
    """(fan_in, fan_out): how many inputs reach an output, and how many outputs an input reaches."""
    if len(shape) < 2:
        raise ScratchError(f"a weight of shape {shape} has no fan: it needs two axes")
    return shape[1] * prod(shape[2:]), shape[0] * prod(shape[2:])


def uniform(shape: Shape, bound: float, rng: Rng = None, dtype: Any = np.float32) -> Array:
    """U(−bound, bound), of variance bound²/3."""
    return np.random.default_rng(rng).uniform(-bound, bound, shape).astype(dtype)


def normal(shape: Shape, std: float, rng: Rng = None, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(rng).normal(0, std, shape).astype(dtype)


def zeros(shape: Shape, dtype: Any = np.float32) -> Array:
    """For biases. Weights at zero would all get the same gradient and stay equal forever."""
    return np.zeros(shape, dtype)


def xavier_uniform(shape: Shape, rng: Rng = None, gain: float = 1.0, dtype: Any = np.float32) -> Array:
    """U(±√(6/(n_in + n_out))), variance 2/(n_in + n_out).

    The argument needs an activation that is odd and near-linear: tanh, not σ.
    """
    return uniform(shape, gain * sqrt(6 / sum(fans(shape))), rng, dtype)


def xavier_normal(shape: Shape, rng: Rng = None, gain: float = 1.0, dtype: Any = np.float32) -> Array:
    """N(0, 2/(n_in + n_out))."""
    return normal(shape, gain * sqrt(2 / sum(fans(shape))), rng, dtype)


def he_uniform(shape: Shape, rng: Rng = None, dtype: Any = np.float32) -> Array:
    """U(±√(6/n_in)), variance 2/n_in."""
    return uniform(shape, sqrt(6 / fans(shape)[0]), rng, dtype)


def he_normal(shape: Shape, rng: Rng = None, dtype: Any = np.float32) -> Array:
    """N(0, 2/n_in)."""
    return normal(shape, sqrt(2 / fans(shape)[0]), rng, dtype)


def orthogonal(shape: Shape, rng: Rng = None, gain: float = 1.0, dtype: Any = np.float32) -> Array:
    """Orthonormal rows (or columns, if fewer): no direction grows or shrinks, which suits recurrent weights."""
    rows, columns = shape[0], prod(shape[1:])
    q, r = np.linalg.qr(np.random.default_rng(rng).normal(size=(max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))  # QR chooses signs by its own rule: without this the sample would not be uniform
    return (gain * (q if rows >= columns else q.T)).reshape(shape).astype(dtype)
