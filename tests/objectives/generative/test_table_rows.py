"""Rows of a table: likelihoods against torch's own, encoding and decoding, and written values."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal

from didact.data.load import load
from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.data.tables.row_decoder import UNLIMITED_DECIMALS, decode_rows, infer_decimals, rows_to_csv
from didact.models.generative.realnvp import RealNVP
from didact.models.generative.table_networks import TableGenerator, straight_through_one_hot
from didact.objectives.generative.flow import FlowObjective
from didact.objectives.generative.table_flow import TableFlow
from didact.objectives.generative.table_rows import MixedRowLikelihood, RowLayout


@pytest.fixture
def house_data(tmp_path):
    """A column with missing values, one of categories, one of integers, and a target of classes."""
    r = np.random.default_rng(0)
    size = np.round(r.normal(5, 2, 60), 1).astype(object)
    size[::4] = ""
    frame = pd.DataFrame({"size": size, "colour": r.choice(["red", "blue", "green"], 60), "rooms": r.integers(1, 9, 60),
                          "sold": r.choice(["no", "yes"], 60)})
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return load(str(tmp_path / "houses.csv"))


@pytest.fixture
def row_layout(house_data):
    return RowLayout(house_data, joint=True)


def take_full_batch(data):
    return data.train.batch(torch.arange(len(data.train)))


def test_row_layout_places_and_standardizes_columns(house_data, row_layout):
    assert (
        [c.name for c in row_layout.columns] == ["size", "colour", "rooms", "sold"]
        and row_layout.num_features == 8
        and row_layout.flat_width == 5
    )
    assert (
        row_layout.numbers.tolist() == [0, 5]
        and row_layout.gaps.tolist() == [1]
        and row_layout.categories == [(2, 5), (6, 8)]
    )
    assert row_layout.decimals[[0, 5]].tolist() == [1, 0]
    s = row_layout.standardize_rows(take_full_batch(house_data))
    torch.testing.assert_close(s[:, [0, 5]].mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(s[:, [0, 5]].std(0, correction=0), torch.ones(2))
    torch.testing.assert_close(
        row_layout.unstandardize_and_clip(s), row_layout.encode_rows(take_full_batch(house_data)), atol=1e-4, rtol=0
    )
    assert torch.equal(
        RowLayout(house_data, joint=False).encode_rows(take_full_batch(house_data)), take_full_batch(house_data)["x"]
    )


def test_mixed_row_likelihood_matches_torch_in_the_units_of_the_table(house_data, row_layout):
    likelihood, s, r = (
        MixedRowLikelihood(row_layout),
        row_layout.standardize_rows(take_full_batch(house_data)),
        row_layout.encode_rows(take_full_batch(house_data)),
    )
    likelihood.log_variance.data = torch.tensor([0.3, -1.2])
    out = torch.randn(len(s), 8, generator=torch.Generator().manual_seed(0))
    location, scale = (v[[0, 5]] for v in (row_layout.location, row_layout.scale))
    assert (scale - 1).abs().min() > 0.3                                           # else the units would have no effect
    mean, deviation = location + scale * out[:, [0, 5]], scale * (0.5 * likelihood.log_variance).exp()
    is_present = torch.stack([1 - s[:, 1], torch.ones(len(s))], dim=1)                  # missing numbers do not count
    expected = (Normal(mean, deviation).log_prob(r[:, [0, 5]]) * is_present).sum(1)
    expected += Bernoulli(logits=out[:, 1]).log_prob(s[:, 1])
    expected += Categorical(logits=out[:, 2:5]).log_prob(s[:, 2:5].argmax(1)) + Categorical(logits=out[:, 6:]).log_prob(
        s[:, 6:].argmax(1)
    )
    torch.testing.assert_close(likelihood.nll(out[:, :, None, None], s), -expected)


def test_mixed_row_samples_follow_the_likelihood(row_layout):
    likelihood = MixedRowLikelihood(row_layout)
    likelihood.log_variance.data = torch.tensor([0.0, -2.0])
    out = torch.tensor([[0.5, -1.0, 0.0, 1.0, 2.0, -0.3, 0.7, 0.7]])
    s = likelihood.sample(out.expand(20_000, -1), torch.Generator().manual_seed(0))
    chances = torch.cat([out[0, 2:5].softmax(0), out[0, 6:].softmax(0)])
    torch.testing.assert_close(s[:, [2, 3, 4, 6, 7]].mean(0), chances, atol=0.012, rtol=0)
    torch.testing.assert_close(s[:, 1].mean(), torch.tensor(-1.0).sigmoid(), atol=0.012, rtol=0)
    torch.testing.assert_close(s[:, [0, 5]].mean(0), out[0, [0, 5]], atol=0.03, rtol=0)
    torch.testing.assert_close(s[:, [0, 5]].std(0), torch.tensor([1.0, np.exp(-1)]).float(), atol=0.02, rtol=0)
    assert set(s[:, [1, 2, 3, 4, 6, 7]].unique().tolist()) == {0.0, 1.0}
    assert torch.equal(s, likelihood.sample(out.expand(20_000, -1), torch.Generator().manual_seed(0)))


def test_row_layout_clips_numbers_to_the_training_range(house_data, row_layout):
    observed = row_layout.encode_rows(take_full_batch(house_data))[:, [0, 5]]
    clipped = row_layout.unstandardize_and_clip(torch.full((1, 8), 50.0))
    assert (
        clipped[0, [0, 5]].tolist() == pytest.approx(observed.amax(0).tolist())
        and clipped[0, 5] == clipped[0, 5].round()
    )


def test_decode_rows_writes_rows_as_they_were_read():
    columns = (
        NumericColumn("size", 2.0, True),
        CategoricalColumn("colour", ("blue", "red"), True, True),
        NumericColumn("n"),
        NumericColumn("x"),
    )
    x = torch.tensor(
        [[2.5, 0, 0, 1, 0, 0, 3.0, 1 / 3], [2.5, 1, 0, 0, 0, 1, -0.2, 1e7], [0.04, 0, 0, 0, 1, 0, 2.6, 5.0]]
    )
    written_rows = decode_rows(columns, x, [1, 0, 0, 0, 0, 0, 0, UNLIMITED_DECIMALS])
    assert written_rows == [["2.5", "red", "3", "0.333333"], ["", "", "0", "1e+07"], ["0.0", "(other)", "3", "5"]]
    assert rows_to_csv(["a", "b"], [["x, y", 'say "no"'], ["", "2"]]) == 'a,b\n"x, y","say ""no"""\n,2\n'


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 5, 1e6], 0),
        ([14.23, 2.1], 2),
        ([0.001, 12345.678], 3),
        ([0.1234567, 3.7654321], UNLIMITED_DECIMALS),
        ([-3.5, 0], 1),
        ([2.0**24], 0),
    ],
)
def test_infer_decimals_from_values(values, expected):
    assert infer_decimals(torch.tensor(values, dtype=torch.float32)) == expected


