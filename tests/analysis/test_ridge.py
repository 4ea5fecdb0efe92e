"""Ridge regression in closed form, beside scikit-learn's."""

import pytest
import torch
from sklearn.linear_model import Ridge

from didact.analysis.ridge import PENALTIES, RidgeRegression


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("num_rows", [80, 9])       # more rows than features, and fewer
def test_ridge_is_scikit_learns(penalty, num_rows):
    generator = torch.Generator().manual_seed(0)
    x = 100 + 7 * torch.randn(num_rows, 12, dtype=torch.float64, generator=generator)
    y = x[:, :3] @ torch.randn(3, 2, dtype=torch.float64, generator=generator) - 5
    ridge = RidgeRegression(x, y)
    alpha = penalty * num_rows * float((x - x.mean(0)).square().mean())
    reference = Ridge(alpha=alpha).fit(x.numpy(), y.numpy())
    weight, bias = ridge.get_weights(penalty)
    torch.testing.assert_close(weight, torch.tensor(reference.coef_), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(bias, torch.tensor(reference.intercept_), rtol=1e-6, atol=1e-6)
    new_x = 100 + torch.randn(5, 12, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(ridge.predict(new_x, penalty), torch.tensor(reference.predict(new_x.numpy())))


def test_constant_features_and_targets_give_the_mean():
    weight, bias = RidgeRegression(torch.ones(20, 3), torch.full((20, 1), 4.0)).get_weights(0.1)
    assert weight.abs().max() == 0 and float(bias) == 4
