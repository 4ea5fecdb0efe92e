"""Rows of a table: likelihoods beside torch's own, there and back, and what is written."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal

from didact.data.columns import Category, Number
from didact.data.load import load
from didact.data.rows import FREE, as_csv, decimals, written
from didact.models.realnvp import RealNVP
from didact.models.rows import RowGenerator, hard
from didact.objectives.likelihood import Flow
from didact.objectives.row_flow import RowFlow
from didact.objectives.rows import Mixed, Rows


@pytest.fixture
def data(tmp_path):
    """A column with gaps, one of words, one of whole numbers, and a target of classes."""
    r = np.random.default_rng(0)
    size = np.round(r.normal(5, 2, 60), 1).astype(object)
    size[::4] = ""
    frame = pd.DataFrame({"size": size, "colour": r.choice(["red", "blue", "green"], 60), "rooms": r.integers(1, 9, 60),
                          "sold": r.choice(["no", "yes"], 60)})
    frame.to_csv(tmp_path / "houses.csv", index=False)
    return load(str(tmp_path / "houses.csv"))


@pytest.fixture
def rows(data):
    return Rows(data, joint=True)


def batch_of(data):
    return data.train.batch(torch.arange(len(data.train)))


def test_where_everything_lies(data, rows):
    assert [c.name for c in rows.columns] == ["size", "colour", "rooms", "sold"] and rows.features == 8 and rows.width == 5
    assert rows.numbers.tolist() == [0, 5] and rows.gaps.tolist() == [1] and rows.categories == [(2, 5), (6, 8)]
    assert rows.places[[0, 5]].tolist() == [1, 0]
    s = rows.seen(batch_of(data))
    torch.testing.assert_close(s[:, [0, 5]].mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(s[:, [0, 5]].std(0, correction=0), torch.ones(2))
    torch.testing.assert_close(rows.own(s), rows.encoded(batch_of(data)), atol=1e-4, rtol=0)
    assert torch.equal(Rows(data, joint=False).encoded(batch_of(data)), batch_of(data)["x"])


def test_the_likelihood_is_torchs_in_the_tables_own_units(data, rows):
    mixed, s, r = Mixed(rows), rows.seen(batch_of(data)), rows.encoded(batch_of(data))
    mixed.log_variance.data = torch.tensor([0.3, -1.2])
    out = torch.randn(len(s), 8, generator=torch.Generator().manual_seed(0))
    location, scale = (v[[0, 5]] for v in (rows.location, rows.scale))
    assert (scale - 1).abs().min() > 0.3                                           # else units would not show
    mean, deviation = location + scale * out[:, [0, 5]], scale * (0.5 * mixed.log_variance).exp()
    there = torch.stack([1 - s[:, 1], torch.ones(len(s))], dim=1)                  # what is missing says nothing
    expected = (Normal(mean, deviation).log_prob(r[:, [0, 5]]) * there).sum(1)
    expected += Bernoulli(logits=out[:, 1]).log_prob(s[:, 1])
    expected += Categorical(logits=out[:, 2:5]).log_prob(s[:, 2:5].argmax(1)) + Categorical(logits=out[:, 6:]).log_prob(s[:, 6:].argmax(1))
    torch.testing.assert_close(mixed.nll(out[:, :, None, None], s), -expected)


def test_draws_follow_the_likelihood(rows):
    mixed = Mixed(rows)
    mixed.log_variance.data = torch.tensor([0.0, -2.0])
    out = torch.tensor([[0.5, -1.0, 0.0, 1.0, 2.0, -0.3, 0.7, 0.7]])
    s = mixed.draw(out.expand(20_000, -1), torch.Generator().manual_seed(0))
    chances = torch.cat([out[0, 2:5].softmax(0), out[0, 6:].softmax(0)])
    torch.testing.assert_close(s[:, [2, 3, 4, 6, 7]].mean(0), chances, atol=0.012, rtol=0)
    torch.testing.assert_close(s[:, 1].mean(), torch.tensor(-1.0).sigmoid(), atol=0.012, rtol=0)
    torch.testing.assert_close(s[:, [0, 5]].mean(0), out[0, [0, 5]], atol=0.03, rtol=0)
    torch.testing.assert_close(s[:, [0, 5]].std(0), torch.tensor([1.0, np.exp(-1)]).float(), atol=0.02, rtol=0)
    assert set(s[:, [1, 2, 3, 4, 6, 7]].unique().tolist()) == {0.0, 1.0}
    assert torch.equal(s, mixed.draw(out.expand(20_000, -1), torch.Generator().manual_seed(0)))


def test_numbers_stay_within_what_was_met(data, rows):
    whole = rows.encoded(batch_of(data))[:, [0, 5]]
    far = rows.own(torch.full((1, 8), 50.0))
    assert far[0, [0, 5]].tolist() == pytest.approx(whole.amax(0).tolist()) and far[0, 5] == far[0, 5].round()


def test_a_row_is_written_as_it_was_read():
    columns = (Number("size", 2.0, True), Category("colour", ("blue", "red"), True, True), Number("n"), Number("x"))
    x = torch.tensor([[2.5, 0, 0, 1, 0, 0, 3.0, 1 / 3], [2.5, 1, 0, 0, 0, 1, -0.2, 1e7], [0.04, 0, 0, 0, 1, 0, 2.6, 5.0]])
    found = written(columns, x, [1, 0, 0, 0, 0, 0, 0, FREE])
    assert found == [["2.5", "red", "3", "0.333333"], ["", "", "0", "1e+07"], ["0.0", "(other)", "3", "5"]]
    assert as_csv(["a", "b"], [["x, y", 'say "no"'], ["", "2"]]) == 'a,b\n"x, y","say ""no"""\n,2\n'


