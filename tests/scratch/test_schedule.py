"""Schedules of the NumPy engine beside those of the training loop."""

import numpy as np
import pytest

from didact.optim.schedule import OneCycle
from didact.scratch import schedule


@pytest.mark.parametrize(("total", "rise"), [(10, 0.1), (2, 0.5), (10, 0.05), (1, 0.3), (20, 0.3)])
def test_one_cycle_without_a_rising_step_starts_at_the_peak(total, rise):
    """The first two rise for one step alone: they start at the peak, where the formula would divide 0 by 0."""
    reference = OneCycle(rise)
    rates = [schedule.one_cycle(t, lr=0.4, total=total, rise=rise) for t in range(total)]
    np.testing.assert_allclose(rates, [0.4 * reference(t, total) for t in range(total)], rtol=1e-9)
    momenta = [schedule.one_cycle_momentum(t, total=total, rise=rise) for t in range(total)]
    np.testing.assert_allclose(momenta, [reference.momentum(t, total) for t in range(total)], rtol=1e-9)
