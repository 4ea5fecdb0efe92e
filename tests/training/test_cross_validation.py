"""Cross-validation of recipes and baselines: folds, intervals, ranking, continuing, and what is refused."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from didact.cli.main import main
from didact.data.core import SPLITS
from didact.data.load import load
from didact.errors import UsageError
from didact.training.sweeps import cross_validation
from didact.training.sweeps.cross_validation import compute_interval, cross_validate, rank_models, split_folds

ROWS = {"train": 70, "validation": 15, "test": 20}


def make_rows(model, scores, kind="recipe", metric="accuracy"):
    return [
        {"model": model, "kind": kind, "fold": k, "test": {metric: score}, "seconds": 1.0, "rows": ROWS}
        for k, score in enumerate(scores)
    ]


def test_every_example_is_tested_once_and_trained_on_otherwise():
    data = load("wine")
    folds = split_folds(data, 4)
    n = sum(len(data.split(part)) for part in SPLITS)
    assert sorted(torch.cat([fold["test"] for fold in folds]).tolist()) == list(range(n))
    y = torch.empty(n, dtype=torch.long)
    for part in SPLITS:
        y[data.indices[part]] = data.split(part).columns["y"]
    for fold in folds:
        assert sorted(torch.cat([fold[part] for part in SPLITS]).tolist()) == list(range(n))
        shares = torch.bincount(y[fold["test"]]) / len(fold["test"])
        torch.testing.assert_close(shares, torch.bincount(y) / n, atol=0.03, rtol=0)


def test_interval_is_that_of_the_corrected_resampled_t_test():
    values = [0.81, 0.84, 0.79, 0.86, 0.83]
    variance = (1 / 5 + 20 / 85) * np.var(values, ddof=1)
    low, high = stats.t.interval(0.95, 4, loc=0, scale=np.sqrt(variance))
    assert compute_interval(values, 20 / 85) == pytest.approx((high - low) / 2)
    assert compute_interval([0.8], 0.2) == float("inf")


def test_ranking_compares_fold_by_fold():
    """Two models that differ by the same amount on every fold are told apart, however much the folds differ."""
    rows = make_rows("a", [0.6, 0.9, 0.7]) + make_rows("b", [0.59, 0.89, 0.69]) + make_rows("c", [0.9, 0.6, 0.69])
    first, *others = rank_models(rows, "accuracy")
    assert first.model == "a" and first.behind == 0
    by_name = {s.model: s for s in others}
    assert by_name["b"].behind == pytest.approx(0.01) and not by_name["b"].is_level
    assert by_name["c"].is_level


def test_errors_are_ranked_by_the_smallest():
    rows = make_rows("a", [2.0, 3.0], metric="rmse") + make_rows("b", [1.0, 2.0], metric="rmse")
    standings = rank_models(rows, "rmse")
    assert [s.model for s in standings] == ["b", "a"] and standings[1].behind == pytest.approx(1.0)


def test_own_table_has_a_leaderboard_whose_baseline_is_scikit_learns(workdir, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).astype(int)
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'yes' if t else 'no'}" for (a, b, c), t in zip(x, y, strict=True)]
    (workdir / "own.csv").write_text("\n".join(["a,b,c,y", *lines]))
    comparison = cross_validate("own.csv", ("mlp",), folds=3, epochs=2, target="y")
    models = {s.model for s in comparison.standings}
    assert models == {"mlp", "class shares", "logistic regression", "gradient boosting"}
    x = np.round(x, 4)
    indices = split_folds(load("own.csv", target="y"), 3)
    expected = []
    for fold in indices:
        rows = torch.cat([fold["train"], fold["validation"]]).numpy()
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[rows], y[rows])
        expected.append(accuracy_score(y[fold["test"]], model.predict(x[fold["test"]])))
    logistic = next(s for s in comparison.standings if s.model == "logistic regression")
    assert logistic.scores == pytest.approx(expected, abs=1e-9)


def test_interrupted_comparison_continues(workdir, monkeypatch):
    trained = []
    train = cross_validation.train

    def train_two(recipe, **options):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(recipe.name)
        return train(recipe, **options)

    monkeypatch.setattr(cross_validation, "train", train_two)
    with pytest.raises(KeyboardInterrupt):
        cross_validate("iris", ("mlp",), folds=4, epochs=1)
    later = []
    monkeypatch.setattr(cross_validation, "train", lambda *a, **o: later.append(1) or train(*a, **o))
    comparison = cross_validate("iris", ("mlp",), folds=4, epochs=1)
    assert len(trained) == len(later) == 2
    assert sum(row["model"] == "mlp" for row in comparison.rows) == 4
    assert sorted(row["fold"] for row in comparison.rows if row["model"] == "mlp") == [0, 1, 2, 3]


def test_command_prints_a_leaderboard_and_leaves_a_run(workdir, capsys):
    assert main(["compare", "iris", "--recipes", "mlp", "--folds", "2", "--epochs", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["folds"] == 2 and {row["kind"] for row in result["leaderboard"]} == {"recipe", "baseline"}
    row = "sepal length (cm)=5.1,sepal width (cm)=3.5,petal length (cm)=1.4,petal width (cm)=0.2"
    assert main(["predict", result["run"], row]) == 0
    capsys.readouterr()
    page = (workdir / result["report"]).read_text()
    assert "Leaderboard" in page and "logistic regression" in page
    assert main(["compare", "iris", "--recipes", "mlp", "--folds", "2", "--epochs", "1"]) == 0
    assert "behind the best" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compare", "expected a dataset"),
        ("compare iris --recipes mlpp", "did you mean 'mlp'"),
        ("compare iris --recipes mlp,mlp", "names one twice"),
        ("compare iris --recipes mlp --metric accuracyy --folds 2 --epochs 1", "no metric named 'accuracyy'"),
        ("compare iris --folds 60", "60 folds need at least 240 examples"),
        ("compare waves --folds 2", "a comparison needs classes or numbers"),
        ("compare iris --test iris.csv", "every fold is a test split once"),
        ("compare nowhere.csv", "no data at nowhere.csv"),
    ],
)
def test_comparison_refuses(words, expected, workdir, capsys):
    assert main(words.split()) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert expected in error


def test_folds_of_a_dataset_with_statistics_are_fitted_on_the_training_rows(workdir):
    """Medians and categories come from the rows of the fold, not from those of the usual split."""
    rows = [f"{'' if k % 3 == 0 else k},{k % 2}" for k in range(60)]
    (workdir / "gaps.csv").write_text("\n".join(["a,y", *rows]))
    data = load("gaps.csv", target="y")
    fold = split_folds(data, 3)[1]
    refit = load("gaps.csv", target="y", indices=fold)
    values = [k for k in fold["train"].tolist() if k % 3]
    assert refit.encoder.columns[0].median == pytest.approx(np.median(values))


def test_unknown_errors_name_the_file_to_delete(workdir):
    comparison = cross_validate("iris", ("mlp",), folds=2, epochs=1)
    (comparison.folder / cross_validation.RESULTS_FILE).write_text('{"model": 3}\n')
    with pytest.raises(UsageError, match="is damaged; delete it"):
        cross_validate("iris", ("mlp",), folds=2, epochs=1)
