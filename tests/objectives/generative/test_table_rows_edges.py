"""Sampled numbers beyond the training range: reflected at its edges, not heaped up on them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest, norm
from torch import nn

from didact.data.load import load
from didact.models.generative.realnvp import RealNVP
from didact.models.generative.vae import VAE
from didact.objectives.generative.gan import GAN_LOSSES
from didact.objectives.generative.table_flow import TableFlow
from didact.objectives.generative.table_gan import TableGAN
from didact.objectives.generative.table_rows import RowLayout
from didact.objectives.generative.table_vae import TableVAE

# positions in a row: integers, numbers with missing values, their flag, mostly zeros
YEARS, PRICE, IS_MISSING, GARDEN = 0, 1, 2, 3


@pytest.fixture
def house_data(tmp_path):
    r = np.random.default_rng(0)
    price = r.uniform(0, 1, 400).astype(object)
    price[::10] = ""
    garden = np.where(r.random(400) < 0.6, 0, r.integers(1, 1000, 400))
    frame = pd.DataFrame(
        {"years": r.integers(0, 1001, 400), "price": price, "garden": garden, "sold": r.choice(["no", "yes"], 400)}
    )
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return load(str(tmp_path / "houses.csv"), target="sold")


@pytest.fixture
def row_layout(house_data):
    return RowLayout(house_data, joint=False, conditional=True)


def make_wide_rows(row_layout, n=20_000):
    """Numbers with 1.5 times the table's standard deviation, none missing."""
    s = 1.5 * torch.randn(n, row_layout.num_features, generator=torch.Generator().manual_seed(0))
    s[:, IS_MISSING] = 0
    return row_layout.unstandardize(s)


def compute_edge_share(row_layout, r):
    return (
        (
            (r == row_layout.clip_to_training_range(row_layout.low))
            | (r == row_layout.clip_to_training_range(row_layout.high))
        )
        .double()
        .mean(0)
    )


def has_whole_numbers(r):
    return torch.equal(r[:, [YEARS, GARDEN]], r[:, [YEARS, GARDEN]].round())


def test_reflect_at_edges_leaves_no_heap_on_the_edges(row_layout):
    assert (
        row_layout.num_features == 4
        and row_layout.numbers.tolist() == [YEARS, PRICE, GARDEN]
        and row_layout.gaps.tolist() == [IS_MISSING]
    )
    r, clipped = (
        row_layout.reflect_at_edges(make_wide_rows(row_layout)),
        row_layout.clip_to_training_range(make_wide_rows(row_layout)),
    )
    assert (
        compute_edge_share(row_layout, clipped)[[YEARS, PRICE]].min() > 0.2
        and compute_edge_share(row_layout, r)[[YEARS, PRICE]].max() < 0.01
    )
    assert (r >= row_layout.low - 1e-6).all() and (r <= row_layout.high + 1e-6).all()
    assert has_whole_numbers(r) and not torch.equal(r[:, PRICE], r[:, PRICE].round())
    is_inside = ((make_wide_rows(row_layout) >= row_layout.low) & (make_wide_rows(row_layout) <= row_layout.high)).all(
        1
    )
    # numbers within the range do not change
    assert is_inside.sum() > 5000 and torch.equal(r[is_inside], clipped[is_inside])


def test_reflect_at_edges_adds_the_density_of_both_sides(row_layout):
    """P(x <= v) = P(2 low − v <= x <= v) + P(x >= 2 high − v), but for the few that are a whole range beyond."""
    low, high = row_layout.low[PRICE].item(), row_layout.high[PRICE].item()
    model = norm(row_layout.location[PRICE].item(), 1.5 * row_layout.scale[PRICE].item())
    x = row_layout.reflect_at_edges(make_wide_rows(row_layout))[:, PRICE].double().numpy()
    assert 2 * model.cdf(2 * low - high) < 0.001
    assert kstest(x, lambda v: model.cdf(v) - model.cdf(2 * low - v) + model.sf(2 * high - v)).pvalue > 0.01


