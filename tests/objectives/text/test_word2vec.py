"""Negative sampling: by hand, by its gradient, and at its optimum, where the product of two vectors is known."""

from math import log

import pytest
import torch
from torch.nn.functional import logsigmoid

from didact.models.text.word2vec import Word2Vec
from didact.objectives.text.word2vec import NegativeSamplingObjective, negative_sampling


def make_objective(architecture="skipgram", *, V=9, D=4, counts=None, **options):
    torch.manual_seed(0)
    network = Word2Vec(V, embed_dim=D)
    for table in (network.v, network.u):
        torch.nn.init.normal_(table.weight[1:])
    return NegativeSamplingObjective(
        network,
        torch.tensor([0, 0, *range(1, V - 1)]) if counts is None else counts,
        architecture=architecture,
        **options,
    )


def make_batch(B=5, C=4, V=9):
    x, y = torch.randint(2, V, (B, C)), torch.randint(2, V, (B,))
    x[0, :2] = 0
    return {"x": x, "y": y, "row": torch.arange(B)}


def test_negative_sampling_of_zero_scores_costs_one_bit_per_score():
    for k in (1, 5, 15):
        assert float(negative_sampling(torch.zeros(()), torch.zeros(7), k)) == pytest.approx((1 + k) * log(2))


def test_negative_sampling_gradient_matches_the_paper():
    v, u = torch.randn(4, dtype=torch.double, requires_grad=True), torch.randn(6, 4, dtype=torch.double)
    negative_sampling(u[0] @ v, u[1:] @ v, k=5).backward()
    with torch.no_grad():
        expected = (torch.sigmoid(u[0] @ v) - 1) * u[0] + (torch.sigmoid(u[1:] @ v)[:, None] * u[1:]).sum(0)
    torch.testing.assert_close(v.grad, expected)


def test_skipgram_and_cbow_swap_inputs_and_targets():
    batch = make_batch()
    (h, o), (g, q) = (
        make_objective("skipgram").hidden_and_targets(batch),
        make_objective("cbow").hidden_and_targets(batch),
    )
    assert torch.equal(o, batch["x"]) and torch.equal(q[:, 0], batch["y"])
    table = make_objective().network.v.weight
    torch.testing.assert_close(h, table[batch["y"]])
    torch.testing.assert_close(g[0], table[batch["x"][0, 2:]].mean(0))            # of the two words that are present


def test_negative_sampling_loss_matches_hand_values():
    batch, objective = make_batch(), make_objective(num_negatives=3, num_noise_words=7, expected_pairs=2.0)
    torch.manual_seed(1)
    noise = objective.sample_negatives(torch.rand(7))
    torch.manual_seed(1)
    v, u = objective.network.v.weight, objective.network.u.weight
    total = 0.0
    for y, row in zip(batch["y"], batch["x"], strict=True):
        for o in row[row != 0]:
            total += -logsigmoid(u[o] @ v[y]) - 3 / 7 * sum(logsigmoid(-u[n] @ v[y]) for n in noise)
    torch.testing.assert_close(objective.loss(batch)["loss"], total / (2.0 * 5))


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_negative_sampling_micro_batches_add_up_and_empty_windows_cost_nothing(architecture):
    batch, objective = make_batch(B=6), make_objective(architecture)
    batch["x"][3] = 0
    losses = []
    for part in ({k: v[:4] for k, v in batch.items()}, {k: v[4:] for k, v in batch.items()}, batch):
        torch.manual_seed(2)
        losses.append(objective.loss(part)["loss"])
    torch.testing.assert_close((4 * losses[0] + 2 * losses[1]) / 6, losses[2])
    empty_window = {k: v[3:4] for k, v in batch.items()}
    assert (
        objective.loss(empty_window)["loss"].item() == 0 and objective.evaluate_batch(empty_window)["pairs"].item() == 0
    )


