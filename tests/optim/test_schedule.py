"""Schedules against torch.optim.lr_scheduler, at every step."""

import math

import pytest
import torch
from torch.optim import lr_scheduler

from didact.errors import UsageError
from didact.optim.schedule import SCHEDULES, constant, cosine, make_schedule, one_cycle, step_decay, warmup_cosine


def theirs(make, total, *, lr=1.0, **keywords):
    """Rates and momenta that a scheduler of PyTorch gives to steps 0 … total - 1."""
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


def ours(schedule, total):
    return [schedule(step, total) for step in range(total)]


def test_constant():
    assert ours(constant(), 5) == [1.0] * 5 and constant().momentum(0, 5) is None


@pytest.mark.parametrize(("every", "size"), [(7, 7), (0.1, 10), (0.55, 55), (1 / 4, 25), (1, 1)])
def test_step_decay(every, size):
    rates, _ = theirs(lr_scheduler.StepLR, 100, step_size=size, gamma=0.5)
    assert ours(step_decay(0.5, every), 100) == pytest.approx(rates)


def test_step_decay_ends_at_its_third_level_when_thirds_are_not_whole():
    factors = ours(step_decay(), 100)
    assert [factors.count(f) for f in sorted(set(factors), reverse=True)] == [34, 33, 33]


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine(final):
    rates, _ = theirs(lr_scheduler.CosineAnnealingLR, 40, T_max=40, eta_min=final)
    assert ours(cosine(final), 40) == pytest.approx(rates)


@pytest.mark.parametrize(("warmup", "final"), [(0.1, 0.0), (0.25, 0.2)])
def test_warmup_cosine(warmup, final):
    total, rising = 40, round(40 * warmup)

    def both(optimizer):
        up = lr_scheduler.LinearLR(optimizer, start_factor=1 / rising, total_iters=rising - 1)
        down = lr_scheduler.CosineAnnealingLR(optimizer, T_max=total - rising, eta_min=final)
        return lr_scheduler.SequentialLR(optimizer, [up, down], milestones=[rising])

    rates, _ = theirs(both, total)
    assert ours(warmup_cosine(warmup, final), total) == pytest.approx(rates)


def test_warmup_starts_above_zero_and_may_be_absent():
    assert warmup_cosine(0.05)(0, 200) == pytest.approx(1 / 10)
    assert ours(warmup_cosine(0.0), 20) == ours(cosine(), 20)


@pytest.mark.parametrize(("total", "warmup"), [(40, 0.3), (37, 0.3), (100, 0.55), (2, 0.3), (5, 0.4)])
def test_one_cycle(total, warmup):
    rates, momenta = theirs(lr_scheduler.OneCycleLR, total, max_lr=1.0, total_steps=total, pct_start=warmup)
    schedule = one_cycle(warmup)
    assert ours(schedule, total) == pytest.approx(rates)
    assert [schedule.momentum(step, total) for step in range(total)] == pytest.approx(momenta)


def test_one_cycle_whose_rise_has_no_step_starts_at_the_peak():
    assert one_cycle(0.5)(0, 2) == 1.0  # torch's divides by zero here


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("total", [1, 2, 3, 10])
def test_every_schedule_is_sane_for_short_runs_and_after_the_end(name, total):
    schedule = make_schedule(name)
    factors = [schedule(step, total) for step in range(total + 3)]
    assert all(math.isfinite(f) and 0 <= f <= 1 for f in factors)
    assert name == "one_cycle" or factors[0] > 0
    assert factors[-1] <= factors[total - 1]
    assert schedule == make_schedule(name) and hash(schedule) == hash(make_schedule(name))


def test_wrong_values_are_told():
    with pytest.raises(UsageError, match="did you mean 'cosine'"):
        make_schedule("cosin")
    for wrong in (lambda: warmup_cosine(1.0), lambda: one_cycle(-0.1), lambda: step_decay(every=0)):
        with pytest.raises(UsageError, match=r"got (1|-0\.1|0)$"):
            wrong()
