"""Occlusion and Shapley values: games whose solution is known, and the axioms."""

import itertools
import math

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.explain import gradient_times_input, occlusion, patch_grid, shapley
from didact.explain.methods import FEATURE_METHODS, IMAGE_METHODS
from didact.explain.shapley import MAX_EXACT_PLAYERS, exact_shapley, sample_shapley


def glove_game(coalitions):
    """Two left gloves and one right: a pair is worth 1. The right one gets 2/3, each left one 1/6."""
    return (coalitions[:, 2] & (coalitions[:, 0] | coalitions[:, 1])).double()


def test_exact_shapley_solves_the_glove_game():
    torch.testing.assert_close(exact_shapley(glove_game, 3), torch.tensor([1 / 6, 1 / 6, 2 / 3], dtype=torch.float64))


def make_network(features, hidden=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 3)).double()


def average_over_orders(f, x, b, c):
    """The definition by permutations, one pass at a time."""
    d, total = x.shape[0], torch.zeros_like(x)
    for order in itertools.permutations(range(d)):
        z = b.clone()
        for i in order:
            before = f(z[None])[0, c]
            z[i] = x[i]
            total[i] += (f(z[None])[0, c] - before).detach()
    return total / math.factorial(d)


def test_shapley_is_the_mean_over_all_orders():
    f, x, b = make_network(5), torch.randn(2, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([average_over_orders(f, x[0], b, 1), average_over_orders(f, x[1], b, 2)])
    torch.testing.assert_close(shapley(f, x, torch.tensor([1, 2]), baseline=b), expected)


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_shapley_values_sum_to_the_score_for_any_number_of_samples(samples):
    f, x, b = make_network(14), torch.randn(3, 14, dtype=torch.float64), torch.randn(14, dtype=torch.float64)
    shapley_values = shapley(f, x, 0, baseline=b, num_samples=samples)
    torch.testing.assert_close(shapley_values.sum(1), (f(x) - f(b[None]))[:, 0].detach())


def test_sampled_shapley_values_approach_the_exact_ones():
    f, x = make_network(9), torch.randn(1, 9, dtype=torch.float64)
    exact = shapley(f, x, 0)
    estimate = shapley(f, x, 0, max_exact=0, num_samples=2000, generator=torch.Generator().manual_seed(0))
    assert (estimate - exact).abs().max() < 0.03 * exact.abs().max()


def test_shapley_gives_zero_to_null_players_and_equal_values_to_symmetric_ones():
    def f(x):
        return torch.stack([(x[:, 0] * x[:, 1]).tanh() + 0 * x[:, 2], -x[:, 0]], dim=1)

    shapley_values = shapley(f, torch.tensor([[1.5, 1.5, 9.0]]), 0)[0]
    assert (
        shapley_values[2] == 0
        and shapley_values[0] == pytest.approx(float(shapley_values[1]))
        and shapley_values.sum() == pytest.approx(math.tanh(2.25))
    )


def test_shapley_of_patches_includes_all_channels():
    """A score that is linear in the pixels gives each patch its own part."""
    w, x = torch.randn(2, 3, 6, 9), torch.rand(2, 3, 6, 9)
    patch_index = patch_grid((6, 9), 3)
    shapley_values = shapley(lambda x: torch.einsum("bchw,kchw->bk", x, w), x, 1, players=patch_index, baseline=0.25)
    pixels = ((x - 0.25) * w[1]).sum(1)
    expected = torch.stack([pixels[:, patch_index == k].sum(1) for k in range(9)], dim=1)
    torch.testing.assert_close(shapley_values, expected, atol=1e-4, rtol=1e-4)


def test_shapley_keeps_features_outside_all_players():
    shapley_values = shapley(
        lambda x: x.prod(1, keepdim=True), torch.tensor([[2.0, 3.0, 5.0]]), 0, players=torch.tensor([0, -1, 1])
    )
    assert shapley_values.tolist() == [[15.0, 15.0]]      # 2 · 3 · 5, shared by two that are worth nothing alone


def test_shapley_without_players_is_empty():
    assert shapley(nn.Linear(2, 2), torch.ones(1, 2), 0, players=torch.tensor([-1, -1])).shape == (1, 0)


def test_sample_shapley_draws_orders_in_reversed_pairs():
    """With two players a permutation and its reverse are all there is: two samples are exact."""
    def v(coalitions):
        return (coalitions.sum(1) == 2).double()

    torch.testing.assert_close(sample_shapley(v, 2, 2), torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_partition_covers_the_image_evenly():
    patch_index = patch_grid((7, 10), 3)
    sizes = patch_index.flatten().bincount()
    assert len(sizes) == 9 and patch_index[0, 0] == 0 and patch_index[-1, -1] == 8 and sizes.max() <= 2 * sizes.min()
    assert patch_grid((2, 8), 4).unique().tolist() == list(range(8))


def test_attribution_methods_agree_on_a_linear_score():
    linear, b = nn.Linear(6, 2).double(), torch.randn(6, dtype=torch.float64)
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = gradient_times_input(linear, x, 1, baseline=b)
    torch.testing.assert_close(occlusion(linear, x, 1, baseline=b), expected)
    torch.testing.assert_close(shapley(linear, x, 1, baseline=b), expected)


def test_occlusion_of_single_pixels_of_a_linear_score():
    w, x = torch.randn(3, 1, 4, 6), torch.rand(2, 1, 4, 6)
    occlusion_map = occlusion(lambda x: torch.einsum("bchw,kchw->bk", x, w), x, 2, patch=1, baseline=0.5)
    torch.testing.assert_close(occlusion_map, (x[:, 0] - 0.5) * w[2, 0], atol=1e-5, rtol=1e-5)


def test_occlusion_averages_overlapping_patches():
    """Columns of pixels worth 1, 2 and 4: the left square of 2 × 2 loses 6, the right one 12; both cover the middle."""
    def f(x):
        return (x[:, 0] * torch.tensor([1.0, 2.0, 4.0])).sum((1, 2))[:, None]

    occlusion_map = occlusion(f, torch.ones(1, 1, 2, 3), 0, patch=2, stride=1)
    assert occlusion_map.tolist() == [[[6.0, 9.0, 12.0]] * 2]


def test_occlusion_refuses_a_patch_larger_than_the_image():
    with pytest.raises(UsageError, match=r"from 1 to 4 pixels .* got 5"):
        occlusion(nn.Flatten(), torch.ones(1, 1, 4, 6), 0, patch=5)


def test_shapley_description_says_when_values_are_sampled():
    for table in (IMAGE_METHODS, FEATURE_METHODS):
        assert (
            "random permutations" in table["shapley"].description
            and f"at most {MAX_EXACT_PLAYERS} parts exact" in table["shapley"].description
        )
