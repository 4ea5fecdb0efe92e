"""Negative sampling: by hand, by its gradient, and at its optimum, where the product of two vectors is known."""

from math import log

import pytest
import torch
from torch.nn.functional import logsigmoid

from didact.models.word2vec import Word2Vec
from didact.objectives.word_vectors import NegativeSampling, negative_sampling


def objective(way="skipgram", *, V=9, D=4, counts=None, **more):
    torch.manual_seed(0)
    network = Word2Vec(V, dim=D)
    for table in (network.v, network.u):
        torch.nn.init.normal_(table.weight[1:])
    return NegativeSampling(network, torch.tensor([0, 0, *range(1, V - 1)]) if counts is None else counts, way=way, **more)


def some(B=5, C=4, V=9):
    x, y = torch.randint(2, V, (B, C)), torch.randint(2, V, (B,))
    x[0, :2] = 0
    return {"x": x, "y": y, "row": torch.arange(B)}


def test_where_nothing_is_known_a_pair_costs_one_bit_for_each_score():
    for k in (1, 5, 15):
        assert float(negative_sampling(torch.zeros(()), torch.zeros(7), k)) == pytest.approx((1 + k) * log(2))


def test_the_gradient_is_the_papers():
    v, u = torch.randn(4, dtype=torch.double, requires_grad=True), torch.randn(6, 4, dtype=torch.double)
    negative_sampling(u[0] @ v, u[1:] @ v, k=5).backward()
    with torch.no_grad():
        by_hand = (torch.sigmoid(u[0] @ v) - 1) * u[0] + (torch.sigmoid(u[1:] @ v)[:, None] * u[1:]).sum(0)
    torch.testing.assert_close(v.grad, by_hand)


def test_skipgram_and_cbow_read_opposite_ways():
    batch = some()
    (h, o), (g, q) = objective("skipgram").read(batch), objective("cbow").read(batch)
    assert torch.equal(o, batch["x"]) and torch.equal(q[:, 0], batch["y"])
    table = objective().network.v.weight
    torch.testing.assert_close(h, table[batch["y"]])
    torch.testing.assert_close(g[0], table[batch["x"][0, 2:]].mean(0))            # of the two words that are there


def test_the_loss_of_a_batch_by_hand():
    batch, told = some(), objective(k=3, draws=7, pairs=2.0)
    torch.manual_seed(1)
    noise = told.drawn(torch.rand(7))
    torch.manual_seed(1)
    v, u = told.network.v.weight, told.network.u.weight
    total = 0.0
    for y, row in zip(batch["y"], batch["x"], strict=True):
        for o in row[row != 0]:
            total += -logsigmoid(u[o] @ v[y]) - 3 / 7 * sum(logsigmoid(-u[n] @ v[y]) for n in noise)
    torch.testing.assert_close(told.loss(batch)["loss"], total / (2.0 * 5))


@pytest.mark.parametrize("way", ["skipgram", "cbow"])
def test_micro_batches_add_up_and_empty_windows_cost_nothing(way):
    batch, told = some(B=6), objective(way)
    batch["x"][3] = 0
    losses = []
    for part in ({k: v[:4] for k, v in batch.items()}, {k: v[4:] for k, v in batch.items()}, batch):
        torch.manual_seed(2)
        losses.append(told.loss(part)["loss"])
    torch.testing.assert_close((4 * losses[0] + 2 * losses[1]) / 6, losses[2])
    alone = {k: v[3:4] for k, v in batch.items()}
    assert told.loss(alone)["loss"].item() == 0 and told.judge(alone)["pairs"].item() == 0


def test_noise_is_drawn_as_counts_to_three_quarters():
    counts = torch.tensor([0, 0, 16, 81, 1, 0, 256])
    told = objective(V=7, counts=counts)
    drawn = torch.bincount(told.drawn(torch.rand(200_000, generator=torch.Generator().manual_seed(0))), minlength=7) / 200_000
    torch.testing.assert_close(drawn, torch.tensor([0, 0, 8, 27, 1, 0, 64]) / 100, atol=0.004, rtol=0)
    assert told.drawn(torch.tensor([0.0, 1.0 - 2**-24])).tolist() == [2, 6]        # never padding, never behind the end


def test_judging_is_what_learning_costs_on_average():
    """The mean over drawn windows, kept words and noise is the loss that is judged, where the noise is even."""
    from didact.data.neighbours import thinning

    counts, keep = torch.tensor([0, 0, 4, 4, 4, 4]), torch.tensor([1.0, 1.0, 0.9, 0.3, 0.6, 0.8])
    told = objective(V=6, counts=counts, keep=keep, draws=64)
    batch, thin, g = some(B=3, C=4, V=6), thinning(keep), torch.Generator().manual_seed(0)
    with torch.no_grad():
        many = {name: column.repeat_interleave(20_000, 0) for name, column in batch.items()}
        torch.manual_seed(0)
        drawn = torch.stack([told.loss(thin(many, g))["loss"] for _ in range(8)]).mean()
        rows = told.judge(batch)
        expected = (rows["loss"] * rows["pairs"]).sum() / len(batch["y"])           # a sum over pairs, as `loss` with pairs=1
    torch.testing.assert_close(drawn, expected, rtol=0.03, atol=0)


def test_at_the_optimum_a_product_is_the_shifted_mutual_information():
    """u_oᵀ v_w = log P(o | w) / (k P_n(o)): Levy and Goldberg 2014, eq. 7, where the vectors have room for every pair."""
    torch.manual_seed(0)
    joint = torch.rand(5, 5) + 0.05
    pairs = torch.multinomial(joint.flatten(), 300, replacement=True)
    w, o = pairs // 5, pairs % 5
    counts = torch.tensor([0, 0, 5, 1, 3, 2, 4])
    told = NegativeSampling(Word2Vec(7, dim=8), counts, k=2, draws=256, power=1.0)
    batch = {"x": torch.stack([o + 2, torch.zeros_like(o)], 1), "y": w + 2, "row": pairs}
    optimizer = torch.optim.Adam(told.parameters())
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 0.03 * (1 - step / 400)
        optimizer.zero_grad()
        told.loss(batch)["loss"].backward()
        optimizer.step()
    seen = torch.zeros(5, 5).index_put((w, o), torch.ones(len(w)), accumulate=True)
    closed = (seen / seen.sum(1, keepdim=True) / (2 * counts[2:] / 15)).log()
    found = told.network.v.weight[2:] @ told.network.u.weight[2:].T
    torch.testing.assert_close(found.detach(), closed, atol=0.12, rtol=0)


def test_texts_are_means_and_the_gallery_names_the_nearest():
    told = objective(probes=(3, 5))
    table = told.network.v.weight.detach()
    texts = torch.tensor([[3, 0, 0], [4, 6, 0], [0, 0, 0]])
    torch.testing.assert_close(told.embed({"x": texts}), torch.stack([table[3], (table[4] + table[6]) / 2, torch.zeros(4)]))
    grid = told.gallery({"x": texts})["neighbours"].detach()
    like = torch.nn.functional.cosine_similarity(table[3], table[2:], dim=1)
    like[1] = -9                                                                    # not itself
    assert grid.shape == (2, 7, 2) and grid[0, 0].tolist() == [3, 1]
    assert int(grid[0, 1, 0]) == int(like.argmax()) + 2 and float(grid[0, 1, 1]) == pytest.approx(float(like.max()))
