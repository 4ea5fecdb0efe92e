"""Our optimizers against their papers: numbers worked out by hand, and the recursion in NumPy."""

from functools import partial

import numpy as np
import pytest
import torch

from didact.errors import UsageError
from didact.optim.lamb import LAMB
from didact.optim.lars import LARS
from didact.optim.lion import Lion
from didact.optim.sam import SAM


def make_weight(*rows):
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


def apply_gradients(optimizer, w, gradients):
    """The weights after each of the given gradients."""
    path = []
    for g in gradients:
        w.grad = torch.as_tensor(g, dtype=w.dtype).reshape(w.shape)
        optimizer.step()
        path.append(w.detach().numpy().copy())
    return path


def test_lion_by_hand():
    w = make_weight(1.0, -2.0)
    path = apply_gradients(Lion([w], lr=0.1, betas=(0.9, 0.99), weight_decay=0.1), w, [[0.5, -1.0], [-0.01, 0.02]])
    # 1: u = sign(0.1 g) = (1, -1);  1 - 0.1 (1 + 0.1) = 0.89,  -2 - 0.1 (-1 - 0.2) = -1.88;  m = (0.005, -0.01)
    np.testing.assert_allclose(path[0], [0.89, -1.88])
    # 2: 0.9 m + 0.1 g = (0.0045 - 0.001, -0.009 + 0.002): signs (1, -1), those of the gradient are (-1, 1)
    #    0.89 - 0.1 (1 + 0.089) = 0.7811,  -1.88 - 0.1 (-1 - 0.188) = -1.7612
    np.testing.assert_allclose(path[1], [0.7811, -1.7612])


def test_lion_equals_its_recursion():
    rng = np.random.default_rng(0)
    gradients, start_weights = rng.normal(size=(6, 3, 5)), rng.normal(size=(3, 5))
    w = torch.tensor(start_weights, requires_grad=True)
    path = apply_gradients(Lion([w], lr=0.03, betas=(0.8, 0.95), weight_decay=0.2), w, gradients)
    theta, m = start_weights, 0.0
    for g, lion_weights in zip(gradients, path, strict=True):
        theta = theta - 0.03 * (np.sign(0.8 * m + 0.2 * g) + 0.2 * theta)
        m = 0.95 * m + 0.05 * g
        np.testing.assert_allclose(lion_weights, theta, rtol=1e-12)


def test_lars_by_hand():
    w = make_weight([3.0, 4.0])
    optimizer = LARS([w], lr=2.0, momentum=0.5, weight_decay=0.2, trust=0.01)
    path = apply_gradients(optimizer, w, [[0.6, 0.8], [0.6, 0.8]])
    # 1: |w| = 5, |g| = 1: q = 0.01 * 5 / (1 + 0.2 * 5) = 0.025;  g + 0.2 w = (1.2, 1.6);  v = 2 q (…) = (0.06, 0.08)
    np.testing.assert_allclose(path[0], [[2.94, 3.92]])
    # 2: |w| = 4.9: q = 0.049 / 1.98;  g + 0.2 w = (1.188, 1.584);  2 q (…) = (0.0588, 0.0784)
    #    v = 0.5 (0.06, 0.08) + (0.0588, 0.0784) = (0.0888, 0.1184)
    np.testing.assert_allclose(path[1], [[2.8512, 3.8016]])


def test_lars_updates_biases_like_sgd():
    lars_weights, sgd_weights = make_weight(1.0, 0.0), make_weight(1.0, 0.0)
    apply_gradients(LARS([lars_weights], lr=0.2, momentum=0.5, weight_decay=0.2), lars_weights, [[0.5, 1.0]] * 4)
    apply_gradients(
        torch.optim.SGD([sgd_weights], lr=0.2, momentum=0.5, weight_decay=0.2), sgd_weights, [[0.5, 1.0]] * 4
    )
    torch.testing.assert_close(lars_weights, sgd_weights)  # with a constant rate it is the same inside or outside v


@pytest.mark.parametrize("make", [LARS, LAMB])
def test_lars_and_lamb_move_zero_weights_and_stay_finite(make):
    w = make_weight([0.0, 0.0])
    path = apply_gradients(make([w], lr=0.1), w, [[0.0, 0.0], [1.0, -1.0]])
    np.testing.assert_array_equal(path[0], 0)
    assert np.isfinite(path[1]).all() and (np.sign(path[1]) == [-1, 1]).all()


def test_lamb_by_hand():
    w = make_weight([3.0, 4.0])
    optimizer = LAMB([w], lr=0.1, betas=(0.5, 0.75), eps=0.0, weight_decay=0.1)
    path = apply_gradients(optimizer, w, [[2.0, -2.0], [0.0, 0.0]])
    # 1: m̂ = g, v̂ = g²: r = (1, -1) + 0.1 (3, 4) = (1.3, -0.6), |r| = √2.05, |w| = 5: step 0.5 r / √2.05
    first = np.array([[3 - 0.65 / np.sqrt(2.05), 4 + 0.3 / np.sqrt(2.05)]])
    np.testing.assert_allclose(path[0], first)
    # 2: m = 0.5 (1, -1), 1 - 0.5² = 3/4: m̂ = (2/3)(1, -1);  v = 0.75 (1, 1), 1 - 0.75² = 7/16: v̂ = 12/7
    r = 2 / 3 / np.sqrt(12 / 7) * np.array([[1, -1]]) + 0.1 * first
    np.testing.assert_allclose(path[1], first - 0.1 * np.linalg.norm(first) / np.linalg.norm(r) * r)


