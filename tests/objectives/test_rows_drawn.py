"""Numbers that a model draws beyond what was met in training: reflected in the edges, not heaped up on them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest, norm
from torch import nn

from didact.data.load import load
from didact.models.realnvp import RealNVP
from didact.models.vae import VAE
from didact.objectives.adversarial import GAMES
from didact.objectives.row_elbo import RowELBO
from didact.objectives.row_flow import RowFlow
from didact.objectives.row_game import RowGame
from didact.objectives.rows import Rows

YEARS, PRICE, NONE, GARDEN = 0, 1, 2, 3     # places in a row: whole numbers, numbers with gaps, whether that is one, mostly zeros


@pytest.fixture
def data(tmp_path):
    r = np.random.default_rng(0)
    price = r.uniform(0, 1, 400).astype(object)
    price[::10] = ""
    garden = np.where(r.random(400) < 0.6, 0, r.integers(1, 1000, 400))
    frame = pd.DataFrame({"years": r.integers(0, 1001, 400), "price": price, "garden": garden, "sold": r.choice(["no", "yes"], 400)})
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return load(str(tmp_path / "houses.csv"), target="sold")


@pytest.fixture
def rows(data):
    return Rows(data, joint=False, told=True)


def wide(rows, n=20_000):
    """Numbers whose deviation is half as large again as the table's, none missing."""
    s = 1.5 * torch.randn(n, rows.features, generator=torch.Generator().manual_seed(0))
    s[:, NONE] = 0
    return rows.units(s)


def on_an_edge(rows, r):
    return ((r == rows.usual(rows.low)) | (r == rows.usual(rows.high))).double().mean(0)


def whole(r):
    return torch.equal(r[:, [YEARS, GARDEN]], r[:, [YEARS, GARDEN]].round())


def test_nothing_heaps_up_on_the_edges(rows):
    assert rows.features == 4 and rows.numbers.tolist() == [YEARS, PRICE, GARDEN] and rows.gaps.tolist() == [NONE]
    r, put = rows.drawn(wide(rows)), rows.usual(wide(rows))
    assert on_an_edge(rows, put)[[YEARS, PRICE]].min() > 0.2 and on_an_edge(rows, r)[[YEARS, PRICE]].max() < 0.01
    assert (r >= rows.low - 1e-6).all() and (r <= rows.high + 1e-6).all()
    assert whole(r) and not torch.equal(r[:, PRICE], r[:, PRICE].round())
    inside = ((wide(rows) >= rows.low) & (wide(rows) <= rows.high)).all(1)
    assert inside.sum() > 5000 and torch.equal(r[inside], put[inside])                 # what lies within stays as it is


def test_the_density_is_that_of_both_sides_together(rows):
    """P(x <= v) = P(2 low − v <= x <= v) + P(x >= 2 high − v), but for the few that lie a whole range beyond."""
    low, high = rows.low[PRICE].item(), rows.high[PRICE].item()
    model = norm(rows.location[PRICE].item(), 1.5 * rows.scale[PRICE].item())
    x = rows.drawn(wide(rows))[:, PRICE].double().numpy()
    assert 2 * model.cdf(2 * low - high) < 0.001
    assert kstest(x, lambda v: model.cdf(v) - model.cdf(2 * low - v) + model.sf(2 * high - v)).pvalue > 0.01


def test_by_hand(rows):
    """Whole numbers from 0 to 10: what rounds to 0 or 10 lies there, the rest is reflected in −½ and 10½; a range is 11 wide."""
    rows.low[YEARS], rows.high[YEARS] = 0.0, 10.0
    v = torch.tensor([-0.4, -0.6, -3.0, -11.0, -12.0, 3.2, 10.4, 10.6, 14.0, 21.0, 22.0])
    r = torch.zeros(len(v), 4).index_copy(1, torch.tensor([YEARS]), v[:, None])
    assert rows.drawn(r)[:, YEARS].tolist() == [0, 0, 2, 10, 0, 3, 10, 10, 7, 0, 10]
    assert rows.usual(r)[:, YEARS].tolist() == [0, 0, 0, 0, 0, 3, 10, 10, 10, 10, 10]


def test_where_the_table_has_a_heap_the_rest_joins_it(rows):
    """Six in ten have no garden: a number below 0 means the same."""
    assert rows.heaped[:, [YEARS, PRICE, GARDEN]].tolist() == [[False, False, True], [False, False, False]]
    model = norm(rows.location[GARDEN].item(), 1.5 * rows.scale[GARDEN].item())
    none = (rows.drawn(wide(rows))[:, GARDEN] == 0).double().mean().item()
    assert none == pytest.approx(model.cdf(0.5), abs=0.01) and none > 0.3


def test_heaps_are_kept_with_the_weights(rows, data):
    other = Rows(data, joint=False, told=True)
    other.heaped.zero_()
    other.load_state_dict(rows.state_dict())
    assert torch.equal(other.heaped, rows.heaped) and other.heaped.any()


class Wide(nn.Module):
    """Numbers half as wide again, none missing; the first class below the mean of the gardens, the second above it."""

    def forward(self, z, y):
        s = 1.5 * z
        s[:, NONE], s[:, GARDEN] = 0, y - 0.5
        return s


def elbo(rows, data):
    model = RowELBO(VAE(shape=(rows.features, 1, 1), widths=(8,), latent=3, classes=2), rows)
    model.pixels.log_variance.data = torch.tensor([0.8, 0.8, -9.0])                    # deviations of 1.5, and next to none
    model.network.decode = lambda z, y: Wide()(torch.zeros(len(y), 4), y)
    return model, {}


def game(rows, data):
    return RowGame(Wide(), nn.Identity(), rows, game=GAMES["wasserstein"], latent=rows.features, classes=2), {}


def flow(rows, data):
    rows = Rows(data, joint=True)
    batch = data.train.batch(torch.arange(len(data.train)))
    return RowFlow(RealNVP(shape=(rows.width,), hidden=8, steps=2), rows, rows.encoded(batch)), {"temperature": 1.5}


@pytest.mark.parametrize("make", [elbo, game, flow])
def test_every_family_draws_so(rows, data, make):
    torch.manual_seed(0)
    model, words = make(rows, data)
    with torch.no_grad():
        r, again = (model.sample(4000, torch.Generator().manual_seed(1), **words) for _ in range(2))
    there = r[:, NONE] == 0
    assert torch.equal(r, again) and on_an_edge(rows, r[there, :4])[[YEARS, PRICE]].max() < 0.01
    assert (r[:, :4] >= rows.low - 1e-6).all() and (r[:, :4] <= rows.high + 1e-6).all() and whole(r)
    if make is not flow:
        assert torch.equal(r[:, -1], torch.arange(4000.0) % 2) and torch.equal((r[:, GARDEN] > rows.location[GARDEN]).float(), r[:, -1])


def test_a_walk_ends_on_the_edge_and_does_not_turn_back(rows, data):
    z = torch.zeros(9, 4).index_copy(1, torch.tensor([YEARS]), torch.linspace(-3, 3, 9)[:, None])
    years = game(rows, data)[0].walk(z, torch.zeros(9, dtype=torch.long))[:, YEARS]
    assert (years.diff() >= 0).all() and years[0] == rows.low[YEARS] and years[-1] == rows.high[YEARS]
