"""Baselines of tables: the same numbers as scikit-learn gives by itself, in the metrics of the run."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import didact
from didact.baselines import fit_baselines
from didact.baselines.tables import _fit_linear, _to_cells
from didact.data.core import TensorSplit
from didact.data.load import load
from didact.data.tables.table_options import TableOptions
from didact.registry import RECIPES
from helpers.smallest_runs import SMALLEST_RUNS


def split_arrays(data):
    parts = [data.split(name).columns for name in ("train", "validation", "test")]
    x = [part["x"].double().numpy() for part in parts]
    y = [part["y"].double().numpy() for part in parts]
    return np.concatenate(x[:2]), np.concatenate(y[:2]), x[2], y[2]


def fit_by_name(data):
    return {baseline.name: baseline for baseline in fit_baselines(data)}


def test_regression_baselines_are_scikit_learns():
    data = load("diabetes")
    fit_x, fit_y, test_x, test_y = split_arrays(data)
    baselines = fit_by_name(data)
    models = {
        "mean": DummyRegressor(),
        "ridge regression": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13))),
        "gradient boosting": HistGradientBoostingRegressor(random_state=0),
    }
    assert list(baselines) == list(models)
    for name, model in models.items():
        predicted = model.fit(fit_x, fit_y).predict(test_x)
        assert baselines[name].metrics["r2"] == pytest.approx(r2_score(test_y, predicted), abs=1e-4)
        assert baselines[name].metrics["rmse"] == pytest.approx(root_mean_squared_error(test_y, predicted), rel=1e-4)


@pytest.mark.parametrize("name", ["breast_cancer", "wine"])
def test_classification_baselines_are_scikit_learns(name):
    data = load(name)
    fit_x, fit_y, test_x, test_y = split_arrays(data)
    baselines = fit_by_name(data)
    for model_name, model in {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    }.items():
        p = model.fit(fit_x, fit_y).predict_proba(test_x)
        metrics = baselines[model_name].metrics
        assert metrics["accuracy"] == pytest.approx(accuracy_score(test_y, p.argmax(1)))
        auroc = roc_auc_score(test_y, p[:, 1]) if data.task == "binary" else roc_auc_score(test_y, p, multi_class="ovr")
        assert metrics["auroc"] == pytest.approx(auroc, abs=1e-6)
    assert baselines["class shares"].metrics["auroc"] == 0.5


@pytest.fixture
def mixed_csv(tmp_path):
    rng = np.random.default_rng(0)
    color, size = rng.choice(["red", "green", "blue"], 300), rng.normal(size=300)
    size_cells = ["" if k % 17 == 0 else f"{value:.4f}" for k, value in enumerate(size)]
    y = 3 * (color == "red") - 2 * (color == "blue") + size + 0.1 * rng.normal(size=300)
    path = tmp_path / "mixed.csv"
    rows = zip(color, size_cells, y, strict=True)
    path.write_text("color,size,y\n" + "\n".join(f"{c},{s},{v:.4f}" for c, s, v in rows))
    return path


def test_categories_are_one_column_for_boosting(mixed_csv):
    data = load(str(mixed_csv), target="y")
    assert isinstance(data.train, TensorSplit)
    x = data.train.columns["x"].double().numpy()
    is_categorical, cells, _ = _to_cells(data, x, x)
    assert is_categorical == [True, False, False]      # color; size and whether it is missing
    names = [name for name in data.feature_names if name.startswith("color=")]
    start = data.feature_names.index(names[0])
    assert (cells[:, 0] == x[:, start : start + 3].argmax(1)).all()
    baselines = fit_by_name(data)
    assert baselines["gradient boosting"].metrics["r2"] > 0.8 and baselines["ridge regression"].metrics["r2"] > 0.8


def test_rows_of_a_single_class_have_class_shares_alone():
    data = load("breast_cancer")
    for split in (data.train, data.validation):
        split.columns["y"].zero_()
    assert list(fit_by_name(data)) == ["class shares"]


def test_a_class_that_the_rows_lack_has_no_share():
    data = load("wine")
    for split in (data.train, data.validation):
        split.columns["y"][split.columns["y"] == 2] = 1
    assert set(fit_by_name(data)) == {"class shares", "logistic regression", "gradient boosting"}


def test_a_run_of_a_table_has_baselines_on_its_own_test_rows(workdir):
    run = didact.train("mlp", data="iris", epochs=1)
    baselines = {b["name"]: b["metrics"] for b in run.metadata["baselines"]}
    assert set(baselines) == {"class shares", "logistic regression", "gradient boosting"}
    assert baselines == {b.name: b.metrics for b in fit_baselines(load("iris"))}
    page = (run.folder / "report.html").read_text()
    assert "Baselines" in page and "gradient boosting" in page


@pytest.mark.parametrize(
    "options", [{"data": "iris", "baselines": False}, {"data": "digits"}], ids=["left out", "images"]
)
def test_other_runs_have_none(workdir, options):
    run = didact.train("mlp", epochs=1, **options)
    assert run.metadata["baselines"] == []
    assert "<h2>Baselines</h2>" not in (run.folder / "report.html").read_text()


def test_baselines_do_not_change_the_run(workdir):
    runs = [didact.train("mlp", data="iris", epochs=2, baselines=flag) for flag in (True, False)]
    first, second = (run.load("model") for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert runs[0].metadata["test"] == runs[1].metadata["test"]


def test_pooled_folds_are_fitted_once(workdir):
    run = didact.train("tabular", data="iris", epochs=1, members=3, hidden=(4,))
    assert {b["name"]: b["metrics"] for b in run.metadata["baselines"]} == {
        b.name: pytest.approx(b.metrics, abs=1e-6) for b in fit_baselines(load("iris"))
    }


def test_weights_of_rows_count_in_the_baselines(mixed_csv):
    """Rows of weight 0 do not count: the same as without them."""
    frame = pd.read_csv(mixed_csv)
    frame["trust"] = np.where(np.arange(len(frame)) % 3 == 0, 0.0, 1.0)
    frame["y"] += np.where(frame["trust"] == 0, 50.0, 0.0)
    frame.to_csv(mixed_csv, index=False)
    weighted = load(str(mixed_csv), target="y", table=TableOptions(sample_weight="trust"))
    kept = weighted.train.columns["weight"] > 0
    x, y = (weighted.train.columns[name][kept].double().numpy() for name in ("x", "y"))
    rows = {name: weighted.train.columns[name].double().numpy() for name in ("x", "y", "weight")}
    prediction = _fit_linear(rows["x"], rows["y"], 0, rows["weight"], x)
    assert abs(prediction - y).mean() < 2                              # unweighted it is pulled up by some 17


def test_several_labels_have_a_model_each(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).round(4)
    labels = np.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 0], 1).astype(int)
    frame = pd.DataFrame(np.concatenate([x, labels], 1), columns=list("abcde")).astype({"d": int, "e": int})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    data = load(str(tmp_path / "labels.csv"), target="d,e")
    fit_x, fit_y, test_x, test_y = split_arrays(data)
    p = np.stack(
        [
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(fit_x, y).predict_proba(test_x)[:, 1]
            for y in fit_y.T
        ],
        axis=1,
    )
    baselines = fit_by_name(data)
    assert set(baselines) == {"class shares", "logistic regression", "gradient boosting"}
    assert baselines["logistic regression"].metrics["auroc"] == pytest.approx(roc_auc_score(test_y, p), abs=1e-6)
    assert baselines["gradient boosting"].metrics["auroc"] > 0.9 > baselines["class shares"].metrics["auroc"]


TABLE_RECIPES = sorted(
    name
    for name, recipe in RECIPES.items()
    if "table" in recipe.accepts and {"classify", "regress"} & set(recipe.abilities)
)


@pytest.mark.parametrize("name", TABLE_RECIPES)
def test_every_recipe_that_predicts_from_a_table_reports_baselines(name, workdir):
    recipe = RECIPES[name]
    data = "diabetes" if set(recipe.tasks) == {"regression"} else "breast_cancer"
    options = {k: v for k, v in SMALLEST_RUNS[name].items() if k not in ("data", "augment", "batch_size")}
    run = didact.train(recipe, **options, data=data, **({"steps": 2} if "epochs" not in options else {}))
    names = {baseline["name"] for baseline in run.metadata["baselines"]}
    assert "gradient boosting" in names and len(names) == 3, names
    assert "<h2>Baselines</h2>" in (run.folder / "report.html").read_text()
