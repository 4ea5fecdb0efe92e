"""Does a classifier say yes to some groups of people more readily than to others?"""

from math import isnan, nan

import torch
from torch import Tensor


def group_rates(positive: Tensor, y: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """P(Ŷ = 1 | A), P(Ŷ = 1 | A, Y = 1) and P(Ŷ = 1 | A, Y = 0) of each group: (groups, 3); NaN where it has nobody
    of that kind."""
    # (N, 3)
    positive, conditions = positive.double(), torch.stack([torch.ones_like(y, dtype=torch.bool), y == 1, y == 0], 1)
    # (N, groups)
    membership = torch.nn.functional.one_hot(group, num_groups).double()
    return (membership.mT @ (positive[:, None] * conditions)) / (membership.mT @ conditions.double())


def fairness_gaps(rates: Tensor) -> dict[str, float]:
    """How far apart the groups are, at most, by each notion of fairness; 0 is fair, NaN cannot be told.

    Demographic parity asks for equal shares of yes, equal opportunity for equal true positives, predictive equality
    for equal false
    positives, equalised odds for both.  Gaba 12.6, exercise 12.5; its definition 12.3 calls the second by the name
    of the last.
    """
    parity, opportunity, equality = (_value_range(column) for column in rates.T)
    odds = nan if isnan(opportunity + equality) else max(opportunity, equality)
    return {
        "demographic_parity": parity,
        "equal_opportunity": opportunity,
        "predictive_equality": equality,
        "equalised_odds": odds,
    }


def _value_range(column: Tensor) -> float:
    """Between the least and the largest; NaN where fewer than two groups have the rate."""
    values = column[~column.isnan()]
    return float(values.max() - values.min()) if len(values) > 1 else nan
