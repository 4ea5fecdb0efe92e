"""One formula, its gradient computed in four ways: the differences are rounding, or they are a bug."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from didact.scratch.autograd.engine import grad
from didact.scratch.autograd.tensor import Tensor
from didact.scratch.gradients import symbolic
from didact.scratch.gradients.dual import Dual
from didact.scratch.gradients.expression import FUNCTIONS, evaluate
from didact.scratch.gradients.numerical import central_difference

_SYMBOLIC: dict[str, Callable[[Any], Any]] = {f: symbolic.apply(f) for f in FUNCTIONS}


def compare_gradients(text: str, values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """{"numerical": {"x": ∂f/∂x, …}, "symbolic": …, "forward": …, "reverse": …}"""
    keys = list(values)
    point = np.array([float(values[k]) for k in keys])
    symbols = {k: symbolic.variable(k) for k in keys}
    formula = symbolic.lift(evaluate(text, symbols, _SYMBOLIC, symbolic.lift))

    def value(expression: symbolic.Expression, x: Any) -> float:
        return symbolic.evaluate(expression, dict(zip(symbols.values(), x.tolist(), strict=True)))

    value(formula, point)  # where there is no value, the error names the point itself, not a shifted one
    methods = {
        "numerical": central_difference(lambda x: value(formula, x), point).tolist(),
        "symbolic": [value(symbolic.derive(formula, s), point) for s in symbols.values()],
        "forward": [_forward(text, keys, point, i) for i in range(len(keys))],
        "reverse": _reverse(text, keys, point),
    }
    return {method: dict(zip(keys, gradients, strict=True)) for method, gradients in methods.items()}


def _forward(text: str, keys: list[str], point: Any, i: int) -> float:
    duals = {k: Dual(v, float(j == i)) for j, (k, v) in enumerate(zip(keys, point, strict=True))}
    return float(evaluate(text, duals, number=Dual).tangent)


def _reverse(text: str, keys: list[str], point: Any) -> list[float]:
    if not keys:
        return []
    leaves = [Tensor(v, requires_grad=True) for v in point]
    output = evaluate(text, dict(zip(keys, leaves, strict=True)), number=Tensor)
    return [g.item() for g in grad(output, leaves)]
