"""One helper runs an operation, its gradient and its second derivative in both engines, and compares."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from didact.scratch import Tensor, grad, tensor

few_examples = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
TOLERANCE = 1e-9

axis_sizes = st.sampled_from([1, 2, 3, 5, 0])
shapes = st.lists(axis_sizes, max_size=3).map(tuple)
full_shapes = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3).map(tuple)


@st.composite
def broadcastable_shapes(draw: Any, n: int = 2, base: Any = shapes) -> tuple[tuple[int, ...], ...]:
    """n shapes that broadcast: each drops leading axes of one shape, and has size 1 in any position."""
    full_shape = draw(base)
    drawn_shapes = []
    for _ in range(n):
        dropped = draw(st.integers(0, len(full_shape)))
        drawn_shapes.append(tuple(1 if draw(st.booleans()) else size for size in full_shape[dropped:]))
    return tuple(drawn_shapes)


@st.composite
def arrays(draw: Any, shape: Any, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Distinct float64 values of a shape; one in two is a view that is not contiguous."""
    size = draw(shape) if hasattr(shape, "example") else shape
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        return np.asarray(rng.uniform(low, high, size))
    larger_array = np.asarray(rng.uniform(low, high, tuple(2 * n for n in size)[::-1])).T
    return larger_array[(..., *[slice(None, None, 2) for _ in size])]


def assert_matches_torch(
    scratch_function: Callable[..., Tensor],
    torch_function: Callable[..., torch.Tensor],
    *inputs: np.ndarray,
    check_second: bool = True,
    tolerance: float = TOLERANCE,
) -> None:
    """Same value, same gradient of every input under a random dy, same gradient of that gradient."""
    scratch_inputs = [_make_leaf(x) for x in inputs]
    torch_inputs = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    y, t = scratch_function(*scratch_inputs), torch_function(*torch_inputs)
    assert_close("value", y.data, t, tolerance)
    rng = np.random.default_rng(0)
    dy = rng.normal(size=y.shape)
    if not t.requires_grad:
        return
    scratch_grads = grad(y, scratch_inputs, dy, create_graph=True)
    torch_grads = torch.autograd.grad(
        t, torch_inputs, torch.from_numpy(dy), create_graph=True, allow_unused=True, materialize_grads=True
    )
    for i, (g, h) in enumerate(zip(scratch_grads, torch_grads, strict=True)):
        assert_close(f"gradient of input {i}", g.data, h, tolerance)
    if check_second:
        _assert_second_derivatives_match(scratch_inputs, torch_inputs, scratch_grads, torch_grads, tolerance)
    y.backward(dy)
    for i, (x, h) in enumerate(zip(scratch_inputs, torch_grads, strict=True)):
        if x.grad is not None:  # none where y does not depend on x
            assert_close(f".grad of input {i}", x.grad, h, tolerance)


def _assert_second_derivatives_match(
    scratch_inputs: list[Tensor],
    torch_inputs: list[torch.Tensor],
    scratch_grads: Any,
    torch_grads: Any,
    tolerance: float,
) -> None:
    rng = np.random.default_rng(1)
    for i, (g, h) in enumerate(zip(scratch_grads, torch_grads, strict=True)):
        v = rng.normal(size=g.shape)
        if not h.requires_grad:
            continue
        expected = torch.autograd.grad(
            h, torch_inputs, torch.from_numpy(v), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        actual = (
            grad(g, scratch_inputs, v, retain_graph=True)
            if g.requires_grad
            else [tensor(np.zeros(x.shape)) for x in scratch_inputs]
        )
        for j, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_close(f"second derivative {i}, {j}", a.data, b, 10 * tolerance)


def _make_leaf(x: np.ndarray) -> Tensor:
    return Tensor(x, requires_grad=True)


def assert_close(label: str, actual: Any, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    expected_array = expected.detach().numpy(force=True)
    assert actual.shape == expected_array.shape, f"{label}: shape {actual.shape}, PyTorch has {expected_array.shape}"
    np.testing.assert_allclose(actual, expected_array, rtol=tolerance, atol=tolerance, err_msg=label)
