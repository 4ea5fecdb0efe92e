"""Is a derivative right? Compare it with differences, input by input (Gaba 2.11, exercise 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from didact.scratch.engine import grad
from didact.scratch.tensor import Array, ScratchError, Tensor, no_grad
from didact.scratch.ways.numerical import central_difference


@dataclass(frozen=True)
class Checked:
    """One input: the worst place, what the engine says there and what the differences say."""

    shape: tuple[int, ...]
    worst: tuple[int, ...]
    analytic: float
    numeric: float
    difference: float
    passed: bool


@dataclass(frozen=True)
class Report:
    inputs: tuple[Checked, ...]

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
    f: Callable[..., Tensor], inputs: Any | Sequence[Any], eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, seed: int = 0
) -> Report:
    """|derivative − central difference| ≤ atol + rtol·|central difference| at every input; tolerances are PyTorch's.

    An output of many values is contracted with one random direction u, so that a single walk checks uᵀ ∂f/∂x. Float64 only:
    in float32 the differences keep three digits.
    """
    arrays = [_array(x) for x in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    y = f(*leaves)
    u = np.random.default_rng(seed).normal(size=y.shape) if y.ndim else np.ones(())
    analytic = grad(y, leaves, u)
    checked = []
    for i, x in enumerate(arrays):

        def along(moved: Array, i: int = i) -> float:
            with no_grad():
                value = f(*[Tensor(moved if j == i else a) for j, a in enumerate(arrays)])
            return float((value.data * u).sum())

        checked.append(_compare(analytic[i].data, central_difference(along, x, eps), atol, rtol))
    return Report(tuple(checked))


def _array(x: Any) -> Array:
    a = np.array(x.data if isinstance(x, Tensor) else x)
    if a.dtype != np.float64:
        raise ScratchError(f"gradcheck: needs float64 inputs, got {a.dtype}; in less, rounding hides the answer")
    return a


def _compare(analytic: Array, numeric: Array, atol: float, rtol: float) -> Checked:
    if not numeric.size:
        return Checked(numeric.shape, (), 0.0, 0.0, 0.0, True)
    difference = np.abs(analytic - numeric)
    excess = np.where(np.isnan(difference), np.inf, difference - rtol * np.abs(numeric))  # no number is the worst of all
    at = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), numeric.shape))
    return Checked(numeric.shape, at, float(analytic[at]), float(numeric[at]), float(difference[at]), bool(excess[at] <= atol))
