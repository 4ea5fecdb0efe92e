"""Second derivatives: Hessians, Hessian-vector products, a gradient penalty, against PyTorch."""

import numpy as np
import pytest
import torch

from didact.scratch import Tensor, einsum, grad, tensor

rng = np.random.default_rng(0)
X, W1, W2 = rng.normal(size=(7, 3)), rng.normal(size=(3, 5)), rng.normal(size=(5, 2))


def scratch_network(w1: Tensor, w2: Tensor, x: Tensor | None = None) -> Tensor:
    return ((x if x is not None else Tensor(X)) @ w1).tanh() @ w2


def torch_network(w1: torch.Tensor, w2: torch.Tensor, x: torch.Tensor | None = None) -> torch.Tensor:
    return ((x if x is not None else torch.tensor(X)) @ w1).tanh() @ w2


def test_hessian_vector_product_matches_torch():
    """H v = ∇(∇L · v): two walks, and no Hessian."""
    v = rng.normal(size=W1.shape)
    w1, w2 = tensor(W1, requires_grad=True), tensor(W2)
    (g,) = grad((scratch_network(w1, w2).log_softmax(1) ** 2).sum(), w1, create_graph=True)
    (hv,) = grad((g * v).sum(), w1)
    _, expected = torch.autograd.functional.hvp(
        lambda w: (torch_network(w, torch.tensor(W2)).log_softmax(1) ** 2).sum(), torch.tensor(W1), torch.tensor(v)
    )
    np.testing.assert_allclose(hv.data, expected.numpy(), rtol=1e-9, atol=1e-9)


def test_hessian_is_symmetric_and_matches_torch():
    def f(x: Tensor) -> Tensor:
        return (x[0] * x[1]).exp() + (x**3).sum() / x[2]

    point = np.array([0.3, -0.7, 1.2])
    x = tensor(point, requires_grad=True)
    (g,) = grad(f(x), x, create_graph=True)
    hessian = np.stack([grad(g[i], x, retain_graph=True)[0].data for i in range(3)])
    expected = torch.autograd.functional.hessian(
        lambda t: (t[0] * t[1]).exp() + (t**3).sum() / t[2], torch.tensor(point)
    )
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12)
    np.testing.assert_allclose(hessian, expected.numpy(), rtol=1e-9)


def test_gradient_penalty_gradients_match_torch():
    """L = mean (‖∂f/∂x‖ − 1)², differentiated by the weights (Gaba 8.4)."""
    x, w1, w2 = (tensor(a, requires_grad=True) for a in (X, W1, W2[:, :1]))
    (gx,) = grad(scratch_network(w1, w2, x).sum(), x, create_graph=True)
    (((gx * gx).sum(1).sqrt() - 1) ** 2).mean().backward()
    tx, t1, t2 = (torch.tensor(a, requires_grad=True) for a in (X, W1, W2[:, :1]))
    (hx,) = torch.autograd.grad(torch_network(t1, t2, tx).sum(), tx, create_graph=True)
    ((hx.norm(dim=1) - 1) ** 2).mean().backward()
    for a, b in ((w1, t1), (w2, t2), (x, tx)):
        assert a.grad is not None
        assert b.grad is not None
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_third_derivative_by_hand():
    x = tensor(0.4, requires_grad=True)
    y = x.sin() * x**4
    derivatives = []
    for _ in range(3):
        (y,) = grad(y, x, create_graph=True)
        derivatives.append(y.item())
    s, c, p = np.sin(0.4), np.cos(0.4), 0.4
    first = p**4 * c + 4 * p**3 * s
    second = -(p**4) * s + 8 * p**3 * c + 12 * p**2 * s
    third = -(p**4) * c - 12 * p**3 * s + 36 * p**2 * c + 24 * p * s
    assert derivatives == pytest.approx([first, second, third], rel=1e-12)


def test_a_newton_step_solves_a_quadratic():
    a = np.array([[3.0, 1.0], [1.0, 2.0]])
    b = np.array([1.0, -1.0])
    x = tensor(np.zeros(2), requires_grad=True)
    (g,) = grad(einsum("i,ij,j->", x, a, x) * 0.5 - (x * b).sum(), x, create_graph=True)
    hessian = np.stack([grad(g[i], x, retain_graph=True)[0].data for i in range(2)])
    np.testing.assert_allclose(a @ (x.data - np.linalg.solve(hessian, g.data)), b, atol=1e-12)
