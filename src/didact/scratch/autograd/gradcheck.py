"""Gradient check: a derivative compared with finite differences, input by input (Gaba 2.11, exercise 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from didact.scratch.autograd.engine import grad
from didact.scratch.autograd.tensor import Array, ScratchError, Tensor, no_grad
from didact.scratch.gradients.numerical import central_difference


@dataclass(frozen=True)
class InputCheck:
    """One input: the entry with the largest excess difference, its analytic and its numeric derivative."""

    shape: tuple[int, ...]
    worst: tuple[int, ...]
    analytic: float
    numeric: float
    difference: float
    passed: bool


@dataclass(frozen=True)
class GradcheckReport:
    inputs: tuple[InputCheck, ...]

    @property
    def passed(self) -> bool:
        return all(c.passed for c in self.inputs)

    @property
    def max_difference(self) -> float:
        return max((c.difference for c in self.inputs), default=0.0)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        lines = []
        for i, c in enumerate(self.inputs):
            verdict = "ok  " if c.passed else "FAIL"
            lines.append(
                f"{verdict} input {i} {c.shape}: largest difference {c.difference:.1e} "
                f"at {c.worst}, derivative {c.analytic:.9g}, differences {c.numeric:.9g}"
            )
        return "\n".join(lines)


def gradcheck(
    f: Callable[..., Tensor],
    inputs: Any | Sequence[Any],
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
) -> GradcheckReport:
    """|derivative − central difference| ≤ atol + rtol·|central difference| at every input; tolerances are PyTorch's.

    An output of many values is contracted with one random direction u, so that a single walk checks uᵀ ∂f/∂x. Float64
    only: in float32 the differences keep three digits.
    """
    arrays = [_array(x) for x in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    y = f(*leaves)
    u = np.random.default_rng(seed).normal(size=y.shape) if y.ndim else np.ones(())
    analytic = grad(y, leaves, u)
    checks = []
    for i, x in enumerate(arrays):

        def directional_value(shifted: Array, i: int = i) -> float:
            with no_grad():
                value = f(*[Tensor(shifted if j == i else a) for j, a in enumerate(arrays)])
            return float((value.data * u).sum())

        checks.append(_compare(analytic[i].data, central_difference(directional_value, x, eps), atol, rtol))
    return GradcheckReport(tuple(checks))


def _array(x: Any) -> Array:
    a = np.array(x.data if isinstance(x, Tensor) else x)
    if a.dtype != np.float64:
        raise ScratchError(f"gradcheck: needs float64 inputs, got {a.dtype}; in less, rounding hides the difference")
    return a


def _compare(analytic: Array, numeric: Array, atol: float, rtol: float) -> InputCheck:
    if not numeric.size:
        return InputCheck(numeric.shape, (), 0.0, 0.0, 0.0, True)
    difference = np.abs(analytic - numeric)
    # NaN counts as the worst
    excess = np.where(np.isnan(difference), np.inf, difference - rtol * np.abs(numeric))
    worst_index = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), numeric.shape))
    return InputCheck(
        numeric.shape,
        worst_index,
        float(analytic[worst_index]),
        float(numeric[worst_index]),
        float(difference[worst_index]),
        bool(excess[worst_index] <= atol),
    )
