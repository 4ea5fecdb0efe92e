"""Group fairness of a binary classifier: differences between groups of people in how often it says yes."""

from math import isnan, nan

import torch
from torch import Tensor


def group_rates(positive: Tensor, y: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """P(Ŷ = 1 | A), P(Ŷ = 1 | A, Y = 1) and P(Ŷ = 1 | A, Y = 0) of each group: (groups, 3); NaN where there are no such
    examples.
    """
    # (N, 3)
    positive, conditions = positive.double(), torch.stack([torch.ones_like(y, dtype=torch.bool), y == 1, y == 0], 1)
    # (N, groups)
    membership = torch.nn.functional.one_hot(group, num_groups).double()
    return (membership.mT @ (positive[:, None] * conditions)) / (membership.mT @ conditions.double())


def fairness_gaps(rates: Tensor) -> dict[str, float]:
    """The largest difference between groups by each notion of fairness; 0 is fair, NaN undefined.

    Demographic parity: equal rates of yes; equal opportunity: equal true-positive rates; predictive equality: equal
    false-positive rates; equalized odds: both.  Gaba 12.6, exercise 12.5; its definition 12.3 calls the second by the
    name of the last.
    """
    parity, opportunity, equality = (_value_range(column) for column in rates.T)
    odds = nan if isnan(opportunity + equality) else max(opportunity, equality)
    return {
        "demographic_parity": parity,
        "equal_opportunity": opportunity,
        "predictive_equality": equality,
        "equalized_odds": odds,
    }


def _value_range(column: Tensor) -> float:
    """Largest less smallest value; NaN where fewer than two groups have one."""
    values = column[~column.isnan()]
    return float(values.max() - values.min()) if len(values) > 1 else nan
