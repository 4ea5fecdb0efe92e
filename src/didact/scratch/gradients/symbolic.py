"""Symbolic differentiation: apply the rules to the expression, and measure how it grows (Groudiev 2.2.3).

(u·v)′ = u′v + uv′ writes u and v twice; so does every rule of a product. Nested n times, what is *written* doubles n
times. What is *distinct* in it does not: with equal parts shared, the derivative is a few times the size of the
function. Sharing is what turns symbolic into automatic differentiation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from didact.scratch.autograd.tensor import ScratchError


class Expression:
    """A number, a variable, or an operation on expressions; one object used twice is stored once."""

    __slots__ = ("args", "name", "value")

    def __init__(self, name: str, args: tuple[Expression, ...] = (), value: float = 0.0):
        self.name, self.args, self.value = name, args, value

    def __add__(self, other: Any) -> Expression:
        return Expression("+", (self, lift(other)))

    def __radd__(self, other: Any) -> Expression:
        return lift(other) + self

    def __sub__(self, other: Any) -> Expression:
        return Expression("−", (self, lift(other)))

    def __rsub__(self, other: Any) -> Expression:
        return lift(other) - self

    def __mul__(self, other: Any) -> Expression:
        return Expression("·", (self, lift(other)))

    def __rmul__(self, other: Any) -> Expression:
        return lift(other) * self

    def __truediv__(self, other: Any) -> Expression:
        return Expression("/", (self, lift(other)))

    def __rtruediv__(self, other: Any) -> Expression:
        return lift(other) / self

    def __pow__(self, other: Any) -> Expression:
        return Expression("^", (self, lift(other)))

    def __rpow__(self, other: Any) -> Expression:
        return lift(other) ** self

    def __neg__(self) -> Expression:
        return lift(0.0) - self

    def __repr__(self) -> str:
        if not self.args:
            return self.name
        if len(self.args) == 1:
            return f"{self.name}({self.args[0]})"
        return f"({self.args[0]} {self.name} {self.args[1]})"


def lift(x: Any) -> Expression:
    return x if isinstance(x, Expression) else Expression(f"{x:g}", value=float(x))


def variable(name: str) -> Expression:
    return Expression(name, value=math.nan)


def apply(name: str) -> Callable[[Any], Expression]:
    return lambda u: Expression(name, (lift(u),))


exp, log, sqrt, sin, cos, tanh, sigmoid, relu, step = map(
    apply, ("exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "relu", "step")
)

# the value of every operation and, below, its partial derivatives
VALUE: dict[str, Callable[..., float]] = {
    "+": lambda u, v: u + v, "−": lambda u, v: u - v, "·": lambda u, v: u * v, "/": lambda u, v: u / v, "^": math.pow,
    "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "sigmoid": lambda u: 0.5 * (1 + math.tanh(u / 2)), "relu": lambda u: max(u, 0.0), "step": lambda u: float(u > 0),
}  # fmt: skip
_RULES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "+": lambda u, v: (1.0, 1.0),
    "−": lambda u, v: (1.0, -1.0),
    "·": lambda u, v: (v, u),
    "/": lambda u, v: (1.0 / v, -1.0 * u / (v * v)),
    "^": lambda u, v: (v * u ** (v - 1.0), u**v * log(u)),
    "exp": lambda u: (exp(u),),
    "log": lambda u: (1.0 / u,),
    "sqrt": lambda u: (0.5 / sqrt(u),),
    "sin": lambda u: (cos(u),),
    "cos": lambda u: (-1.0 * sin(u),),
    "tanh": lambda u: (1.0 - tanh(u) * tanh(u),),
    "sigmoid": lambda u: (sigmoid(u) * (1.0 - sigmoid(u)),),
    "relu": lambda u: (step(u),),
    "step": lambda u: (0.0,),
}


def derive(e: Expression, x: Expression, simplify: bool = True) -> Expression:
    """e′ = Σ_i ∂op/∂u_i · u_i′. `simplify` drops terms that are 0 and factors that are 1."""
    derivatives: dict[int, Expression] = {}
    for part in _distinct_parts(e):  # inner parts first
        if part is x:
            derivatives[id(part)] = lift(1.0)
            continue
        total: Expression | None = None if simplify else lift(0.0)
        inner = [derivatives[id(u)] for u in part.args]
        if not (simplify and all(map(_is_zero, inner))):
            for partial, du in zip(_RULES[part.name](*part.args) if part.args else (), inner, strict=True):
                if simplify and _is_zero(du):
                    continue
                term = _times(lift(partial), du) if simplify else lift(partial) * du
                total = term if total is None else total + term
        derivatives[id(part)] = total if total is not None else lift(0.0)
    return derivatives[id(e)]


def _times(a: Expression, b: Expression) -> Expression:
    return a if b.name == "1" else b if a.name == "1" else a * b


def _is_zero(e: Expression) -> bool:
    return e.name == "0"


def _distinct_parts(e: Expression) -> list[Expression]:
    """Every distinct part once, inner before outer."""
    by_id: dict[int, Expression] = {}
    stack = [(e, False)]
    while stack:
        part, ready = stack.pop()
        if ready:
            by_id.setdefault(id(part), part)
        elif id(part) not in by_id:
            stack += [(part, True), *[(u, False) for u in part.args]]
    return list(by_id.values())


def written_size(e: Expression) -> int:
    """How many symbols the expression takes on paper, where a part used twice is written twice."""
    count: dict[int, int] = {}
    for part in _distinct_parts(e):
        count[id(part)] = 1 + sum(count[id(u)] for u in part.args)
    return count[id(e)]


def shared_size(e: Expression) -> int:
    """How many distinct parts it has."""
    return len(_distinct_parts(e))


def evaluate(e: Expression, values: dict[Expression, float]) -> float:
    """The value of an expression, every part computed once."""
    values_by_part: dict[int, float] = {}
    for part in _distinct_parts(e):
        if part in values:
            values_by_part[id(part)] = values[part]
            continue
        inner = [values_by_part[id(u)] for u in part.args]
        try:
            values_by_part[id(part)] = VALUE[part.name](*inner) if inner else part.value
        except (ArithmeticError, ValueError) as error:
            raise ScratchError(f"symbolic: {part.name} of {', '.join(f'{u:g}' for u in inner)}: {error}") from None
    return values_by_part[id(e)]


class SwellSizes(NamedTuple):
    """Symbols written in f and in f′ (with and without simplification), and distinct parts of both."""

    n: int
    f: int
    derivative: int
    unsimplified: int
    f_shared: int
    derivative_shared: int


def expression_swell(depth: int = 10) -> list[SwellSizes]:
    """Expression swell of the iterated logistic map, l_1 = x, l_{n+1} = 4 l_n (1 − l_n).

    Written out it doubles with each step; shared, it grows by a constant.
    """
    x = variable("x")
    l, rows = x, []
    for n in range(1, depth + 1):
        d, unsimplified = derive(l, x), derive(l, x, simplify=False)
        rows.append(
            SwellSizes(n, written_size(l), written_size(d), written_size(unsimplified), shared_size(l), shared_size(d))
        )
        l = 4.0 * l * (1.0 - l)
    return rows
