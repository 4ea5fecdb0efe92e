import pytest
import torch
from torch import nn

from didact.layers.standardize import Standardize


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 5, 7), (1,)])
def test_standardize_subtracts_and_divides(shape):
    x = 10 * torch.rand(2, 3, 5, 7)
    mean, std = torch.randn(shape), torch.rand(shape) + 0.1
    torch.testing.assert_close(Standardize(mean, std)(x), (x - mean) / std)


def test_standardize_is_precise_far_from_zero():
    year = 2000 + torch.arange(10.0)[:, None]
    z = Standardize(year.mean(0), year.std(0))(year)
    torch.testing.assert_close(z[:, 0], (torch.arange(10.0) - 4.5) / torch.arange(10.0).std(), atol=1e-4, rtol=0)


def test_standardize_is_saved_but_not_trained():
    layer = Standardize(torch.tensor([1.0]), torch.tensor([2.0]))
    assert set(layer.state_dict()) == {"scale", "shift"}
    assert not list(layer.parameters())


def test_standardize_or_identity_needs_both_statistics():
    mean, std = torch.tensor([1.0]), torch.tensor([2.0])
    assert isinstance(Standardize.or_identity(mean, std), Standardize)
    assert all(isinstance(Standardize.or_identity(*s), nn.Identity) for s in ((None, None), (mean, None), (None, std)))
