"""Group rates against counting, the identity behind exercise 12.1, groups of a table, and a training set without the
bias.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from didact.cli.main import main
from didact.data.balance import apportion_counts, reweigh_groups
from didact.data.groups import make_groups
from didact.data.load import load
from didact.errors import UsageError
from didact.metrics.fairness import fairness_gaps, group_rates


def test_group_rates_are_shares_of_rows():
    g = torch.Generator().manual_seed(0)
    yes, y, group = (torch.randint(n, (500,), generator=g) for n in (2, 2, 3))
    measured_rates = group_rates(yes, y, group, 3)
    for k in range(3):
        group_rows = [(yes[i], y[i]) for i in range(500) if group[i] == k]
        assert float(measured_rates[k, 0]) == pytest.approx(np.mean([a for a, _ in group_rows]))
        assert float(measured_rates[k, 1]) == pytest.approx(np.mean([a for a, b in group_rows if b == 1]))
        assert float(measured_rates[k, 2]) == pytest.approx(np.mean([a for a, b in group_rows if b == 0]))


def test_equal_odds_leave_a_demographic_parity_gap():
    """Gaba exercise 12.1: with one TPR and one FPR for both, the gap is (TPR − FPR)(π_a − π_b)."""
    y = torch.tensor([1] * 60 + [0] * 40 + [1] * 20 + [0] * 80)
    group = torch.tensor([0] * 100 + [1] * 100)
    # TPR ¾, FPR ¼
    yes = torch.tensor([1] * 45 + [0] * 15 + [1] * 10 + [0] * 30 + [1] * 15 + [0] * 5 + [1] * 20 + [0] * 60)
    measured_gaps = fairness_gaps(group_rates(yes, y, group, 2))
    assert measured_gaps["equalized_odds"] == 0 and measured_gaps["demographic_parity"] == pytest.approx(
        (0.75 - 0.25) * (0.6 - 0.2)
    )


def test_group_without_positives_has_no_rates_and_no_gap():
    measured_rates = group_rates(torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1]), 3)
    assert measured_rates[0, 1].isnan() and measured_rates[2].isnan().all()
    measured_gaps = fairness_gaps(measured_rates)
    assert measured_gaps["demographic_parity"] == pytest.approx(0.5)
    assert np.isnan(
        [measured_gaps["equal_opportunity"], measured_gaps["equalized_odds"], measured_gaps["predictive_equality"]]
    ).all(), "one group alone has no gap"


@pytest.fixture
def loans_csv(tmp_path):
    """Two towns with unequal rates of yes, of which the income tells as much."""
    rng, path = np.random.default_rng(0), tmp_path / "loans.csv"
    town, income = rng.choice(["Gent", "Brugge"], 600), rng.normal(size=600).round(3)
    approved = np.where(income + 2 * (town == "Gent") + 2 * rng.normal(size=600) > 1, "yes", "no")
    path.write_text(
        "town,income,given\n" + "".join(f"{a},{b},{c}\n" for a, b, c in zip(town, income, approved, strict=True))
    )
    return path


def test_make_groups_of_a_table(loans_csv):
    data = load(str(loans_csv), target="given")
    x, town_groups, income_groups = (
        data.train.columns["x"],
        make_groups(data, "town", "--by"),
        make_groups(data, "income", "--by"),
    )
    assert town_groups.names == ("Brugge", "Gent", "(unknown)") and set(town_groups.assign_rows(x).tolist()) == {0, 1}
    assert torch.equal(town_groups.assign_rows(x), x[:, 1].long()), "the second feature is town=Gent"
    assert (
        income_groups.names[0].startswith("income ≤ ")
        and abs(float(income_groups.assign_rows(x).float().mean()) - 0.5) < 0.01
    )
    assert town_groups.assign_rows(data.encoder.read(["town=Paris,income=1"])[1]["x"]).tolist() == [2]
    with pytest.raises(UsageError, match="no column named 'twon'; did you mean 'town'"):
        make_groups(data, "twon", "--by")


def load_column(values: list[str], tmp_path):
    """A table with this column, and a class that is independent of it."""
    path = tmp_path / "column.csv"
    path.write_text("c,z,y\n" + "".join(f"{v},{i % 7},{'no' if i % 3 else 'yes'}\n" for i, v in enumerate(values)))
    return load(str(path), target="y")


@pytest.mark.parametrize(("values", "names", "shares"), [
    # the median is 1, and not everybody's
    (["1", "1", "1", "0", "0"] * 40, ("c=0", "c=1", "(unknown)"), (0.4, 0.6)),
    # ten different numbers are a group each
    (["9"] * 120 + [str(k % 9) + ".5" for k in range(80)], ("c=0.5", "c=1.5"), ()),
    (["99"] * 120 + [str(k) for k in range(80)], ("c < 99", "c ≥ 99", "(unknown)"), (0.4, 0.6)),
    (["1", "2", "", "2"] * 50, ("c=1", "c=2", "c missing"), (0.25, 0.5, 0.25)),
    (["a", "(missing)", "", "b"] * 50, ("(missing)", "a", "b", "(missing)′", "(unknown)"), ()),
])
def test_make_groups_splits_a_column(tmp_path, values, names, shares):
    data = load_column(values, tmp_path)
    column_groups = make_groups(data, "c", "--by")
    x = torch.cat([data.split(part).columns["x"] for part in ("train", "validation", "test")])
    assert column_groups.names[: len(names)] == names
    counts = torch.bincount(column_groups.assign_rows(x), minlength=len(column_groups.names)) / len(x)
    assert counts[: len(shares)].tolist() == pytest.approx(shares)
    assert float(counts.sum()) == pytest.approx(1)


def test_make_groups_halves_numbers_of_scikit_learn_sets():
    data = load("breast_cancer")
    column_groups = make_groups(data, "mean radius", "--by")
    assert abs(float(column_groups.assign_rows(data.test.columns["x"]).float().mean()) - 0.5) < 0.15


def test_make_groups_refuses_a_constant_column(tmp_path):
    data = load_column(["1", "2"] * 100, tmp_path)
    one_group_data = replace(data, train=data.train.subset((data.train.columns["x"][:, 0] == 1).nonzero()[:, 0]))
    with pytest.raises(UsageError, match="--by c: all training rows are of one group, 'c=1'"):
        make_groups(one_group_data, "c", "--by")


def test_reweigh_groups_refuses_a_group_without_a_class(tmp_path):
    path = tmp_path / "lack.csv"
    path.write_text(
        "g,z,y\n"
        + "".join(f"{'A' if i % 2 else 'B'},{i % 5},{'yes' if i % 2 or i % 4 else 'no'}\n" for i in range(200))
    )
    with pytest.raises(UsageError, match="--reweigh g: 'A' has no training row of class 'no' to be repeated"):
        reweigh_groups(load(str(path), target="y"), "g")


def test_apportion_counts_adds_up_to_the_total():
    assert apportion_counts(10, torch.tensor([1.0, 1.0, 1.0])) in ([4, 3, 3], [3, 4, 3], [3, 3, 4])
    assert apportion_counts(7, torch.tensor([0.4, 0.5, 6.1])) == [0, 1, 6]


def test_reweigh_groups_makes_group_and_class_independent(loans_csv):
    data = load(str(loans_csv), target="given")

    def count_groups_by_class(data) -> torch.Tensor:
        group = make_groups(data, "town", "--by").assign_rows(data.train.columns["x"])
        return torch.stack([torch.bincount(data.train.columns["y"][group == k], minlength=2) for k in (0, 1)]).double()

    counts_before, counts_after = count_groups_by_class(data), count_groups_by_class(reweigh_groups(data, "town"))
    assert abs(counts_before[0, 1] / counts_before[0].sum() - counts_before[1, 1] / counts_before[1].sum()) > 0.2
    expected = counts_before.sum(1, keepdim=True) * counts_before.sum(0) / counts_before.sum()
    assert float((counts_after - expected).abs().max()) <= 1, "rounded"
    assert (
        torch.equal(counts_after.sum(0), counts_before.sum(0))
        and float((counts_after.sum(1) - counts_before.sum(1)).abs().max()) <= 2
    ), "and neither share changed"


def test_evaluate_by_column_reports_groups_and_gaps(loans_csv, tmp_path, capsys):
    gap_sums = []
    for options in ([], ["--reweigh", "town"]):
        assert (
            main(
                [
                    "train",
                    "mlp",
                    "--data",
                    str(loans_csv),
                    "--steps",
                    "300",
                    "--runs",
                    str(tmp_path),
                    "--json",
                    *options,
                ]
            )
            == 0
        )
        run = json.loads(capsys.readouterr().out)["run"]
        assert main(["evaluate", run, "--by", "town", "--json"]) == 0
        results = json.loads(capsys.readouterr().out)
        groups = results["test_by_group"]
        assert list(groups) == ["Brugge", "Gent"] and sum(g["rows"] for g in groups.values()) == 90
        mean_accuracy = sum(g["rows"] * g["accuracy"] for g in groups.values()) / 90
        assert results["test"]["accuracy"] == pytest.approx(mean_accuracy)
        assert results["test_gaps"]["demographic_parity"] == pytest.approx(
            abs(groups["Gent"]["positive_rate"] - groups["Brugge"]["positive_rate"])
        )
        gap_sums.append(results["validation_gaps"]["demographic_parity"] + results["test_gaps"]["demographic_parity"])
    assert gap_sums[1] < gap_sums[0] - 0.1, "less apart where training had them independent"
    assert main(["evaluate", run, "--by", "town"]) == 0
    stdout = capsys.readouterr().out
    assert "test by town" in stdout and "demographic parity gap" in stdout and "positive class: 'yes'" in stdout


@pytest.mark.parametrize(("arguments", "message"), [
    (["--by", "town", "--int8"], "--by and --int8 exclude each other"),
    (["--by", "twon"], "no column named 'twon'"),
])
def test_evaluate_by_column_refuses_invalid_options(loans_csv, tmp_path, capsys, arguments, message):
    assert main(["train", "mlp", "--data", str(loans_csv), "--steps", "2", "--runs", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, *arguments]) == 2
    stderr = capsys.readouterr().err
    assert message in stderr and stderr.count("\n") == 1


def test_evaluate_and_reweigh_by_column_refuse_images(tmp_path, capsys):
    assert main(["train", "mlp", "--steps", "2", "--runs", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, "--by", "sex"]) == 2
    assert "--by expects a column of a table, but 'digits' holds images" in capsys.readouterr().err
    assert main(["train", "mlp", "--reweigh", "sex", "--runs", str(tmp_path)]) == 2
    assert "--reweigh expects a column of a table, but 'digits' holds images" in capsys.readouterr().err
    assert main(["train", "mlp", "--data", "diabetes", "--reweigh", "sex", "--runs", str(tmp_path)]) == 2
    assert "--reweigh is for classes, but the targets of 'diabetes' are regression" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["bagging", "scratch_mlp", "mlp_wide_deep"])
def test_evaluate_by_column_works_for_any_classifier(loans_csv, tmp_path, capsys, recipe):
    assert main(["train", recipe, "--data", str(loans_csv), "--steps", "20", "--runs", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, "--by", "town", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["test_gaps"]) >= {"demographic_parity", "equalized_odds"}
