"""The numbers that the courses print for their worked examples: computed, and corrected where a course is wrong."""

import numpy as np
import pytest

from didact.scratch import Tensor, grad, tensor
from didact.scratch.autograd.graph import graph_of
from didact.scratch.gradients import by_hand, compare_gradients


def make_scalar(value: float) -> Tensor:
    return tensor(value, requires_grad=True)


def get_grad(x: Tensor) -> float:
    assert x.grad is not None
    return float(x.grad)


def test_groudiev_graph():
    """CE03: f = (x + y)z at (−2, 5, −4): q = 3, ∂f/∂z = 3, ∂f/∂q = ∂f/∂x = ∂f/∂y = −4."""
    x, y, z = make_scalar(-2.0), make_scalar(5.0), make_scalar(-4.0)
    q = x + y
    f = q * z
    dq, dz, dx, dy = (g.item() for g in grad(f, [q, z, x, y]))
    assert (q.item(), f.item()) == (3, -12)
    assert (dz, dq, dx, dy) == (3, -4, -4, -4)
    assert graph_of("(x + y) * z", {"x": -2, "y": 5, "z": -4}).item() == -12


def test_groudiev_sigmoid_fused_and_composed():
    """CE06: σ(w0x0 + w1x1 + w2) as one node with slope σ(1 − σ) and as five operations: one gradient.

    The numbers of the figure are not in the text; these are the ones it usually shows.
    """
    point = {"w0": 2, "x0": -1, "w1": -3, "x1": -2, "w2": -3}
    composed_grads = compare_gradients("1 / (1 + exp(-(w0*x0 + w1*x1 + w2)))", point)["reverse"]
    fused_grads = compare_gradients("sigmoid(w0*x0 + w1*x1 + w2)", point)["reverse"]
    s = 1 / (1 + np.exp(-1))
    expected_factors = {"w0": -1, "x0": 2, "w1": -2, "x1": -3, "w2": 1}
    for key, factor in expected_factors.items():
        assert composed_grads[key] == pytest.approx(factor * s * (1 - s), rel=1e-12)
        assert fused_grads[key] == pytest.approx(factor * s * (1 - s), rel=1e-12)
    assert [round(fused_grads[k], 2) for k in point] == [-0.20, 0.39, -0.39, -0.59, 0.20]


def test_gaba_autograd_example_prints_other_numbers_than_its_program():
    """C2.6, C2.7, M9: printed dL/dx = (−0.0689, 0.0689), dL/dw = (−0.1378, 0.2067). The program gives −0.2875 times w,
    and times x."""
    x, w = tensor([2.0, 3.0], requires_grad=True), tensor([1.0, -1.0], requires_grad=True)
    ((x @ w).sigmoid() - 1.0).square().backward()
    s = 1 / (1 + np.exp(1))
    dz = 2 * (s - 1) * s * (1 - s)
    assert dz == pytest.approx(-0.287470, abs=1e-6)
    np.testing.assert_allclose(x.grad, dz * w.data, rtol=1e-12)
    np.testing.assert_allclose(w.grad, dz * x.data, rtol=1e-12)
    np.testing.assert_allclose(x.grad, [-0.2875, 0.2875], atol=5e-5)
    np.testing.assert_allclose(w.grad, [-0.5749, -0.8624], atol=5e-5)
    assert np.sign(w.grad).tolist() == [-1, -1], (
        "x = (2, 3) is positive: both entries have one sign, the printed ones have two"
    )


def test_lhotte_derivative_and_gradient():
    """CL03: d(x²)/dx at 1 is 2.  CL04: the gradient of x1² + 3x2 at (1, 2) is (2, 3)."""
    x = make_scalar(1.0)
    (x**2).backward()
    assert get_grad(x) == 2
    v = tensor([1.0, 2.0], requires_grad=True)
    (v[0] ** 2 + 3 * v[1]).backward()
    assert v.grad is not None
    assert v.grad.tolist() == [2, 3]


def test_lhotte_graph_of_several_inputs():
    """CL07: z = x/y + cos x · sin y at (1, 5): 1/y − sin x sin y and −x/y² + cos x cos y."""
    x, y = make_scalar(1.0), make_scalar(5.0)
    (x / y + x.cos() * y.sin()).backward()
    assert get_grad(x) == pytest.approx(1 / 5 - np.sin(1) * np.sin(5), rel=1e-12)
    assert get_grad(y) == pytest.approx(-1 / 25 + np.cos(1) * np.cos(5), rel=1e-12)
    assert (round(get_grad(x), 6), round(get_grad(y), 6)) == (1.006907, 0.113263)


@pytest.mark.parametrize(("value", "num_products", "expected"), [(1.0, 1, 2.0), (-1.0, 2, 3.0)])
def test_lhotte_only_the_branch_that_ran_is_recorded(value, num_products, expected):
    """CL08: x·x if x > 0 else x·x·x: one product with two incoming edges at 1, two at −1."""
    x = make_scalar(value)
    y = x * x if x > 0 else x * x * x
    num_nodes, t = 0, y
    while t.node:
        assert t.node.name == "mul"
        assert len(t.node.inputs) == 2
        num_nodes, t = num_nodes + 1, t.node.inputs[0]
    assert num_nodes == num_products
    y.backward()
    assert get_grad(x) == expected


def test_lhotte_one_step_of_gradient_descent():
    """CL10, L014: MSE of w·x on x = (.78, .44, .80), y = 1, w = 0.5, lr 0.1 ends at 0.5866 (means over 3, not the
    broadcast 3×3)."""
    w = make_scalar(0.5)
    ((w * tensor([0.78, 0.44, 0.80]) - 1.0) ** 2).mean().backward()
    assert 0.5 - 0.1 * get_grad(w) == pytest.approx(0.5866, abs=5e-5)


def test_gaba_manual_mlp_prints_other_numbers_than_its_program():
    """C2.18–C2.22: printed loss 0.7234, 0.2156, 0.1052, 0.0614, 0.0402 (accuracy 0.493 … 0.988) with seed 42; the
    program gives these."""
    epochs = [e for e in by_hand.manual_mlp(epochs=81) if e.epoch % 20 == 0]
    assert [round(e.loss, 4) for e in epochs] == [1.0696, 0.3643, 0.2769, 0.2310, 0.1998]
    assert [e.accuracy for e in epochs] == [0.482, 0.855, 0.898, 0.919, 0.931]
