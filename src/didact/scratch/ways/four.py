"""One formula, its gradient in four ways: the differences between them are rounding, or they are a bug."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from didact.scratch.engine import grad
from didact.scratch.tensor import Tensor
from didact.scratch.ways import symbolic
from didact.scratch.ways.dual import Dual
from didact.scratch.ways.expression import FUNCTIONS, evaluate
from didact.scratch.ways.numerical import central_difference

PLAIN: dict[str, Callable[[float], float]] = {f: symbolic.VALUE[f] for f in FUNCTIONS}
SYMBOLIC: dict[str, Callable[[object], object]] = {f: symbolic.apply(f) for f in FUNCTIONS}


def four_ways(text: str, values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """{"numerical": {"x": ∂f/∂x, …}, "symbolic": …, "forward": …, "reverse": …}"""
    keys = list(values)
    point = np.array([float(values[k]) for k in keys])

    def plain(x: np.ndarray) -> float:
        return float(evaluate(text, dict(zip(keys, x.tolist(), strict=True)), PLAIN))

    symbols = {k: symbolic.variable(k) for k in keys}
    formula = symbolic.lift(evaluate(text, symbols, SYMBOLIC, symbolic.lift))
    at = {symbols[k]: float(values[k]) for k in keys}
    leaves = [Tensor(np.asarray(v), requires_grad=True) for v in point]
    output = evaluate(text, dict(zip(keys, leaves, strict=True)), number=lambda c: Tensor(np.asarray(c)))

    ways = {
        "numerical": central_difference(plain, point),
        "symbolic": [symbolic.evaluate(symbolic.derive(formula, symbols[k]), at) for k in keys],
        "forward": [_forward(text, keys, point, i) for i in range(len(keys))],
        "reverse": [g.item() for g in grad(output, leaves)] if keys else [],
    }
    return {way: {k: float(g) for k, g in zip(keys, found, strict=True)} for way, found in ways.items()}


def _forward(text: str, keys: list[str], point: np.ndarray, i: int) -> float:
    duals = {k: Dual(v, 1.0 if j == i else 0.0) for j, (k, v) in enumerate(zip(keys, point, strict=True))}
    y = evaluate(text, duals, number=Dual)
    return float(y.tangent) if isinstance(y, Dual) else math.nan
