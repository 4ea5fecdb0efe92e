"""A CSV file for every recipe that generates rows: new rows in its own columns and units, near the real ones."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import entropy, norm

import didact
from didact.cli.main import main
from didact.data.load import load
from didact.inference.evaluate import evaluate
from didact.inference.sample_images import sample_images, save_rows
from didact.registry import RECIPES
from didact.report import page
from didact.run import Run
from didact.training.restore import load_model

QUICK_OPTIONS = {
    "vae": {"epochs": 14, "batch_size": 32, "latent_dim": 6, "hidden": (64, 64)},
    "realnvp": {"epochs": 10, "batch_size": 64, "num_couplings": 4},
    "gan": {"steps": 5, "hidden": (16,)},
    "wgan": {"steps": 5, "channels": 8},
}


def make_households(n: int = 1500) -> pd.DataFrame:
    """Age and income correlate by 0.9; who is old owns more often; the west is richer; an eighth does not tell its
    rent."""
    r = np.random.default_rng(0)
    town = r.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
    age = r.normal(40, 12, n).round().clip(18, 80).astype(int)
    income = (500 + 30 * age + 100 * (town == "south") + 200 * (town == "west") + r.normal(0, 150, n)).round(2)
    owner = np.where(r.random(n) < 1 / (1 + np.exp(-(age - 45) / 5)), "yes", "no")
    rent = r.normal(600, 80, n).round(1).astype(object)
    rent[r.random(n) < 0.125] = ""
    return pd.DataFrame({"age": age, "town": town, "rent": rent, "income": income, "owner": owner})


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_households().to_csv("households.csv", index=False)
        for name, arguments in QUICK_OPTIONS.items():
            didact.train(RECIPES[name], data="households.csv", **arguments)
    return folder


def sample_table(name: str, n: int = 4000) -> pd.DataFrame:
    run = Run.open(f"{name}/latest")
    save_rows(run, sample_images(run, n, seed=3), Path(f"{name}.csv"))
    return pd.read_csv(f"{name}.csv")


def assert_similar(real: pd.DataFrame, new: pd.DataFrame, *, mean: float, std: float, share: float) -> None:
    """Marginals: means in deviations, ratios of deviations, shares of categories and of gaps."""
    for name in real.columns:
        a, b = real[name], new[name]
        assert abs(a.isna().mean() - b.isna().mean()) < share
        if pd.api.types.is_numeric_dtype(a):
            assert abs(a.mean() - b.mean()) < mean * a.std() and abs(np.log(b.std() / a.std())) < std, name
        else:
            shares = a.value_counts(normalize=True)
            assert (shares - b.value_counts(normalize=True).reindex(shares.index).fillna(0)).abs().max() < share, name


@pytest.mark.parametrize("name", QUICK_OPTIONS)
def test_samples_have_the_columns_and_values_of_the_table(workdir, monkeypatch, name):
    monkeypatch.chdir(workdir)
    real, new = pd.read_csv("households.csv"), sample_table(name, 300)
    assert list(new.columns) == list(real.columns) and len(new) == 300
    assert new.age.dtype.kind == "i" and new.age.between(real.age.min(), real.age.max()).all()
    assert set(new.town) <= {"north", "south", "west"} and set(new.owner) <= {"yes", "no"}
    assert (new.income == new.income.round(2)).all() and new.rent.dropna().between(
        real.rent.min(), real.rent.max()
    ).all()
    assert len(new.drop_duplicates()) > 30
    assert load(f"{name}.csv").shape                                                # and can be learned from again


@pytest.mark.parametrize("name", ["vae", "realnvp"])
def test_samples_resemble_the_table(workdir, monkeypatch, name):
    monkeypatch.chdir(workdir)
    real, new = pd.read_csv("households.csv"), sample_table(name)
    assert_similar(real, new, mean=0.15, std=0.15, share=0.09)
    assert (
        real[["age", "income"]].corr().iloc[0, 1] > 0.85 and abs(new[["age", "income"]].corr().iloc[0, 1] - 0.9) < 0.15
    )
    # which have nothing to do with each other
    assert abs(new[["age", "rent"]].corr().iloc[0, 1]) < 0.12
    old, young = ((new[side].owner == "yes").mean() for side in (new.age > 50, new.age < 32))
    assert old > 0.65 and young < 0.25                                              # 0.87 and 0.03 in the table


def test_elbo_and_log_likelihood_are_near_the_truth(workdir, monkeypatch):
    """Nats of a row in the table's own units: near the mean log density of the distribution that generated it, not
    above.
    """
    monkeypatch.chdir(workdir)
    age = np.arange(18, 81)
    # what lies beyond 18 and 80 was put there
    below = norm(40, 12).cdf(np.r_[-np.inf, age[:-1] + 0.5, np.inf])
    p = np.diff(below)
    owns = 1 / (1 + np.exp(-(age - 45) / 5))
    truth = -entropy(p) - entropy([0.5, 0.3, 0.2]) - norm(0, 150).entropy() - (p * entropy([owns, 1 - owns])).sum()
    truth -= entropy([0.125, 0.875]) + 0.875 * norm(0, 80).entropy()
    elbo, exact = (
        Run.open("vae/latest").metadata["test"]["elbo"],
        Run.open("realnvp/latest").metadata["test"]["log_likelihood"],
    )
    # 0.3: 225 rows, each with a standard deviation of 1.5
    assert truth - 1.5 < elbo < truth + 0.3 and truth - 1.5 < exact < truth + 0.3


def test_table_run_is_evaluated_reported_and_sampled(workdir, monkeypatch, capsys):
    monkeypatch.chdir(workdir)
    for name in QUICK_OPTIONS:
        run = Run.open(f"{name}/latest")
        scores = evaluate(run, device="cpu")["test"]
        assert scores == pytest.approx(run.metadata["test"], rel=1e-4, abs=1e-4)
        text = page.write_report(run).read_text(encoding="utf-8")
        assert (
            "<h2>Sampled rows</h2>" in text
            and text.count(">drawn</th>") == 6
            and "north, south, west" in text
            and "% of rows" in text
        )
    assert run.metadata["test"]["frechet"] > 0
    vae = Run.open("vae/latest").metadata["test"]
    assert vae["number_error"] < 0.7 and vae["category_accuracy"] > 0.5             # of gaps none is counted
    assert main(["sample", "vae/latest", "-n", "100", "--output", "new.csv", "--json", "--device", "cpu"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["num_samples"] == 100 and result["columns"] == ["age", "town", "rent", "income", "owner"]
    assert len(pd.read_csv("new.csv")) == 100


def test_conditional_recipe_samples_by_class(workdir, monkeypatch):
    monkeypatch.chdir(workdir)
    run = didact.train(RECIPES["vae"], data="households.csv", conditional=True, **QUICK_OPTIONS["vae"])
    rows = {label: sample_images(run, 500, label=label) for label in ("yes", "no")}
    assert [c.name for c in load_model(run)[0].pixels.rows.columns] == ["age", "town", "rent", "income"]
    for label in rows:
        assert save_rows(run, rows[label], Path("told.csv"))[-1] == "owner" and set(pd.read_csv("told.csv").owner) == {
            label
        }
    assert rows["yes"][:, 0].mean() > rows["no"][:, 0].mean() + 7                   # 50 and 34 years in the table
    run = didact.train(RECIPES["wgan"], data="households.csv", conditional=True, **QUICK_OPTIONS["wgan"])
    assert sample_images(run, 5, label="yes").shape == (5, 9)
    page.write_report(run)
    # without a label, each class in turn
    save_rows(run, sample_images(run, 600), Path("told.csv"))
    new = pd.read_csv("told.csv")
    assert list(new.columns) == list(make_households(1).columns) and new.owner.value_counts().to_dict() == {
        "no": 300,
        "yes": 300,
    }
    assert {name: rows.shape[1] for name, rows in run.load("gallery").items()} == {"real rows": 9, "sampled rows": 9}


def test_gallery_takes_real_rows_at_random(workdir, monkeypatch):
    """In a sorted table the first test rows are of one class; the real rows in the gallery are of all."""
    monkeypatch.chdir(workdir)
    pd.DataFrame({"x": np.arange(1000.0), "side": np.repeat(["left", "right"], 500)}).to_csv("sorted.csv", index=False)
    run = didact.train(RECIPES["realnvp"], data="sorted.csv", steps=1)
    real = run.load("gallery")["real rows"]
    assert len(real) == 150 and real[:, 1].mean() == 0.5 and abs(real[:, 0].mean() - 500) < 60
    assert 0.2 < real[:20, 1].mean() < 0.8                                            # in no order


SPECIAL_TABLES = {
    "gaps": {"a": range(60), "b": ["", "7"] * 30}, "constant": {"a": range(60), "b": ["x"] * 60},
    "seen once": {"a": range(60), "b": ["x"] * 59 + ["y"]}, "single": {"a": [k * 0.5 for k in range(60)]},
}


@pytest.mark.parametrize("case", SPECIAL_TABLES)
@pytest.mark.parametrize("name", QUICK_OPTIONS)
def test_recipe_learns_a_table_without_a_target(workdir, monkeypatch, capsys, name, case):
    monkeypatch.chdir(workdir)
    pd.DataFrame(SPECIAL_TABLES[case]).to_csv("own.csv", index=False)
    run = didact.train(
        RECIPES[name],
        data="own.csv",
        **{"steps": 2, "batch_size": 16, **({"hidden": (8,)} if name in ("vae", "gan") else {})},
    )
    assert save_rows(run, sample_images(run, 4), Path("few.csv")) == list(SPECIAL_TABLES[case])
    assert evaluate(run, device="cpu")["test"] == pytest.approx(run.metadata["test"], rel=1e-4, abs=1e-4)
    page.write_report(run)
    if name == "vae":
        assert main(["train", "vae", "--data", "own.csv", "--conditional"]) == 2
        assert "the class of each row, but 'own' has none; leave it out, or name a --target" in capsys.readouterr().err


def test_realnvp_learns_a_bimodal_column(workdir, monkeypatch):
    """One Gaussian gives log p = −log σ √(2πe); the truth, two of standard deviation 1, is known."""
    monkeypatch.chdir(workdir)
    r = np.random.default_rng(0)
    x = np.where(r.random(2000) < 0.3, r.normal(-5, 1, 2000), r.normal(5, 1, 2000))
    pd.DataFrame({"x": x}).to_csv("heaps.csv", index=False)
    run = didact.train(RECIPES["realnvp"], data="heaps.csv", epochs=10, lr=2e-2)
    truth = np.log(0.3 * np.exp(-((x + 5) ** 2) / 2) + 0.7 * np.exp(-((x - 5) ** 2) / 2)).mean() - 0.5 * np.log(
        2 * np.pi
    )
    gaussian = -np.log(x.std() * np.sqrt(2 * np.pi * np.e))
    assert abs(run.metadata["test"]["log_likelihood"] - truth) < 0.12 and truth - gaussian > 0.7
    new = sample_images(run, 4000)[:, 0]
    assert abs((new < 0).float().mean() - 0.3) < 0.05 and (new.abs() < 2).float().mean() < 0.02


@pytest.mark.parametrize(("target", "columns"), [("income", 5), ("rent", 5)])
def test_recipe_learns_any_column_as_target(workdir, monkeypatch, target, columns):
    monkeypatch.chdir(workdir)
    frame = make_households(60).drop(columns="rent" if target == "income" else []).replace("", 600)
    frame.to_csv("sixty.csv", index=False)
    for name in QUICK_OPTIONS:
        run = didact.train(
            RECIPES[name],
            data="sixty.csv",
            target=target,
            **QUICK_OPTIONS[name] | {"epochs": None, "steps": 2, "batch_size": 16},
        )
        names = save_rows(run, sample_images(run, 4), Path("few.csv"))
        assert names[-1] == target and set(names) == set(frame.columns)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gap"), [("vae", 0.27), ("realnvp", 0.3), ("wgan", 0.3)])
def test_samples_of_breast_cancer_match_its_statistics(name, gap, workdir):
    """Thirty measures of 569 tumours: means, deviations, the share of the benign, and how measures go together."""
    from sklearn.datasets import load_breast_cancer

    run = didact.train(RECIPES[name], data="breast_cancer", **({"joint": True} if name == "realnvp" else {}))
    names = save_rows(run, sample_images(run, 3000), Path("new.csv"))
    new, real = pd.read_csv("new.csv"), load_breast_cancer(as_frame=True).frame
    numbers = names[:-1]
    assert ((new[numbers].mean() - real[numbers].mean()).abs() / real[numbers].std()).mean() < gap / 2
    assert np.log(new[numbers].std() / real[numbers].std()).abs().mean() < gap
    assert abs((new["tumour"] == "benign").mean() - 0.627) < 0.12
    assert (new[numbers].corr() - real[numbers].corr()).abs().to_numpy().mean() < 0.12


@pytest.mark.slow
def test_wgan_learns_category_frequencies(workdir, monkeypatch):
    monkeypatch.chdir(workdir)
    didact.train(RECIPES["wgan"], data="households.csv", steps=1000, channels=32, discriminator_steps=3)
    real, new = pd.read_csv("households.csv"), sample_table("wgan")
    assert_similar(real, new, mean=0.15, std=0.2, share=0.12)
    assert abs(new[["age", "income"]].corr().iloc[0, 1] - 0.9) < 0.08
