"""Finite differences: shift each input a little and compare (Groudiev 2.2.2, Lhotte 1.4, Gaba 2.11).

    forward   (f(x + h) − f(x)) / h          error ≈ h/2·|f″| + 2ε|f|/h        least near h = √ε
    central   (f(x + h) − f(x − h)) / 2h     error ≈ h²/6·|f‴| + ε|f|/h        least near h = ∛ε

The first term is the truncated Taylor series, the second rounding (ε = 2.2e-16): one falls where the other rises, so
that no h gives more than about 8 (forward) or 11 (central) digits. And n inputs cost n + 1 or 2n evaluations, where
reverse mode needs one walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def forward_difference(f: Callable[[Array], Any], x: Any, h: float = 1e-8) -> Array:
    """∂f/∂x for a scalar f of an array, one input at a time."""
    f_x = float(f(np.array(x, float)))
    return _each(x, lambda move: (float(f(move(h))) - f_x) / h)


def central_difference(f: Callable[[Array], Any], x: Any, h: float = 6e-6) -> Array:
    """As `forward_difference`, from both sides: the error term of order h cancels."""
    return _each(x, lambda move: (float(f(move(h))) - float(f(move(-h)))) / (2 * h))


def _each(x: Any, slope: Callable[[Callable[[float], Array]], float]) -> Array:
    start = np.array(x, float)
    result = np.zeros_like(start)

    for i in np.ndindex(start.shape):

        def move(h: float, i: tuple[int, ...] = i) -> Array:
            shifted = start.copy()
            shifted[i] += h
            return shifted

        result[i] = slope(move)
    return result


class DifferenceError(NamedTuple):
    h: float
    forward: float
    central: float


def error_curve(
    f: Callable[[Array], Any], exact: Any, x: Any, steps: Iterable[float] | None = None
) -> list[DifferenceError]:
    """The largest error of both differences for every h: falling, then rising, and never zero."""
    hs = np.logspace(0, -15, 31) if steps is None else steps
    return [
        DifferenceError(
            float(h),
            float(np.abs(forward_difference(f, x, h) - exact).max()),
            float(np.abs(central_difference(f, x, h) - exact).max()),
        )
        for h in hs
    ]