@pytest.mark.parametrize(("values", "expected"), [
    ([1, 5, 1e6], 0), ([14.23, 2.1], 2), ([0.001, 12345.678], 3), ([0.1234567, 3.7654321], FREE), ([-3.5, 0], 1), ([2.0**24], 0),
])
def test_decimals(values, expected):
    assert decimals(torch.tensor(values, dtype=torch.float32)) == expected


def test_a_hard_choice_has_the_softmaxs_gradient():
    logits = torch.randn(6, 4, requires_grad=True)
    weight = torch.randn(6, 4)
    (hard(logits) * weight).sum().backward()
    soft = logits.detach().requires_grad_()
    (soft.softmax(1) * weight).sum().backward()
    torch.testing.assert_close(logits.grad, soft.grad)
    assert torch.equal(hard(logits).detach().round(), torch.nn.functional.one_hot(logits.argmax(1), 4).float())
    words, z = RowGenerator.example(5)
    x = RowGenerator(**words)(z).detach()
    torch.testing.assert_close(x[:, 1:4].sum(1), torch.ones(5))
    assert x.shape == (5, 7) and ((x[:, 5] - x[:, 5].round()).abs() < 1e-6).all() and not torch.equal(x[:, 0], x[:, 0].round())


def test_a_flow_reads_what_comes_in_steps_and_rounds_it_back(data, rows):
    torch.manual_seed(0)
    batch = batch_of(data)
    r = rows.encoded(batch)
    flow = RowFlow(RealNVP(shape=(rows.width,), hidden=8, steps=2), rows, r)
    for u in (torch.full((len(r), 5), 0.01), torch.rand(len(r), 5), torch.full((len(r), 5), 0.99)):
        back = flow.unfolded(flow.continuous(batch, u)[0])
        there = r[:, 1] == 0
        torch.testing.assert_close(back[there], r[there], atol=1e-4, rtol=0)
        torch.testing.assert_close(back[:, 1:], r[:, 1:], atol=1e-4, rtol=0)       # a missing number may be any
    x = flow.walk(flow.codes(200, torch.Generator().manual_seed(0)))
    assert torch.equal(x[:, 2:5].sum(1), torch.ones(200)) and torch.equal(x[:, 5], x[:, 5].round())


def test_noise_for_a_missing_number_costs_nothing(data, rows):
    """Under a flow that says N(μ, σ²) of every column, what is missing is as likely as the noise in its place."""
    batch = batch_of(data)
    r = rows.encoded(batch)
    flow = RowFlow(torch.nn.Identity(), rows, r)
    flow.network = Normal01()
    u = torch.rand(len(r), 5, generator=torch.Generator().manual_seed(0))
    v = flow.flat(r) + (u - 0.5) * torch.tensor([0.1, 1, 1, 1, 1])
    there = torch.ones(len(r), 5)
    there[:, 0] -= r[:, 1]
    expected = -(Normal(flow.mean, flow.std).log_prob(v) * there).sum(1)
    torch.testing.assert_close(flow.nll(batch, u), expected, atol=0.003, rtol=0)   # of either tail a thousandth is cut off
    torch.testing.assert_close(flow.judge(batch)["loss"], flow.nll(batch, flow.noises[batch["row"] % len(flow.noises)]))
    torch.manual_seed(0)
    loss = flow.loss(batch)["loss"]
    torch.manual_seed(0)
    torch.testing.assert_close(loss, flow.nll(batch, torch.rand(len(r), 5)).mean())


class Normal01(torch.nn.Module):
    def forward(self, x):
        return Normal(0.0, 1.0).log_prob(x).sum(1)


def test_a_flow_of_numbers_without_steps_is_the_plain_one():
    data = load("moons")
    rows = Rows(data, joint=False)
    torch.manual_seed(0)
    network = RealNVP(shape=(2,), hidden=8, steps=2)
    batch = batch_of(data)
    mine, plain = RowFlow(network, rows, batch["x"]), Flow(network, data.mean, data.std)
    torch.testing.assert_close(mine.judge(batch)["loss"], plain.judge(batch)["loss"], atol=1e-4, rtol=0)


def test_the_bound_is_below_the_chance_of_a_category():
    """Of one category alone P(k) is known: the nats of a flow, judged over many u, are no fewer than the entropy."""
    torch.manual_seed(0)
    data = load("iris")
    bare = data.train.columns | {"x": torch.zeros(len(data.train), 0)}
    rows = Rows(replace(data, encoder=replace(data.encoder, columns=()), train=replace(data.train, columns=bare)), joint=True)
    assert rows.width == 1 and rows.categories == [(0, 3)]
    y = torch.randint(3, (4000,))
    flow = RowFlow(RealNVP(shape=(1,), hidden=8, steps=2), rows, torch.nn.functional.one_hot(y, 3).float())
    batch = {"x": torch.zeros(4000, 0), "y": y, "row": torch.arange(4000)}
    with torch.no_grad():
        assert float(flow.judge(batch)["loss"].mean()) >= np.log(3) - 0.05
