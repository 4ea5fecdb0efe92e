"""The recipe for tables: folds, what each member is trained on, and predictions from the folder of the run."""

import pytest
import torch

import didact
from didact.data.bin_edges import MAX_BINS, compute_bin_edges
from didact.data.folds import assign_folds, pool_folds
from didact.data.load import load
from didact.layers.piecewise_linear import PiecewiseLinearEncoding
from didact.models.tabular.ensemble import TabularEnsemble
from didact.registry import RECIPES
from didact.training.prepare import prepare
from didact.training.restore import load_model


def make_experiment(data="iris", **options):
    return prepare(RECIPES["tabular"], {"data": data, **options}).experiment


def test_folds_are_of_equal_size_and_stratified():
    y = torch.tensor([0] * 40 + [1] * 20)
    folds = assign_folds(60, y, 4)
    assert torch.bincount(folds).tolist() == [15] * 4
    assert all(torch.bincount(y[folds == k]).tolist() == [10, 5] for k in range(4))
    assert not torch.equal(folds, assign_folds(60, y, 4, seed=1))


def test_pooled_rows_are_training_and_validation_rows():
    data = load("iris")
    pooled = pool_folds(data, 5)
    assert pooled.train is pooled.validation and pooled.test is data.test
    expected = torch.cat([data.train.columns["x"], data.validation.columns["x"]])
    assert torch.equal(pooled.train.columns["x"], expected)


def test_member_gets_no_gradient_from_its_own_fold():
    objective = make_experiment(members=3, hidden=(4,), dropout=0.0).objective
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    for k in range(3):
        objective.zero_grad()
        objective.loss({"x": x, "y": y, "fold": torch.full((6,), k)})["loss"].backward()
        gradient = objective.network.head.weight.grad                            # (members, …)
        assert [bool(g.any()) for g in gradient] == [member != k for member in range(3)]


def test_loss_is_the_mean_of_the_other_members_losses():
    objective = make_experiment(members=3, hidden=(4,), dropout=0.0).objective
    x, y, fold = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 0, 1, 1, 2, 2])
    outputs = objective.network(x)
    expected = torch.stack([
        torch.nn.functional.cross_entropy(outputs[i, [k for k in range(3) if k != fold[i]]], y[i].repeat(2))
        for i in range(6)
    ]).mean()
    torch.testing.assert_close(objective.loss({"x": x, "y": y, "fold": fold})["loss"], expected)


def test_rows_with_a_fold_are_predicted_by_the_member_that_left_it_out():
    objective = make_experiment(members=3, hidden=(4,)).objective.eval()
    x, y, fold = torch.randn(5, 4), torch.zeros(5, dtype=torch.long), torch.tensor([2, 0, 1, 1, 2])
    outputs = objective.network(x)
    out_of_fold = objective.evaluate_batch({"x": x, "y": y, "fold": fold})["output"]
    torch.testing.assert_close(out_of_fold, outputs[torch.arange(5), fold])
    mean = objective.evaluate_batch({"x": x, "y": y})["output"]
    torch.testing.assert_close(mean.exp(), outputs.softmax(-1).mean(1))


def test_noise_is_learned_by_heart_and_not_predicted_out_of_fold(workdir):
    x = torch.randn(150, 8, generator=torch.Generator().manual_seed(0))
    y = torch.randn(150, generator=torch.Generator().manual_seed(1))
    rows = [",".join(f"{v:.5f}" for v in row) for row in torch.cat([x, y[:, None]], 1).tolist()]
    (workdir / "noise.csv").write_text("\n".join([",".join("abcdefghy"), *rows]))
    run = didact.train("tabular", data="noise.csv", members=4, dropout=0.0, epochs=60, patience=200)
    last_train_loss = [row["train"]["loss"] for row in run.metrics if "train" in row][-1]
    best_r2 = max(row["validation"]["r2"] for row in run.metrics if "validation" in row)
    assert last_train_loss < 0.1 and best_r2 < 0.1


def test_regression_stays_in_the_range_of_the_training_targets(workdir):
    run = didact.train("tabular", data="diabetes", epochs=20, members=2, hidden=(32,))
    objective, _ = load_model(run)
    y = load("diabetes").train.columns["y"]
    mean = objective.eval().regress({"x": torch.tensor([[-9.0], [9.0]]).expand(2, 10)}).mean
    assert objective.regress({"x": torch.zeros(1, 10)}).std is None       # the members' disagreement is no interval
    assert (mean >= y.min() - 1e-3).all() and (mean <= y.max() + 1e-3).all()


@pytest.mark.parametrize("n", [5, 40, 1000])
def test_encoding_is_linear_in_each_bin(n):
    x = torch.randn(n, 1, generator=torch.Generator().manual_seed(0)).exp()
    edges = compute_bin_edges(x)
    encoding = PiecewiseLinearEncoding(edges)
    assert len(edges[0]) <= MAX_BINS + 1 and encoding(x).shape == (n, encoding.num_outputs)
    a, b = edges[0][1], edges[0][2]
    inside = torch.linspace(a, b, 5)[:, None]
    e = (inside - encoding.left) / encoding.width                                # of the bin itself: 0 to 1
    torch.testing.assert_close(e[:, 1], torch.linspace(0, 1, 5))
    e1 = encoding(inside)[:, 1]
    torch.testing.assert_close(e1 * (1 + (e[:, 1] / 3) ** 2).sqrt(), torch.linspace(0, 1, 5))


def test_bins_reach_the_few_large_values_among_many_zeros():
    x = torch.zeros(10_000, 1)
    x[:300, 0] = torch.linspace(1, 1000, 300)
    (edges,) = compute_bin_edges(x)
    assert sum(edge > 1 for edge in edges) >= 8


def test_constant_features_have_no_bins_and_two_values_are_standardized():
    x = torch.tensor([[1.0, 0.0, 3.0], [1.0, 1.0, 4.0], [1.0, 1.0, 5.0]])
    edges = compute_bin_edges(x)
    assert [len(e) for e in edges] == [0, 2, 3]
    encoding = PiecewiseLinearEncoding(edges, x.mean(0), x.std(0))
    assert encoding.num_outputs == 1 + 2 + 1
    torch.testing.assert_close(encoding(x)[:, -1], (x[:, 1] - x[:, 1].mean()) / x[:, 1].std())


def test_one_member_predicts_as_the_whole_network_does():
    torch.manual_seed(0)
    network = TabularEnsemble(((0.0, 1.0), (-2.0, -0.5, 0.1, 3.0)), 2, members=3, hidden=(6, 5)).eval()
    x, members = torch.randn(7, 2), torch.tensor([0, 2, 2, 1, 0, 2, 0])
    torch.testing.assert_close(network.predict_with_members(x, members), network(x)[torch.arange(7), members])


@pytest.mark.parametrize("kind", ["number", "two_values", "category", "constant", "date"])
def test_tables_whose_inputs_are_all_of_one_kind(workdir, kind):
    cells = {
        "number": lambda i: f"{i / 7:.3f}",
        "two_values": lambda i: str(i % 2),
        "category": lambda i: ("red", "green", "blue")[i % 3],
        "constant": lambda i: "1",
        "date": lambda i: f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}",
    }[kind]
    (workdir / "t.csv").write_text("a,y\n" + "".join(f"{cells(i)},{i % 5 / 2 + 0.25}\n" for i in range(40)))
    run = didact.train("tabular", data="t.csv", target="y", members=2, hidden=(4,), epochs=1)
    assert run.metadata["test"]["mae"] < 10
