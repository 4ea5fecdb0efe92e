"""The error function, which NumPy lacks: the exact GELU, x·P(Z ≤ x), is made of it (Fleuret 4.3).

Rational approximations of W. J. Cody (1969), one around 0 and one for the tail; a test holds them to 1e-15 of
PyTorch's.
"""

from __future__ import annotations

import numpy as np

from didact.scratch.autograd.tensor import Array

# erf(x) = x · P(x²)/Q(x²) for |x| ≤ 0.5, highest power first
_CENTER_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_CENTER_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
# erf(x) = 1 − e^(−x²) · P(x)/Q(x) beyond
_TAIL_P = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
_TAIL_Q = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip


def erf_values(x: Array) -> Array:
    a = np.minimum(np.abs(x), x.dtype.type(6))  # erf(6) is 1 to the last bit, and P/Q must not overflow
    square = a * a
    tail = 1.0 - np.exp(-square) * _horner(_TAIL_P, a) / _horner(_TAIL_Q, a)
    center = a * _horner(_CENTER_P, square) / _horner(_CENTER_Q, square)
    value: Array = np.copysign(np.where(a <= 0.5, center, tail), x)
    return value


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    total: Array = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total *= x
        total += c
    return total
