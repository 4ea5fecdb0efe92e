"""Occlusion and Shapley values: games whose solution is known, and the axioms."""

import itertools
import math

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.explain import gradient_times_input, occlusion, partition, shapley
from didact.explain.coalitions import EXACT, enumerated, sampled
from didact.explain.methods import FEATURES, IMAGES


def glove(coalitions):
    """Two left gloves and one right: a pair is worth 1. The right one gets 2/3, each left one 1/6."""
    return (coalitions[:, 2] & (coalitions[:, 0] | coalitions[:, 1])).double()


def test_the_glove_game():
    torch.testing.assert_close(enumerated(glove, 3), torch.tensor([1 / 6, 1 / 6, 2 / 3], dtype=torch.float64))


def network(features, hidden=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 3)).double()


def by_orders(f, x, b, c):
    """The definition by permutations, one pass at a time."""
    d, total = x.shape[0], torch.zeros_like(x)
    for order in itertools.permutations(range(d)):
        z = b.clone()
        for i in order:
            before = f(z[None])[0, c]
            z[i] = x[i]
            total[i] += (f(z[None])[0, c] - before).detach()
    return total / math.factorial(d)


def test_enumeration_is_the_mean_over_all_orders():
    f, x, b = network(5), torch.randn(2, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([by_orders(f, x[0], b, 1), by_orders(f, x[1], b, 2)])
    torch.testing.assert_close(shapley(f, x, torch.tensor([1, 2]), baseline=b), expected)


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_shares_sum_to_the_score_however_few_orders(samples):
    f, x, b = network(14), torch.randn(3, 14, dtype=torch.float64), torch.randn(14, dtype=torch.float64)
    found = shapley(f, x, 0, baseline=b, samples=samples)
    torch.testing.assert_close(found.sum(1), (f(x) - f(b[None]))[:, 0].detach())


def test_sampling_approaches_the_exact_values():
    f, x = network(9), torch.randn(1, 9, dtype=torch.float64)
    exact = shapley(f, x, 0)
    near = shapley(f, x, 0, exact=0, samples=2000, generator=torch.Generator().manual_seed(0))
    assert (near - exact).abs().max() < 0.03 * exact.abs().max()


def test_what_changes_nothing_gets_nothing_and_twins_share():
    def f(x):
        return torch.stack([(x[:, 0] * x[:, 1]).tanh() + 0 * x[:, 2], -x[:, 0]], dim=1)

    found = shapley(f, torch.tensor([[1.5, 1.5, 9.0]]), 0)[0]
    assert found[2] == 0 and found[0] == pytest.approx(float(found[1])) and found.sum() == pytest.approx(math.tanh(2.25))


def test_patches_are_players_with_all_their_channels():
    """A score that is linear in the pixels pays each patch its own part."""
    w, x = torch.randn(2, 3, 6, 9), torch.rand(2, 3, 6, 9)
    where = partition((6, 9), 3)
    found = shapley(lambda x: torch.einsum("bchw,kchw->bk", x, w), x, 1, players=where, baseline=0.25)
    pixels = ((x - 0.25) * w[1]).sum(1)
    expected = torch.stack([pixels[:, where == k].sum(1) for k in range(9)], dim=1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_what_is_in_no_part_is_always_there():
    found = shapley(lambda x: x.prod(1, keepdim=True), torch.tensor([[2.0, 3.0, 5.0]]), 0, players=torch.tensor([0, -1, 1]))
    assert found.tolist() == [[15.0, 15.0]]      # 2 · 3 · 5, shared by two who are worth nothing alone


def test_nobody_plays():
    assert shapley(nn.Linear(2, 2), torch.ones(1, 2), 0, players=torch.tensor([-1, -1])).shape == (1, 0)


def test_sampled_orders_come_in_pairs():
    """Of two players an order and its reverse are all there is: two samples are exact."""
    def v(coalitions):
        return (coalitions.sum(1) == 2).double()

    torch.testing.assert_close(sampled(v, 2, 2), torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_partition_covers_evenly():
    where = partition((7, 10), 3)
    sizes = where.flatten().bincount()
    assert len(sizes) == 9 and where[0, 0] == 0 and where[-1, -1] == 8 and sizes.max() <= 2 * sizes.min()
    assert partition((2, 8), 4).unique().tolist() == list(range(8))


def test_three_methods_agree_on_a_linear_score():
    linear, b = nn.Linear(6, 2).double(), torch.randn(6, dtype=torch.float64)
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = gradient_times_input(linear, x, 1, baseline=b)
    torch.testing.assert_close(occlusion(linear, x, 1, baseline=b), expected)
    torch.testing.assert_close(shapley(linear, x, 1, baseline=b), expected)


def test_occlusion_of_single_pixels():
    w, x = torch.randn(3, 1, 4, 6), torch.rand(2, 1, 4, 6)
    found = occlusion(lambda x: torch.einsum("bchw,kchw->bk", x, w), x, 2, patch=1, baseline=0.5)
    torch.testing.assert_close(found, (x[:, 0] - 0.5) * w[2, 0], atol=1e-5, rtol=1e-5)


def test_a_pixel_gets_the_mean_of_the_squares_over_it():
    """Columns of pixels worth 1, 2 and 4: the left square of 2 × 2 loses 6, the right one 12, and both cover the middle."""
    def f(x):
        return (x[:, 0] * torch.tensor([1.0, 2.0, 4.0])).sum((1, 2))[:, None]

    found = occlusion(f, torch.ones(1, 1, 2, 3), 0, patch=2, stride=1)
    assert found.tolist() == [[[6.0, 9.0, 12.0]] * 2]


def test_a_square_larger_than_the_image_is_refused():
    with pytest.raises(UsageError, match=r"from 1 to 4 pixels .* got 5"):
        occlusion(nn.Flatten(), torch.ones(1, 1, 4, 6), 0, patch=5)


def test_a_page_tells_which_shapley_values_are_sampled():
    for table in (IMAGES, FEATURES):
        assert "random orders" in table["shapley"].about and f"at most {EXACT} parts, exactly" in table["shapley"].about
