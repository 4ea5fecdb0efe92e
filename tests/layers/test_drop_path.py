import pytest
import torch

from didact.errors import UsageError
from didact.layers.drop_path import DropPath, block_survival_probability


def test_block_survival_probability_falls_linearly_with_depth():
    # Gaba 3.12, by hand
    assert [block_survival_probability(l, 4, 0.5) for l in range(5)] == [1.0, 0.875, 0.75, 0.625, 0.5]


def test_drop_path_drops_whole_samples_and_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.rand(4000, 3, 2, 5) + 0.5
    y = DropPath(0.3)(x)
    scale = (y / x).flatten(1)
    assert torch.equal((scale == 0).all(1), (scale == 0).any(1))
    torch.testing.assert_close(scale[scale > 0], torch.full_like(scale[scale > 0], 1 / 0.7))
    assert abs(float((scale[:, 0] == 0).float().mean()) - 0.3) < 0.025  # 3.5 standard errors of 4000 samples


def test_drop_path_is_the_identity_in_eval_and_refuses_probability_one():
    x = torch.randn(5, 7)
    assert DropPath(0.9).eval()(x) is x
    assert DropPath(0.0)(x) is x
    with pytest.raises(UsageError, match="from 0 to below 1, got 1"):
        DropPath(1.0)