def test_lamb_equals_adamw_for_biases_and_scales_steps_by_layer():
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(5, 4))
    lamb_weights, adamw_weights = make_weight(1.0, -2.0, 3.0, 0.5), make_weight(1.0, -2.0, 3.0, 0.5)
    keywords = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.0}
    apply_gradients(LAMB([lamb_weights], **keywords), lamb_weights, gradients)
    apply_gradients(torch.optim.AdamW([adamw_weights], **keywords), adamw_weights, gradients)
    torch.testing.assert_close(lamb_weights, adamw_weights, rtol=1e-7, atol=1e-7)  # our step counter is float32
    w = make_weight([1.0, -2.0], [3.0, 0.5])
    optimizer = LAMB([w], lr=0.01, weight_decay=0.3)
    for g in gradients:
        weight_norm, old_weights = w.norm().item(), w.detach().clone()
        apply_gradients(optimizer, w, [g])
        assert (w - old_weights).norm().item() == pytest.approx(0.01 * weight_norm, rel=1e-6)


def test_lamb_halves_the_step_for_a_gradient_of_eps():
    """r = g / (|g| + ε) = 1/2 at g = ε = 1e-6, the published default; a bias moves by η r."""
    w = make_weight(1.0)
    np.testing.assert_allclose(apply_gradients(LAMB([w], lr=0.1), w, [[1e-6]])[0], [0.95], rtol=1e-6)


def quadratic_loss(w):
    """½ (w1² + 4 w2²), gradient (w1, 4 w2)."""
    return (torch.tensor([1.0, 4.0], dtype=w.dtype) * w**2).sum() / 2


def make_closure(optimizer, w):
    def closure():
        optimizer.zero_grad()
        loss = quadratic_loss(w)
        loss.backward()
        return loss

    return closure


def test_sam_by_hand():
    w = make_weight(3.0, 1.0)
    optimizer = SAM([w], base=partial(torch.optim.SGD, lr=0.1, weight_decay=0.1), rho=0.5)
    closure = make_closure(optimizer, w)
    closure()
    loss = optimizer.step(closure)
    # g = (3, 4), |g| = 5: e = (0.3, 0.4);  at (3.3, 1.4) the loss is (10.89 + 7.84)/2, the gradient (3.3, 5.6)
    # decay acts at w: w - 0.1 ((3.3, 5.6) + 0.1 (3, 1)) = (2.64, 0.43)
    assert loss.item() == pytest.approx(9.365)
    np.testing.assert_allclose(w.detach(), [2.64, 0.43], rtol=1e-9)
    closure()
    optimizer.step(closure)
    theta, a = np.array([2.64, 0.43]), np.array([1.0, 4.0])
    perturbed_theta = theta + 0.5 * a * theta / np.linalg.norm(a * theta)
    np.testing.assert_allclose(w.detach(), theta - 0.1 * (a * perturbed_theta + 0.1 * theta), rtol=1e-9)


@pytest.mark.parametrize("base", [partial(torch.optim.SGD, lr=0.05, momentum=0.9), partial(torch.optim.AdamW, lr=0.05)])
def test_sam_with_zero_rho_equals_its_base(base):
    sam_weights, base_weights = make_weight(3.0, 1.0), make_weight(3.0, 1.0)
    sam, base_optimizer = SAM([sam_weights], base=base, rho=0.0), base([base_weights])
    for _ in range(5):
        make_closure(sam, sam_weights)()
        sam.step(make_closure(sam, sam_weights))
        make_closure(base_optimizer, base_weights)()
        base_optimizer.step()
    assert torch.equal(sam_weights, base_weights)


def test_sam_norms_the_gradient_over_all_parameters():
    a, b = make_weight(3.0), make_weight(1.0)
    optimizer = SAM([{"params": [a]}, {"params": [b], "lr": 0.2}], base=partial(torch.optim.SGD, lr=0.1), rho=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (a**2).sum() / 2 + 2 * (b**2).sum()
        loss.backward()
        return loss

    closure()
    optimizer.step(closure)  # the numbers of test_sam_by_hand without decay; b at twice the rate
    assert (a.item(), b.item()) == (pytest.approx(3 - 0.33), pytest.approx(1 - 1.12))


def test_sam_needs_a_closure_and_leaves_the_weights_when_it_fails():
    w = make_weight(3.0, 1.0)
    optimizer = SAM([w], base=partial(torch.optim.SGD, lr=0.1))
    make_closure(optimizer, w)()
    with pytest.raises(UsageError, match="closure"):
        optimizer.step()

    def failing_closure():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step(failing_closure)
    assert w.tolist() == [3.0, 1.0]


@pytest.mark.parametrize("make", [Lion, LARS, LAMB])
def test_learning_rate_may_be_a_tensor(make):
    gradients = np.random.default_rng(2).normal(size=(3, 2, 2))
    a, b = make_weight([1.0, 2.0], [3.0, 4.0]), make_weight([1.0, 2.0], [3.0, 4.0])
    apply_gradients(make([a], lr=0.25), a, gradients)
    apply_gradients(make([b], lr=torch.tensor(0.25)), b, gradients)
    assert torch.equal(a, b)


@pytest.mark.parametrize("make", [Lion, LARS, LAMB])
def test_weights_without_gradient_are_not_updated(make):
    a, b = make_weight([1.0, 2.0]), make_weight([3.0, 4.0])
    optimizer = make([{"params": [a]}, {"params": [b]}], weight_decay=0.1)
    apply_gradients(optimizer, a, [[1.0, 1.0]])
    assert a.tolist() != [[1.0, 2.0]] and b.tolist() == [[3.0, 4.0]] and b not in optimizer.state
