"""Rates by group against counting, the identity behind exercise 12.1, groups of a table, and a training set without the bias."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from didact.cli.main import main
from didact.data.balance import independent, shared
from didact.data.groups import groups
from didact.data.load import load
from didact.errors import UsageError
from didact.trust.fairness import gaps, rates


def test_rates_are_shares_of_rows():
    g = torch.Generator().manual_seed(0)
    yes, y, group = (torch.randint(n, (500,), generator=g) for n in (2, 2, 3))
    found = rates(yes, y, group, 3)
    for k in range(3):
        own = [(yes[i], y[i]) for i in range(500) if group[i] == k]
        assert float(found[k, 0]) == pytest.approx(np.mean([a for a, _ in own]))
        assert float(found[k, 1]) == pytest.approx(np.mean([a for a, b in own if b == 1]))
        assert float(found[k, 2]) == pytest.approx(np.mean([a for a, b in own if b == 0]))


def test_equal_odds_leave_a_gap_of_parity():
    """Gaba exercise 12.1: with one TPR and one FPR for both, the gap is (TPR − FPR)(π_a − π_b)."""
    y = torch.tensor([1] * 60 + [0] * 40 + [1] * 20 + [0] * 80)
    group = torch.tensor([0] * 100 + [1] * 100)
    yes = torch.tensor([1] * 45 + [0] * 15 + [1] * 10 + [0] * 30 + [1] * 15 + [0] * 5 + [1] * 20 + [0] * 60)     # TPR ¾, FPR ¼
    found = gaps(rates(yes, y, group, 2))
    assert found["equalised_odds"] == 0 and found["demographic_parity"] == pytest.approx((0.75 - 0.25) * (0.6 - 0.2))


def test_a_group_without_positives_does_not_count():
    found = rates(torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1]), 3)
    assert found[0, 1].isnan() and found[2].isnan().all()
    told = gaps(found)
    assert told["demographic_parity"] == pytest.approx(0.5)
    assert np.isnan([told["equal_opportunity"], told["equalised_odds"], told["predictive_equality"]]).all(), "one group alone has no gap"


@pytest.fixture
def loans(tmp_path):
    """Two towns with unlike shares of yes, of which the income tells as much again."""
    rng, path = np.random.default_rng(0), tmp_path / "loans.csv"
    town, income = rng.choice(["Gent", "Brugge"], 600), rng.normal(size=600).round(3)
    given = np.where(income + 2 * (town == "Gent") + 2 * rng.normal(size=600) > 1, "yes", "no")
    path.write_text("town,income,given\n" + "".join(f"{a},{b},{c}\n" for a, b, c in zip(town, income, given, strict=True)))
    return path


def test_groups_of_a_table(loans):
    data = load(str(loans), target="given")
    x, towns, halves = data.train.columns["x"], groups(data, "town", "--by"), groups(data, "income", "--by")
    assert towns.names == ("Brugge", "Gent", "(unknown)") and set(towns.of(x).tolist()) == {0, 1}
    assert torch.equal(towns.of(x), x[:, 1].long()), "the second feature is town=Gent"
    assert halves.names[0].startswith("income ≤ ") and abs(float(halves.of(x).float().mean()) - 0.5) < 0.01
    assert towns.of(data.encoder.read(["town=Paris,income=1"])[1]["x"]).tolist() == [2]
    with pytest.raises(UsageError, match="no column named 'twon'; did you mean 'town'"):
        groups(data, "twon", "--by")


def column_of(values: list[str], tmp_path):
    """A table with this column, and a class that goes its own way."""
    path = tmp_path / "column.csv"
    path.write_text("c,z,y\n" + "".join(f"{v},{i % 7},{'no' if i % 3 else 'yes'}\n" for i, v in enumerate(values)))
    return load(str(path), target="y")


@pytest.mark.parametrize(("values", "names", "shares"), [
    (["1", "1", "1", "0", "0"] * 40, ("c=0", "c=1", "(unknown)"), (0.4, 0.6)),             # the median is 1, and not everybody's
    (["9"] * 120 + [str(k % 9) + ".5" for k in range(80)], ("c=0.5", "c=1.5"), ()),        # ten different numbers are a group each
    (["99"] * 120 + [str(k) for k in range(80)], ("c < 99", "c ≥ 99", "(unknown)"), (0.4, 0.6)),
    (["1", "2", "", "2"] * 50, ("c=1", "c=2", "c missing"), (0.25, 0.5, 0.25)),
    (["a", "(missing)", "", "b"] * 50, ("(missing)", "a", "b", "(missing)′", "(unknown)"), ()),
])
def test_how_a_column_is_told_apart(tmp_path, values, names, shares):
    data = column_of(values, tmp_path)
    found = groups(data, "c", "--by")
    x = torch.cat([data.split(part).columns["x"] for part in ("train", "validation", "test")])
    assert found.names[: len(names)] == names
    counts = torch.bincount(found.of(x), minlength=len(found.names)) / len(x)
    assert counts[: len(shares)].tolist() == pytest.approx(shares)
    assert float(counts.sum()) == pytest.approx(1)


def test_numbers_that_come_with_scikit_learn_are_halved():
    data = load("breast_cancer")
    found = groups(data, "mean radius", "--by")
    assert abs(float(found.of(data.test.columns["x"]).float().mean()) - 0.5) < 0.15


def test_a_column_that_is_the_same_everywhere_tells_nothing_apart(tmp_path):
    data = column_of(["1", "2"] * 100, tmp_path)
    alike = replace(data, train=data.train.pick((data.train.columns["x"][:, 0] == 1).nonzero()[:, 0]))
    with pytest.raises(UsageError, match="--by c: all training rows are of one group, 'c=1'"):
        groups(alike, "c", "--by")


def test_a_group_without_a_class_cannot_be_redrawn(tmp_path):
    path = tmp_path / "lack.csv"
    path.write_text("g,z,y\n" + "".join(f"{'A' if i % 2 else 'B'},{i % 5},{'yes' if i % 2 or i % 4 else 'no'}\n" for i in range(200)))
    with pytest.raises(UsageError, match="--reweigh g: 'A' has no training row of class 'no' to be repeated"):
        independent(load(str(path), target="y"), "g")


def test_whole_parts_add_up():
    assert shared(10, torch.tensor([1.0, 1.0, 1.0])) in ([4, 3, 3], [3, 4, 3], [3, 3, 4])
    assert shared(7, torch.tensor([0.4, 0.5, 6.1])) == [0, 1, 6]


def test_redrawn_rows_make_group_and_class_independent(loans):
    data = load(str(loans), target="given")

    def table(data) -> torch.Tensor:
        group = groups(data, "town", "--by").of(data.train.columns["x"])
        return torch.stack([torch.bincount(data.train.columns["y"][group == k], minlength=2) for k in (0, 1)]).double()

    before, after = table(data), table(independent(data, "town"))
    assert abs(before[0, 1] / before[0].sum() - before[1, 1] / before[1].sum()) > 0.2
    expected = before.sum(1, keepdim=True) * before.sum(0) / before.sum()
    assert float((after - expected).abs().max()) <= 1, "rounded"
    assert torch.equal(after.sum(0), before.sum(0)) and float((after.sum(1) - before.sum(1)).abs().max()) <= 2, "and neither share changed"


def test_evaluate_by_a_column(loans, tmp_path, capsys):
    gap = []
    for more in ([], ["--reweigh", "town"]):
        assert main(["train", "mlp", "--data", str(loans), "--steps", "300", "--runs", str(tmp_path), "--json", *more]) == 0
        run = json.loads(capsys.readouterr().out)["run"]
        assert main(["evaluate", run, "--by", "town", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        groups = found["test_by_group"]
        assert list(groups) == ["Brugge", "Gent"] and sum(g["rows"] for g in groups.values()) == 90
        whole = sum(g["rows"] * g["accuracy"] for g in groups.values()) / 90
        assert found["test"]["accuracy"] == pytest.approx(whole)
        assert found["test_gaps"]["demographic_parity"] == pytest.approx(abs(groups["Gent"]["yes"] - groups["Brugge"]["yes"]))
        gap.append(found["validation_gaps"]["demographic_parity"] + found["test_gaps"]["demographic_parity"])
    assert gap[1] < gap[0] - 0.1, "less apart where training had them independent"
    assert main(["evaluate", run, "--by", "town"]) == 0
    told = capsys.readouterr().out
    assert "test by town" in told and "demographic parity gap" in told and "the answer 'yes'" in told


@pytest.mark.parametrize(("words", "expected"), [
    (["--by", "town", "--int8"], "--by and --int8 are two questions"),
    (["--by", "twon"], "no column named 'twon'"),
])
def test_mistakes(loans, tmp_path, capsys, words, expected):
    assert main(["train", "mlp", "--data", str(loans), "--steps", "2", "--runs", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, *words]) == 2
    told = capsys.readouterr().err
    assert expected in told and told.count("\n") == 1


def test_images_have_no_columns(tmp_path, capsys):
    assert main(["train", "mlp", "--steps", "2", "--runs", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, "--by", "sex"]) == 2
    assert "--by expects a column of a table, but 'digits' holds images" in capsys.readouterr().err
    assert main(["train", "mlp", "--reweigh", "sex", "--runs", str(tmp_path)]) == 2
    assert "--reweigh expects a column of a table, but 'digits' holds images" in capsys.readouterr().err
    assert main(["train", "mlp", "--data", "diabetes", "--reweigh", "sex", "--runs", str(tmp_path)]) == 2
    assert "--reweigh is for classes, but the targets of 'diabetes' are regression" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["bagging", "scratch_mlp", "mlp_wide_deep"])
def test_gaps_of_any_classifier(loans, tmp_path, capsys, recipe):
    assert main(["train", recipe, "--data", str(loans), "--steps", "20", "--runs", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, "--by", "town", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["test_gaps"]) >= {"demographic_parity", "equalised_odds"}
