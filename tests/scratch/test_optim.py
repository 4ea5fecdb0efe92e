"""Optimizers step by step against torch.optim, schedules against its schedulers, gradient clipping."""

from functools import partial

import numpy as np
import pytest
import torch

from didact.scratch import ScratchError, no_grad, optim, schedule, tensor

T = torch.optim
OPTIMIZER_PAIRS = {
    "gd": (optim.GD, T.SGD),
    "sgd": (optim.SGD, T.SGD),
    "decay": (partial(optim.SGD, weight_decay=0.3), partial(T.SGD, weight_decay=0.3)),
    "momentum": (partial(optim.SGD, momentum=0.9), partial(T.SGD, momentum=0.9)),
    "nesterov": (
        partial(optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
        partial(T.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "adagrad": (optim.AdaGrad, T.Adagrad),
    "adagrad decay": (
        partial(optim.AdaGrad, eps=1e-3, weight_decay=0.1),
        partial(T.Adagrad, eps=1e-3, weight_decay=0.1),
    ),
    "rmsprop": (optim.RMSProp, T.RMSprop),
    "rmsprop 0.9": (
        partial(optim.RMSProp, alpha=0.9, weight_decay=0.1),
        partial(T.RMSprop, alpha=0.9, weight_decay=0.1),
    ),
    "adam": (optim.Adam, T.Adam),
    "adam decay": (
        partial(optim.Adam, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
        partial(T.Adam, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ),
    "amsgrad": (optim.AMSGrad, partial(T.Adam, amsgrad=True)),
    "adamw": (optim.AdamW, T.AdamW),
    "adamw 0.5": (partial(optim.AdamW, weight_decay=0.5), partial(T.AdamW, weight_decay=0.5)),
}


@pytest.mark.parametrize("lr", [None, 0.05])
@pytest.mark.parametrize("name", OPTIMIZER_PAIRS)
def test_optimizers_match_torch_for_ten_steps(name, lr):
    """Gradients of very different sizes; one parameter has none in every third step, as in an unused branch."""
    rng = np.random.default_rng(0)
    initial_values = [rng.normal(size=shape) for shape in ((3, 5), (4,), ())]
    scratch_params, torch_params = (
        [tensor(s, requires_grad=True) for s in initial_values],
        [torch.tensor(s, requires_grad=True) for s in initial_values],
    )
    options = {} if lr is None else {"lr": lr}
    scratch_optimizer, torch_optimizer = (
        make(params, **options)
        for make, params in zip(OPTIMIZER_PAIRS[name], (scratch_params, torch_params), strict=True)
    )
    for t in range(10):
        for i, (a, b) in enumerate(zip(scratch_params, torch_params, strict=True)):
            g = rng.normal(size=a.shape) * 10.0 ** rng.integers(-6, 2, a.shape)
            a.grad, b.grad = (None, None) if i == 1 and t % 3 == 0 else (np.array(g), torch.tensor(g))
        scratch_optimizer.step(), torch_optimizer.step()
        for a, b in zip(scratch_params, torch_params, strict=True):
            np.testing.assert_allclose(a.data, b.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=f"step {t}")


def test_adam_epsilon_outside_the_root_moves_small_gradients():
    """Gaba 2.4.3 with ε inside: a gradient of 1e-6 would take a first step of 0.01 η; it is 0.99 η."""
    p = tensor(np.zeros(1), requires_grad=True)
    p.grad = np.array([1e-6])
    optim.Adam([p], lr=1.0).step()
    assert p.data[0] == pytest.approx(-0.99, abs=0.001)


def test_sgd_weight_decay_by_hand():
    """weight_decay λ is (λ/2)‖w‖²: w = 2, lr 0.1, λ = 0.3 gives 1.94."""
    p = tensor(np.array([2.0]), requires_grad=True)
    p.grad = np.zeros(1)
    optim.SGD([p], lr=0.1, weight_decay=0.3).step()
    assert p.data[0] == pytest.approx(1.94)


def test_optimizer_step_counts_as_an_in_place_change():
    p = tensor(np.ones(3), requires_grad=True)
    loss = (p * p).sum()
    p.grad = np.ones(3)
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(ScratchError, match="changed in place"):
        loss.backward()


def test_optimizers_keep_float32():
    for make, _ in OPTIMIZER_PAIRS.values():
        p = tensor(np.ones(3, np.float32), requires_grad=True)
        opt = make([p])
        for _ in range(2):
            p.grad = np.full(3, 0.5, np.float32)
            opt.step()
        assert p.dtype == np.float32
        assert all(a.dtype == np.float32 for s in opt.states for a in s.values())
        opt.zero_grad()
        assert p.grad is None


def test_optimizers_refuse_wrong_arguments():
    with pytest.raises(ScratchError, match="Adam: there are no parameters"):
        optim.Adam([])
    with pytest.raises(ScratchError, match="nesterov needs a momentum"):
        optim.SGD([tensor([1.0], requires_grad=True)], nesterov=True)


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clip_norm_matches_torch(limit):
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=s) for s in ((3, 2), (4,))]
    scratch_params, torch_params = (
        [tensor(g, requires_grad=True) for g in grads],
        [torch.tensor(g, requires_grad=True) for g in grads],
    )
    for a, b, g in zip(scratch_params, torch_params, grads, strict=True):
        a.grad, b.grad = g.copy(), torch.tensor(g)
    assert optim.clip_norm(scratch_params, limit) == pytest.approx(
        float(torch.nn.utils.clip_grad_norm_(torch_params, limit))
    )
    for a, b in zip(scratch_params, torch_params, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-12)


def run_torch_scheduler(make: object, steps: int, option: str = "lr") -> list[float]:
    """The learning rates that a scheduler of PyTorch sets, step by step."""
    opt = T.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
    scheduler, values = make(opt), []  # type: ignore[operator]
    for _ in range(steps):
        values.append(opt.param_groups[0][option])
        opt.step(), scheduler.step()
    return values


S = T.lr_scheduler
SCHEDULES = {
    "step": (partial(schedule.step_decay, lr=0.1, every=7, gamma=0.3), partial(S.StepLR, step_size=7, gamma=0.3)),
    "cosine": (
        partial(schedule.cosine, lr=0.1, total=20, floor=1e-3),
        partial(S.CosineAnnealingLR, T_max=20, eta_min=1e-3),
    ),
    "one cycle": (partial(schedule.one_cycle, lr=0.4, total=20), partial(S.OneCycleLR, max_lr=0.4, total_steps=20)),
    "one cycle, early": (
        partial(schedule.one_cycle, lr=0.4, total=20, rise=0.11, start=10, end=7),
        partial(S.OneCycleLR, max_lr=0.4, total_steps=20, pct_start=0.11, div_factor=10, final_div_factor=7),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_match_torch(name):
    scratch_schedule, torch_scheduler = SCHEDULES[name]
    np.testing.assert_allclose(
        [scratch_schedule(t) for t in range(20)], run_torch_scheduler(torch_scheduler, 20), rtol=1e-9
    )


def test_one_cycle_momentum_matches_torch():
    expected = run_torch_scheduler(partial(S.OneCycleLR, max_lr=0.4, total_steps=20), 20, "momentum")
    np.testing.assert_allclose([schedule.one_cycle_momentum(t, total=20) for t in range(20)], expected, rtol=1e-9)


def test_warmup_cosine_is_linear_then_cosine():
    rates = [schedule.warmup_cosine(t, lr=0.1, warmup=5, total=25) for t in range(25)]
    np.testing.assert_allclose(rates[:6], np.linspace(0, 0.1, 6))
    np.testing.assert_allclose(rates[5:], [schedule.cosine(t, lr=0.1, total=20) for t in range(20)])


def test_sgd_momentum_accumulates_gradients():
    """v = μv + g tends to g/(1 − μ): an accumulation, not an average (Gaba 2.4.1)."""
    p = tensor(np.zeros(1), requires_grad=True)
    opt = optim.SGD([p], lr=0.0, momentum=0.9)
    with no_grad():
        for _ in range(300):
            p.grad = np.ones(1)
            opt.step()
    assert opt.states[0]["v"][0] == pytest.approx(10)