def test_reflect_at_edges_matches_hand_values(row_layout):
    """Integers from 0 to 10: what rounds to 0 or 10 stays, the rest is reflected at −½ and 10½."""
    row_layout.low[YEARS], row_layout.high[YEARS] = 0.0, 10.0
    v = torch.tensor([-0.4, -0.6, -3.0, -11.0, -12.0, 3.2, 10.4, 10.6, 14.0, 21.0, 22.0])
    r = torch.zeros(len(v), 4).index_copy(1, torch.tensor([YEARS]), v[:, None])
    assert row_layout.reflect_at_edges(r)[:, YEARS].tolist() == [0, 0, 2, 10, 0, 3, 10, 10, 7, 0, 10]
    assert row_layout.clip_to_training_range(r)[:, YEARS].tolist() == [0, 0, 0, 0, 0, 3, 10, 10, 10, 10, 10]


def test_reflect_at_edges_keeps_the_heaps_of_the_table(row_layout):
    """Six in ten have no garden: a number below 0 means the same."""
    assert row_layout.heaped[:, [YEARS, PRICE, GARDEN]].tolist() == [[False, False, True], [False, False, False]]
    model = norm(row_layout.location[GARDEN].item(), 1.5 * row_layout.scale[GARDEN].item())
    zero_share = (row_layout.reflect_at_edges(make_wide_rows(row_layout))[:, GARDEN] == 0).double().mean().item()
    assert zero_share == pytest.approx(model.cdf(0.5), abs=0.01) and zero_share > 0.3


def test_row_layout_saves_its_heaps_in_the_state_dict(row_layout, house_data):
    other = RowLayout(house_data, joint=False, conditional=True)
    other.heaped.zero_()
    other.load_state_dict(row_layout.state_dict())
    assert torch.equal(other.heaped, row_layout.heaped) and other.heaped.any()


class WideGenerator(nn.Module):
    """Numbers 1.5 times as spread, none missing; the first class below the mean of the gardens, the second above it."""

    def forward(self, z, y):
        s = 1.5 * z
        s[:, IS_MISSING], s[:, GARDEN] = 0, y - 0.5
        return s


def make_table_vae(row_layout, data):
    model = TableVAE(VAE(shape=(row_layout.num_features, 1, 1), widths=(8,), latent_dim=3, num_classes=2), row_layout)
    # standard deviations of 1.5, and almost none
    model.pixels.log_variance.data = torch.tensor([0.8, 0.8, -9.0])
    model.network.decode = lambda z, y: WideGenerator()(torch.zeros(len(y), 4), y)
    return model, {}


def make_table_gan(row_layout, data):
    return TableGAN(
        WideGenerator(),
        nn.Identity(),
        row_layout,
        gan_loss=GAN_LOSSES["wasserstein"],
        latent_dim=row_layout.num_features,
        num_classes=2,
    ), {}


def make_table_flow(row_layout, data):
    row_layout = RowLayout(data, joint=True)
    batch = data.train.batch(torch.arange(len(data.train)))
    return TableFlow(
        RealNVP(shape=(row_layout.flat_width,), hidden=8, num_couplings=2), row_layout, row_layout.encode_rows(batch)
    ), {"temperature": 1.5}


@pytest.mark.parametrize("make", [make_table_vae, make_table_gan, make_table_flow])
def test_every_table_generator_reflects_at_edges(row_layout, house_data, make):
    torch.manual_seed(0)
    model, options = make(row_layout, house_data)
    with torch.no_grad():
        r, repeated_rows = (model.sample(4000, torch.Generator().manual_seed(1), **options) for _ in range(2))
    is_present = r[:, IS_MISSING] == 0
    assert (
        torch.equal(r, repeated_rows) and compute_edge_share(row_layout, r[is_present, :4])[[YEARS, PRICE]].max() < 0.01
    )
    assert (
        (r[:, :4] >= row_layout.low - 1e-6).all()
        and (r[:, :4] <= row_layout.high + 1e-6).all()
        and has_whole_numbers(r)
    )
    if make is not make_table_flow:
        assert torch.equal(r[:, -1], torch.arange(4000.0) % 2) and torch.equal(
            (r[:, GARDEN] > row_layout.location[GARDEN]).float(), r[:, -1]
        )


def test_latent_walk_stops_at_the_edge(row_layout, house_data):
    z = torch.zeros(9, 4).index_copy(1, torch.tensor([YEARS]), torch.linspace(-3, 3, 9)[:, None])
    years = make_table_gan(row_layout, house_data)[0].walk(z, torch.zeros(9, dtype=torch.long))[:, YEARS]
    assert (years.diff() >= 0).all() and years[0] == row_layout.low[YEARS] and years[-1] == row_layout.high[YEARS]
