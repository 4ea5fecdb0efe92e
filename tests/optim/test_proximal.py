"""Proximal steps against closed forms and scikit-learn's coordinate descent."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import ElasticNet, Lasso
from torch import nn

from didact.optim.for_device import build_optimizer
from didact.optim.proximal import elastic_net, soft_threshold, with_proximal


def test_soft_threshold_equals_torch_softshrink():
    x = torch.linspace(-3, 3, 41)
    for t in (0.0, 0.75, 1.5):
        torch.testing.assert_close(soft_threshold(x, t), F.softshrink(x, t))
        torch.testing.assert_close(soft_threshold(x, torch.tensor(t)), F.softshrink(x, t))
    assert (soft_threshold(x, 1.5)[x.abs() <= 1.5] == 0).all()


def make_regression_problem(n=60, d=8):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)) + 0.3 * rng.normal(size=(n, 1))
    true_weights = np.array([2.0, -1.5, 0, 0, 0.7, 0, 0, 0])
    return x, x @ true_weights + 1.3 + 0.3 * rng.normal(size=n)


def fit_elastic_net(x, y, l1, l2, *, bias=True, steps=600, lr=0.3):
    """min |y - Xw - b|² / 2n + l1 |w|_1 + l2/2 |w|²"""
    x, y = torch.tensor(x), torch.tensor(y)
    model = nn.Linear(x.shape[1], 1, bias=bias, dtype=torch.float64)
    optimizer = with_proximal(torch.optim.SGD(model.parameters(), lr=lr), l1=l1, l2=l2)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x)[:, 0] - y).square().mean().div(2).backward()
        optimizer.step()
    return model


def test_orthonormal_lasso_has_its_closed_form():
    x, y = make_regression_problem()
    x = np.linalg.qr(x)[0] * np.sqrt(len(x))  # XᵀX / n = I
    w = fit_elastic_net(x, y, l1=0.4, l2=0.0, bias=False).weight.detach().numpy()[0]
    least_squares = x.T @ y / len(x)
    np.testing.assert_allclose(w, np.sign(least_squares) * np.maximum(np.abs(least_squares) - 0.4, 0), atol=1e-12)
    assert 0 < (w == 0).sum() < len(w)


@pytest.mark.parametrize(("l1", "l2"), [(0.2, 0.0), (0.15, 0.15), (0.05, 0.45)])
def test_elastic_net_equals_scikit_learn(l1, l2):
    x, y = make_regression_problem()
    reference_model = Lasso(l1, tol=1e-12) if l2 == 0 else ElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), tol=1e-12)
    reference_model.fit(x, y)
    model = fit_elastic_net(x, y, l1, l2)
    w = model.weight.detach().numpy()[0]
    np.testing.assert_allclose(w, reference_model.coef_, atol=1e-8)
    np.testing.assert_allclose(model.bias.item(), reference_model.intercept_, atol=1e-8)  # free of the penalty
    np.testing.assert_array_equal(w == 0, reference_model.coef_ == 0)


def test_proximal_threshold_scales_with_the_group_lr_and_skips_biases():
    w, b, frozen = torch.ones(1, 2, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(1, 2)
    optimizer = with_proximal(torch.optim.SGD([w, b, frozen], lr=torch.tensor(0.5)), l1=0.4, l2=2.0)
    w.grad, b.grad = torch.zeros(1, 2), torch.zeros(2)
    optimizer.step()
    assert w.tolist() == [[pytest.approx((1 - 0.5 * 0.4) / (1 + 0.5 * 2))] * 2]
    assert b.tolist() == [1, 1] and frozen.tolist() == [[1, 1]]
    optimizer.param_groups[0]["lr"] = 0.0
    old_weights = w.tolist()
    optimizer.step()
    assert w.tolist() == old_weights


def test_elastic_net_factory_builds_its_base_fused():
    w = torch.ones(1, 2, requires_grad=True)
    optimizer = build_optimizer(partial(elastic_net, base=partial(torch.optim.SGD, lr=0.5), l1=10.0), [w], "cpu")
    assert optimizer.param_groups[0]["fused"]
    w.grad = torch.ones(1, 2)
    optimizer.step()
    assert w.tolist() == [[0, 0]]