def test_sample_negatives_follows_counts_to_three_quarters():
    counts = torch.tensor([0, 0, 16, 81, 1, 0, 256])
    objective = make_objective(V=7, counts=counts)
    frequencies = (
        torch.bincount(
            objective.sample_negatives(torch.rand(200_000, generator=torch.Generator().manual_seed(0))), minlength=7
        )
        / 200_000
    )
    torch.testing.assert_close(frequencies, torch.tensor([0, 0, 8, 27, 1, 0, 64]) / 100, atol=0.004, rtol=0)
    # never padding, never after the end
    assert objective.sample_negatives(torch.tensor([0.0, 1.0 - 2**-24])).tolist() == [2, 6]


def test_negative_sampling_evaluation_is_the_expected_training_loss():
    """The mean over sampled windows, kept words and noise is the evaluated loss, where the noise is uniform."""
    from didact.data.text.skipgram import make_subsampler

    counts, keep = torch.tensor([0, 0, 4, 4, 4, 4]), torch.tensor([1.0, 1.0, 0.9, 0.3, 0.6, 0.8])
    objective = make_objective(V=6, counts=counts, keep=keep, num_noise_words=64)
    batch, subsample, g = make_batch(B=3, C=4, V=6), make_subsampler(keep), torch.Generator().manual_seed(0)
    with torch.no_grad():
        repeated_batch = {name: column.repeat_interleave(20_000, 0) for name, column in batch.items()}
        torch.manual_seed(0)
        mean_loss = torch.stack([objective.loss(subsample(repeated_batch, g))["loss"] for _ in range(8)]).mean()
        outputs = objective.evaluate_batch(batch)
        # a sum over pairs, as `loss` with pairs=1
        expected = (outputs["loss"] * outputs["pairs"]).sum() / len(batch["y"])
    torch.testing.assert_close(mean_loss, expected, rtol=0.03, atol=0)


def test_negative_sampling_optimum_is_the_shifted_mutual_information():
    """u_oᵀ v_w = log P(o | w) / (k P_n(o)) for vectors of full rank: Levy and Goldberg 2014, eq. 7."""
    torch.manual_seed(0)
    joint = torch.rand(5, 5) + 0.05
    pairs = torch.multinomial(joint.flatten(), 300, replacement=True)
    w, o = pairs // 5, pairs % 5
    counts = torch.tensor([0, 0, 5, 1, 3, 2, 4])
    objective = NegativeSamplingObjective(
        Word2Vec(7, embed_dim=8), counts, num_negatives=2, num_noise_words=256, power=1.0
    )
    batch = {"x": torch.stack([o + 2, torch.zeros_like(o)], 1), "y": w + 2, "row": pairs}
    optimizer = torch.optim.Adam(objective.parameters())
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 0.03 * (1 - step / 400)
        optimizer.zero_grad()
        objective.loss(batch)["loss"].backward()
        optimizer.step()
    pair_counts = torch.zeros(5, 5).index_put((w, o), torch.ones(len(w)), accumulate=True)
    expected = (pair_counts / pair_counts.sum(1, keepdim=True) / (2 * counts[2:] / 15)).log()
    products = objective.network.v.weight[2:] @ objective.network.u.weight[2:].T
    torch.testing.assert_close(products.detach(), expected, atol=0.12, rtol=0)


def test_word2vec_embeds_texts_as_means_and_lists_nearest_words():
    objective = make_objective(probes=(3, 5))
    table = objective.network.v.weight.detach()
    texts = torch.tensor([[3, 0, 0], [4, 6, 0], [0, 0, 0]])
    torch.testing.assert_close(
        objective.embed({"x": texts}), torch.stack([table[3], (table[4] + table[6]) / 2, torch.zeros(4)])
    )
    neighbors = objective.gallery({"x": texts})["neighbors"].detach()
    similarity = torch.nn.functional.cosine_similarity(table[3], table[2:], dim=1)
    similarity[1] = -9                                                                    # not itself
    assert neighbors.shape == (2, 7, 2) and neighbors[0, 0].tolist() == [3, 1]
    assert int(neighbors[0, 1, 0]) == int(similarity.argmax()) + 2 and float(neighbors[0, 1, 1]) == pytest.approx(
        float(similarity.max())
    )
