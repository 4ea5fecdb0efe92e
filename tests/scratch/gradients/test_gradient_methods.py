"""Four ways to one gradient: each against the others, and what Groudiev 2.2 says of each, measured."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from didact import scratch
from didact.scratch import ScratchError, Tensor, grad, gradcheck, tensor
from didact.scratch.gradients import by_hand, compare_gradients, dual, evaluate, numerical, symbolic

rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(x+y)*z", {"x": -2, "y": 5, "z": -4}),
        ("x/y + cos(x)*sin(y)", {"x": 1, "y": 5}),
        ("sigmoid(w*x + b)^2 - 3", {"w": 0.5, "x": -1.5, "b": 0.25}),
        ("relu(x) * tanh(y) - sqrt(x) / exp(y)", {"x": 0.7, "y": -0.3}),
        ("x**y * log(x)", {"x": 1.5, "y": 2.5}),
        ("x**3 - 2*x**2 + -x", {"x": -1.7}),
        ("2**x", {"x": 3}),
    ],
)
def test_gradient_methods_agree(text, values):
    gradients = compare_gradients(text, values)
    for key in values:
        exact = gradients["reverse"][key]
        assert gradients["symbolic"][key] == pytest.approx(exact, rel=1e-12)
        assert gradients["forward"][key] == pytest.approx(exact, rel=1e-12)
        assert gradients["numerical"][key] == pytest.approx(exact, rel=1e-7, abs=1e-8)


def test_symbolic_refuses_undefined_values():
    with pytest.raises(ScratchError, match="symbolic: log of -1"):
        compare_gradients("log(x)", {"x": -1})
    with pytest.raises(ScratchError, match=r"symbolic: \^ of -2, 0.5"):
        compare_gradients("x**0.5", {"x": -2})


def make_layers(*widths: int) -> by_hand.Layers:
    return [(rng.normal(size=(m, n)), rng.normal(size=m)) for n, m in pairwise(widths)]


ACTIVATIONS = {"tanh": by_hand.TANH, "sigmoid": by_hand.SIGMOID, "relu": by_hand.RELU}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(3, 2), (4, 5, 3), (3, 7, 1, 5, 2)])
def test_delta_recursion_matches_autograd(name, widths):
    """Gaba 2.2.1 with an element-wise output and a squared loss: by hand, by this engine and by PyTorch."""
    layers, x, y = make_layers(*widths), rng.normal(size=(6, widths[0])), rng.normal(size=(6, widths[-1]))
    act = ACTIVATIONS[name]
    zs, hs = by_hand.forward(layers, x, act, last=by_hand.SIGMOID)
    hand_grads = by_hand.backward(layers, zs, hs, by_hand.output_delta(2 * (hs[-1] - y), zs[-1], by_hand.SIGMOID), act)

    scratch_params = [(tensor(W, requires_grad=True), tensor(b, requires_grad=True)) for W, b in layers]
    torch_params = [(torch.tensor(W, requires_grad=True), torch.tensor(b, requires_grad=True)) for W, b in layers]
    for h, params, make_tensor in ((Tensor(x), scratch_params, tensor), (torch.tensor(x), torch_params, torch.tensor)):
        for l, (W, b) in enumerate(params):
            h = h @ W.T + b
            h = h.sigmoid() if l == len(params) - 1 else getattr(h, name)()
        ((h - make_tensor(y)) ** 2).sum().backward()
    for (dW, db), (W, b), (V, c) in zip(hand_grads, scratch_params, torch_params, strict=True):
        np.testing.assert_allclose(dW, W.grad, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(db, b.grad, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(dW, V.grad.numpy(), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(db, c.grad.numpy(), rtol=1e-9, atol=1e-10)


def test_softmax_delta_is_p_minus_y_and_not_the_element_wise_formula():
    """M8: with a softmax output, dL/dh ⊙ σ′(z) drops the other entries of the Jacobian."""
    z, y = rng.normal(size=(5, 4)), np.eye(4)[[0, 3, 1, 1, 2]]
    t = tensor(z, requires_grad=True)
    (-(t.log_softmax(1) * y).sum(1)).mean().backward()
    np.testing.assert_allclose(by_hand.softmax_delta(z, y), t.grad, atol=1e-12)
    p = by_hand.softmax(z)
    element_wise = (-y / p) * (p * (1 - p)) / len(z)
    assert np.abs(element_wise - by_hand.softmax_delta(z, y)).max() > 0.01


def test_manual_mlp_gradients_match_torch():
    x, label, random = by_hand.make_separable_data()
    layers = [(random.randn(m, n) * np.sqrt(2 / n), np.zeros(m)) for n, m in ((20, 64), (64, 2))]
    zs, hs = by_hand.forward(layers, x, by_hand.RELU)
    hand_grads = by_hand.backward(layers, zs, hs, by_hand.softmax_delta(zs[-1], np.eye(2)[label]), by_hand.RELU)
    params = [torch.tensor(p, requires_grad=True) for pair in layers for p in pair]
    h = (torch.tensor(x) @ params[0].T + params[1]).relu() @ params[2].T + params[3]
    torch.nn.functional.cross_entropy(h, torch.tensor(label)).backward()
    for p, g in zip(params, [g for pair in hand_grads for g in pair], strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_difference_error_falls_then_rises_as_the_step_shrinks():
    """Truncation and rounding: least near √ε (forward) and ∛ε (central), ten digits at best, none at h = 1e-15."""
    curve = numerical.error_curve(lambda x: np.sin(x).sum() * np.exp(x).sum(), np.e * (np.sin(1) + np.cos(1)), 1.0)
    forward, central = min(curve, key=lambda e: e.forward), min(curve, key=lambda e: e.central)
    assert 1e-10 < forward.h < 1e-6
    assert 1e-7 < central.h < 1e-3
    assert central.central < 1e-9 < forward.forward < 1e-6
    assert curve[0].forward > 1e3 * forward.forward
    assert curve[-1].forward > 1e3 * forward.forward
    orders = [np.log10(a.central / b.central) / np.log10(a.h / b.h) for a, b in pairwise(curve[2:8])]
    np.testing.assert_allclose(orders, 2, atol=0.05)
    orders = [np.log10(a.forward / b.forward) / np.log10(a.h / b.h) for a, b in pairwise(curve[4:11])]
    np.testing.assert_allclose(orders, 1, atol=0.05)


def test_symbolic_expressions_swell_unless_shared():
    rows = symbolic.expression_swell(12)
    growth = [b.derivative / a.derivative for a, b in pairwise(rows[6:])]
    assert min(growth) > 2
    assert all(r.unsimplified > r.derivative for r in rows[1:])
    steps = {b.derivative_shared - a.derivative_shared for a, b in pairwise(rows[2:])}
    assert steps == {11}, "with equal parts shared every step costs the same"
    assert rows[-1].derivative > 500 * rows[-1].derivative_shared


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.floats(0.05, 0.95), st.booleans(), st.integers(1, 5))
def test_symbolic_derivative_of_the_logistic_map(value, simplify, depth):
    def iterate(l):
        for _ in range(depth):
            l = 4.0 * l * (1.0 - l)
        return l

    x = symbolic.variable("x")
    t = tensor(value, requires_grad=True)
    iterate(t).backward()
    derivative = symbolic.evaluate(symbolic.derive(iterate(x), x, simplify), {x: value})
    assert derivative == pytest.approx(float(t.grad), rel=1e-9, abs=1e-9)


def test_symbolic_expressions_print_and_count():
    x, y = symbolic.variable("x"), symbolic.variable("y")
    assert str(symbolic.derive(x * y + 2.0, x)) == "y"
    assert str(symbolic.derive(symbolic.sin(x) - y / 3, x)) == "cos(x)"
    assert str(symbolic.derive(y, x)) == "0"
    assert str(symbolic.derive(symbolic.step(x), x)) == "0"
    assert (symbolic.written_size(x * x), symbolic.shared_size(x * x)) == (3, 2)


def test_forward_mode_is_a_jacobian_vector_product():
    w, v, x = rng.normal(size=(4, 3)), rng.normal(size=4), rng.uniform(0.5, 2, size=4)

    def f(t):
        return (
            (t @ w).tanh() * (t[:3] ** 2).sum() + (t[1:] / t[0]).sigmoid().exp() - (t.log() * t.sqrt()).sum()
        ).relu()

    _, actual = dual.jvp(f, x, v)
    _, expected = torch.autograd.functional.jvp(
        lambda t: ((t @ torch.tensor(w)).tanh() * (t[:3] ** 2).sum() + (t[1:] / t[0]).sigmoid().exp()
        - (t.log() * t.sqrt()).sum()).relu(),
        torch.tensor(x), torch.tensor(v),
    )  # fmt: skip
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-9, atol=1e-12)
    t = tensor(x, requires_grad=True)
    np.testing.assert_allclose(dual.gradient(lambda t: f(t).sum(), x), grad(f(t).sum(), t)[0].data, rtol=1e-9)


def test_dual_arithmetic():
    e = dual.Dual(2.0, 1.0)
    for f, slope in (
        (lambda a: 3 - a, -1), (lambda a: 1 / a, -0.25), (lambda a: 2**a, 4 * np.log(2)),
        (lambda a: a**a, 4 * (np.log(2) + 1)),
        (lambda a: a**0, 0),
        (lambda a: np.ones((1, 1)) @ (a * np.ones((1, 1))), 1), (lambda a: a.cos() + a.sin(), np.cos(2) - np.sin(2)),
    ):  # fmt: skip
        assert float(np.squeeze(f(e).tangent)) == pytest.approx(slope, abs=1e-12)
    assert repr(e) == "2.0 + 1.0ε"


def test_gradcheck_passes_right_and_names_wrong_gradients():
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    report = gradcheck(lambda p, q: (p @ q).tanh().log_softmax(1), [a, b])
    assert report
    assert report.max_difference < 1e-8
    assert str(report).startswith("ok   input 0 (3, 4): largest difference")

    def wrong_square(x: Tensor) -> Tensor:
        return scratch.record_op("wrong", x.data**2, (x,), lambda dy: (dy * x,))

    failing_report = gradcheck(wrong_square, a)
    assert not failing_report
    assert not failing_report.passed
    assert str(failing_report).startswith("FAIL input 0 (3, 4)")
    assert failing_report.inputs[0].analytic * 2 == pytest.approx(failing_report.inputs[0].numeric, rel=1e-6)
    assert gradcheck(lambda x: x.sum(), np.zeros((0, 3)))
    assert not gradcheck(lambda x: x.sqrt().sum(), np.array([-1.0]))  # NaN is not right


def test_gradcheck_refuses_float32():
    with pytest.raises(ScratchError, match="gradcheck: needs float64 inputs, got float32"):
        gradcheck(lambda x: x.sum(), np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "__import__('os')",
            "expression: no function '__import__'; there are exp, log, sqrt, sin, cos, tanh, sigmoid, relu",
        ),
        ("x.data", "expression: 'x.data' is not allowed, only + - * / **, numbers, names and functions"),
        ("[x]", "expression: '[x]' is not allowed, only + - * / **, numbers, names and functions"),
        ("'a' * x", "expression: \"'a'\" is not allowed, only + - * / **, numbers, names and functions"),
        ("x if x else x", "expression: 'x if x else x' is not allowed, only + - * / **, numbers, names and functions"),
        ("True + x", "expression: 'True' is not allowed, only + - * / **, numbers, names and functions"),
        ("exp(x, x)", "expression: exp takes one argument, in 'exp(x, x)'"),
        ("x +", "expression: cannot read 'x +'"),
        ("", "expression: cannot read ''"),
        ("x\0", "expression: cannot read 'x\\x00'"),
        ("x + w", "expression: no value for 'w' in 'x + w'; give w=…"),
        ("3", "expression: 'x' is given a value, but '3' does not use it"),
        ("x" + "+x" * 600, "expression: at most 1000 characters, got 1201"),
        ("x/0", "expression: float division by zero in 'x/0'"),
        ("x**9**9**9", "expression: math range error in 'x**9**9**9'"),
        ("(x-3)**0.5", "expression: math domain error in '(x-3)**0.5'"),
    ],
)
def test_evaluate_refuses_invalid_expressions(text, line):
    with pytest.raises(ScratchError) as e:
        evaluate(
            text,
            {"x": 2.0},
            {f: symbolic.VALUE[f] for f in ("exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "relu")},
        )
    assert str(e.value) == line


def test_evaluate_survives_deep_nesting():
    for text in ("-" * 900 + "x", "(" * 400 + "x" + ")" * 400):
        try:
            evaluate(text, {"x": 2.0})
        except ScratchError as e:
            assert "\n" not in str(e)