def test_straight_through_one_hot_has_the_softmax_gradient():
    logits = torch.randn(6, 4, requires_grad=True)
    weight = torch.randn(6, 4)
    (straight_through_one_hot(logits) * weight).sum().backward()
    soft_logits = logits.detach().requires_grad_()
    (soft_logits.softmax(1) * weight).sum().backward()
    torch.testing.assert_close(logits.grad, soft_logits.grad)
    assert torch.equal(
        straight_through_one_hot(logits).detach().round(), torch.nn.functional.one_hot(logits.argmax(1), 4).float()
    )
    options, z = TableGenerator.example(5)
    x = TableGenerator(**options)(z).detach()
    torch.testing.assert_close(x[:, 1:4].sum(1), torch.ones(5))
    assert (
        x.shape == (5, 7)
        and ((x[:, 5] - x[:, 5].round()).abs() < 1e-6).all()
        and not torch.equal(x[:, 0], x[:, 0].round())
    )


def test_table_flow_dequantizes_and_rounds_back(house_data, row_layout):
    torch.manual_seed(0)
    batch = take_full_batch(house_data)
    r = row_layout.encode_rows(batch)
    flow = TableFlow(RealNVP(shape=(row_layout.flat_width,), hidden=8, num_couplings=2), row_layout, r)
    for u in (torch.full((len(r), 5), 0.01), torch.rand(len(r), 5), torch.full((len(r), 5), 0.99)):
        recovered = flow.unflatten_clipped_rows(flow.dequantize(batch, u)[0])
        is_present = r[:, 1] == 0
        torch.testing.assert_close(recovered[is_present], r[is_present], atol=1e-4, rtol=0)
        torch.testing.assert_close(recovered[:, 1:], r[:, 1:], atol=1e-4, rtol=0)       # a missing number may be any
    x = flow.walk(flow.sample_latents(200, torch.Generator().manual_seed(0)))
    assert torch.equal(x[:, 2:5].sum(1), torch.ones(200)) and torch.equal(x[:, 5], x[:, 5].round())


