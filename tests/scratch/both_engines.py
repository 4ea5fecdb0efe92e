"""One helper runs an operation, its gradient and its second derivative in both engines, and compares."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from didact.scratch import Tensor, grad, tensor

few = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
TOLERANCE = 1e-9

sizes = st.sampled_from([1, 2, 3, 5, 0])
shapes = st.lists(sizes, max_size=3).map(tuple)
full_shapes = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3).map(tuple)


@st.composite
def broadcastable(draw: Any, n: int = 2, base: Any = shapes) -> tuple[tuple[int, ...], ...]:
    """n shapes that broadcast: each drops leading axes of one shape, and has size 1 in any position."""
    whole = draw(base)
    found = []
    for _ in range(n):
        dropped = draw(st.integers(0, len(whole)))
        found.append(tuple(1 if draw(st.booleans()) else size for size in whole[dropped:]))
    return tuple(found)


@st.composite
def arrays(draw: Any, shape: Any, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Distinct float64 values of a shape; one in two is a view that is not contiguous."""
    size = draw(shape) if hasattr(shape, "example") else shape
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        return np.asarray(rng.uniform(low, high, size))
    big = np.asarray(rng.uniform(low, high, tuple(2 * n for n in size)[::-1])).T
    return big[(..., *[slice(None, None, 2) for _ in size])]


def agree(
    ours: Callable[..., Tensor], theirs: Callable[..., torch.Tensor], *inputs: np.ndarray, second: bool = True, tolerance: float = TOLERANCE
) -> None:
    """Same value, same gradient of every input under a random dy, same gradient of that gradient."""
    mine = [_keep_strides(x) for x in inputs]
    other = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    y, t = ours(*mine), theirs(*other)
    close("value", y.data, t, tolerance)
    rng = np.random.default_rng(0)
    dy = rng.normal(size=y.shape)
    if not t.requires_grad:
        return
    grads = grad(y, mine, dy, create_graph=True)
    targets = torch.autograd.grad(t, other, torch.from_numpy(dy), create_graph=True, allow_unused=True, materialize_grads=True)
    for i, (g, h) in enumerate(zip(grads, targets, strict=True)):
        close(f"gradient of input {i}", g.data, h, tolerance)
    if second:
        _second(mine, other, grads, targets, tolerance)
    y.backward(dy)
    for i, (x, h) in enumerate(zip(mine, targets, strict=True)):
        if x.grad is not None:  # none where y does not depend on x
            close(f".grad of input {i}", x.grad, h, tolerance)


def _second(mine: list[Tensor], other: list[torch.Tensor], grads: Any, targets: Any, tolerance: float) -> None:
    rng = np.random.default_rng(1)
    for i, (g, h) in enumerate(zip(grads, targets, strict=True)):
        v = rng.normal(size=g.shape)
        if not h.requires_grad:
            continue
        expected = torch.autograd.grad(h, other, torch.from_numpy(v), retain_graph=True, allow_unused=True, materialize_grads=True)
        found = grad(g, mine, v, retain_graph=True) if g.requires_grad else [tensor(np.zeros(x.shape)) for x in mine]
        for j, (a, b) in enumerate(zip(found, expected, strict=True)):
            close(f"second derivative {i}, {j}", a.data, b, 10 * tolerance)


def _keep_strides(x: np.ndarray) -> Tensor:
    return Tensor(x, requires_grad=True)


def close(what: str, found: Any, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    want = expected.detach().numpy(force=True)
    assert found.shape == want.shape, f"{what}: shape {found.shape}, PyTorch has {want.shape}"
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance, err_msg=what)
