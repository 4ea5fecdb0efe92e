"""Rates by group against counting, the identity behind exercise 12.1, groups of a table, and a training set without the bias."""

import json

import numpy as np
import pytest
import torch

from didact.cli.main import main
from didact.data.balance import independent
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
    assert gaps(found)["demographic_parity"] == pytest.approx(0.5) and gaps(found)["equal_opportunity"] == 0


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
    names, group = data.encoder.groups(data.train.columns["x"], "town")
    assert names == ["Brugge", "Gent", "(unknown)"] and set(group.tolist()) == {0, 1}
    assert torch.equal(group, data.train.columns["x"][:, 1].long()), "the second feature is town=Gent"
    names, group = data.encoder.groups(data.train.columns["x"], "income")
    assert names[0].startswith("income ≤ ") and abs(float(group.float().mean()) - 0.5) < 0.01
    unknown = data.encoder.read(["town=Paris,income=1"])[1]["x"]
    assert data.encoder.groups(unknown, "town")[1].tolist() == [2]
    with pytest.raises(UsageError, match="no column named 'twon'; did you mean 'town'"):
        data.encoder.groups(unknown, "twon")


def test_redrawn_rows_make_group_and_class_independent(loans):
    data = load(str(loans), target="given")

    def table(data) -> torch.Tensor:
        group = data.encoder.groups(data.train.columns["x"], "town")[1]
        return torch.stack([torch.bincount(data.train.columns["y"][group == k], minlength=2) for k in (0, 1)]).double()

    before, after = table(data), table(independent(data, "town"))
    assert abs(before[0, 1] / before[0].sum() - before[1, 1] / before[1].sum()) > 0.2
    expected = before.sum(1, keepdim=True) * before.sum(0) / before.sum()
    assert float((after - expected).abs().max()) <= 0.5, "rounded, and neither towns nor answers have changed their shares"


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