def test_table_flow_noise_for_a_missing_number_costs_nothing(house_data, row_layout):
    """Under a flow that gives N(μ, σ²) for every column, a missing number is as likely as the noise in its place."""
    batch = take_full_batch(house_data)
    r = row_layout.encode_rows(batch)
    flow = TableFlow(torch.nn.Identity(), row_layout, r)
    flow.network = StandardNormalFlow()
    u = torch.rand(len(r), 5, generator=torch.Generator().manual_seed(0))
    v = flow.flatten_rows(r) + (u - 0.5) * torch.tensor([0.1, 1, 1, 1, 1])
    is_present = torch.ones(len(r), 5)
    is_present[:, 0] -= r[:, 1]
    expected = -(Normal(flow.mean, flow.std).log_prob(v) * is_present).sum(1)
    # of either tail a thousandth is cut off
    torch.testing.assert_close(flow.nll(batch, u), expected, atol=0.003, rtol=0)
    torch.testing.assert_close(
        flow.evaluate_batch(batch)["loss"], flow.nll(batch, flow.noises[batch["row"] % len(flow.noises)])
    )
    torch.manual_seed(0)
    loss = flow.loss(batch)["loss"]
    torch.manual_seed(0)
    torch.testing.assert_close(loss, flow.nll(batch, torch.rand(len(r), 5)).mean())


class StandardNormalFlow(torch.nn.Module):
    def forward(self, x):
        return Normal(0.0, 1.0).log_prob(x).sum(1)


def test_table_flow_of_continuous_numbers_is_the_plain_flow():
    data = load("moons")
    row_layout = RowLayout(data, joint=False)
    torch.manual_seed(0)
    network = RealNVP(shape=(2,), hidden=8, num_couplings=2)
    batch = take_full_batch(data)
    table_flow, plain_flow = TableFlow(network, row_layout, batch["x"]), FlowObjective(network, data.mean, data.std)
    torch.testing.assert_close(
        table_flow.evaluate_batch(batch)["loss"], plain_flow.evaluate_batch(batch)["loss"], atol=1e-4, rtol=0
    )


def test_table_flow_bound_is_at_least_the_entropy_of_a_category():
    """For a single category P(k) is known: the nats of a flow, averaged over many u, are no fewer than the entropy."""
    torch.manual_seed(0)
    data = load("iris")
    no_columns = data.train.columns | {"x": torch.zeros(len(data.train), 0)}
    row_layout = RowLayout(
        replace(data, encoder=replace(data.encoder, columns=()), train=replace(data.train, columns=no_columns)),
        joint=True,
    )
    assert row_layout.flat_width == 1 and row_layout.categories == [(0, 3)]
    y = torch.randint(3, (4000,))
    flow = TableFlow(
        RealNVP(shape=(1,), hidden=8, num_couplings=2), row_layout, torch.nn.functional.one_hot(y, 3).float()
    )
    batch = {"x": torch.zeros(4000, 0), "y": y, "row": torch.arange(4000)}
    with torch.no_grad():
        assert float(flow.evaluate_batch(batch)["loss"].mean()) >= np.log(3) - 0.05
