"""Forward mode by dual numbers, which carry their derivative along (Groudiev 2.2 describes the other mode, reverse).

    a + a′ε with ε² = 0:      (a + a′ε)(b + b′ε) = ab + (a′b + ab′)ε,      f(a + a′ε) = f(a) + f′(a) a′ ε

One pass gives the derivative along one direction of the input, ∂f/∂x · v, and stores nothing. A gradient over n inputs
takes n passes, where reverse mode takes one: right for few inputs and many outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Dual:
    """value + tangent·ε, for arrays of any shape."""

    __slots__ = ("tangent", "value")
    __array_ufunc__ = None  # array * dual calls our __rmul__

    def __init__(self, value: Any, tangent: Any = 0.0):
        self.value: Array = np.asarray(value, float)
        self.tangent: Array = np.broadcast_to(np.asarray(tangent, float), self.value.shape)

    def __repr__(self) -> str:
        return f"{self.value} + {self.tangent}ε"

    def __add__(self, other: Any) -> Dual:
        b = lift(other)
        return Dual(self.value + b.value, self.tangent + b.tangent)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.tangent)

    def __sub__(self, other: Any) -> Dual:
        return self + (-lift(other))

    def __rsub__(self, other: Any) -> Dual:
        return lift(other) + (-self)

    def __mul__(self, other: Any) -> Dual:
        b = lift(other)
        return Dual(self.value * b.value, self.tangent * b.value + self.value * b.tangent)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        b = lift(other)
        return Dual(self.value / b.value, (self.tangent - self.value / b.value * b.tangent) / b.value)

    def __rtruediv__(self, other: Any) -> Dual:
        return lift(other) / self

    def __pow__(self, other: Any) -> Dual:
        n = lift(other)
        if n.tangent.any():
            return (self.log() * n).exp()
        return self._chain(self.value**n.value, n.value * self.value ** np.where(n.value == 0, 1.0, n.value - 1))

    def __rpow__(self, other: Any) -> Dual:
        return (lift(np.log(other)) * self).exp()

    def __matmul__(self, other: Any) -> Dual:
        b = lift(other)
        return Dual(self.value @ b.value, self.tangent @ b.value + self.value @ b.tangent)

    def __rmatmul__(self, other: Any) -> Dual:
        return lift(other) @ self

    def __getitem__(self, index: Any) -> Dual:
        return Dual(self.value[index], self.tangent[index])

    def sum(self, axis: Any = None) -> Dual:
        return Dual(self.value.sum(axis), self.tangent.sum(axis))

    def _chain(self, value: Any, slope: Any) -> Dual:
        """f(a + a′ε) = f(a) + f′(a) a′ ε."""
        return Dual(value, slope * self.tangent)

    def exp(self) -> Dual:
        y = np.exp(self.value)
        return self._chain(y, y)

    def log(self) -> Dual:
        return self._chain(np.log(self.value), 1 / self.value)

    def sqrt(self) -> Dual:
        y = np.sqrt(self.value)
        return self._chain(y, 0.5 / y)

    def sin(self) -> Dual:
        return self._chain(np.sin(self.value), np.cos(self.value))

    def cos(self) -> Dual:
        return self._chain(np.cos(self.value), -np.sin(self.value))

    def tanh(self) -> Dual:
        y = np.tanh(self.value)
        return self._chain(y, 1 - y * y)

    def sigmoid(self) -> Dual:
        y = 0.5 * (1 + np.tanh(self.value / 2))
        return self._chain(y, y * (1 - y))

    def relu(self) -> Dual:
        return self._chain(np.maximum(self.value, 0), self.value > 0)


def lift(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


def jvp(f: Callable[[Dual], Dual], x: Any, v: Any) -> tuple[Array, Array]:
    """f(x) and ∂f/∂x · v, in one pass."""
    y = f(Dual(x, v))
    return y.value, y.tangent


def gradient(f: Callable[[Dual], Dual], x: Any) -> Array:
    """∂f/∂x of a scalar f: one pass for each input, with v the unit vectors."""
    x = np.asarray(x, float)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([jvp(f, x, v)[1] for v in units]).reshape(x.shape)
