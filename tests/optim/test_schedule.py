"""Schedules against torch.optim.lr_scheduler, at every step."""

import math

import pytest
import torch
from torch.optim import lr_scheduler

from didact.errors import UsageError
from didact.optim.schedule import SCHEDULES, Constant, Cosine, OneCycle, StepDecay, WarmupCosine, make_schedule


def run_torch_scheduler(make, total, *, lr=1.0, **keywords):
    """Learning rates and momenta of a PyTorch scheduler at steps 0 … total - 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr, momentum=0.9)
    scheduler = make(optimizer, **keywords)
    rates, momenta = [], []
    for step in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if step < total - 1:
            scheduler.step()
    return rates, momenta


def evaluate_schedule(schedule, total):
    return [schedule(step, total) for step in range(total)]


def test_constant_schedule_is_one():
    assert evaluate_schedule(Constant(), 5) == [1.0] * 5 and Constant().momentum(0, 5) is None


@pytest.mark.parametrize(("every", "size"), [(7, 7), (0.1, 10), (0.55, 55), (1 / 4, 25), (1, 1)])
def test_step_decay_equals_torch(every, size):
    rates, _ = run_torch_scheduler(lr_scheduler.StepLR, 100, step_size=size, gamma=0.5)
    assert evaluate_schedule(StepDecay(0.5, every), 100) == pytest.approx(rates)


def test_step_decay_ends_at_its_third_level_for_uneven_thirds():
    factors = evaluate_schedule(StepDecay(), 100)
    assert [factors.count(f) for f in sorted(set(factors), reverse=True)] == [34, 33, 33]


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine_equals_torch(final):
    rates, _ = run_torch_scheduler(lr_scheduler.CosineAnnealingLR, 40, T_max=40, eta_min=final)
    assert evaluate_schedule(Cosine(final), 40) == pytest.approx(rates)


@pytest.mark.parametrize(("warmup", "final"), [(0.1, 0.0), (0.25, 0.2)])
def test_warmup_cosine_equals_torch(warmup, final):
    total, warmup_steps = 40, round(40 * warmup)

    def make_scheduler(optimizer):
        up = lr_scheduler.LinearLR(optimizer, start_factor=1 / warmup_steps, total_iters=warmup_steps - 1)
        down = lr_scheduler.CosineAnnealingLR(optimizer, T_max=total - warmup_steps, eta_min=final)
        return lr_scheduler.SequentialLR(optimizer, [up, down], milestones=[warmup_steps])

    rates, _ = run_torch_scheduler(make_scheduler, total)
    assert evaluate_schedule(WarmupCosine(warmup, final), total) == pytest.approx(rates)


def test_warmup_cosine_starts_above_zero_and_may_have_no_warmup():
    assert WarmupCosine(0.05)(0, 200) == pytest.approx(1 / 10)
    assert evaluate_schedule(WarmupCosine(0.0), 20) == evaluate_schedule(Cosine(), 20)


@pytest.mark.parametrize(("total", "warmup"), [(40, 0.3), (37, 0.3), (100, 0.55), (2, 0.3), (5, 0.4)])
def test_one_cycle_equals_torch(total, warmup):
    rates, momenta = run_torch_scheduler(
        lr_scheduler.OneCycleLR, total, max_lr=1.0, total_steps=total, pct_start=warmup
    )
    schedule = OneCycle(warmup)
    assert evaluate_schedule(schedule, total) == pytest.approx(rates)
    assert [schedule.momentum(step, total) for step in range(total)] == pytest.approx(momenta)


def test_one_cycle_without_warmup_steps_starts_at_the_peak():
    assert OneCycle(0.5)(0, 2) == 1.0  # torch's divides by zero here


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("total", [1, 2, 3, 10])
def test_every_schedule_is_bounded_for_short_runs_and_after_the_end(name, total):
    schedule = make_schedule(name)
    factors = [schedule(step, total) for step in range(total + 3)]
    assert all(math.isfinite(f) and 0 <= f <= 1 for f in factors)
    assert name == "one_cycle" or factors[0] > 0
    assert factors[-1] <= factors[total - 1]
    assert schedule == make_schedule(name) and hash(schedule) == hash(make_schedule(name))


def test_invalid_schedule_arguments_are_refused():
    with pytest.raises(UsageError, match="did you mean 'cosine'"):
        make_schedule("cosin")
    for make_invalid in (lambda: WarmupCosine(1.0), lambda: OneCycle(-0.1), lambda: StepDecay(every=0)):
        with pytest.raises(UsageError, match=r"got (1|-0\.1|0)$"):
            make_invalid()
