"""Every model of `forecast`: choices by cross-validation, covariates, many series, short ones, refusals."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge

import didact
from didact.analysis.ridge import PENALTIES
from didact.data.load import load
from didact.data.time_series import build_series, with_horizon
from didact.errors import UsageError
from didact.explain.explain_run import explain_run
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.models.tabular.linear_forecaster import LinearForecaster
from didact.recipes._forecast_defaults import (
    choose_members,
    compute_weights,
    fit_linear_path,
    list_windows,
    make_scaler,
    rank_linear_paths,
)
from didact.registry import RECIPES
from didact.training.restore import load_model

MODELS = RECIPES["forecast"].options["model"].choices


def make_values(n=240, seed=0):
    t = np.arange(n)
    noise = np.random.default_rng(seed).normal(size=n)
    return (20 + 0.05 * t) * (1 + 0.4 * np.sin(2 * np.pi * t / 12)) + 0.3 * noise


def write_series(path, n=240):
    dates = pd.date_range("2001-01-31", periods=n, freq="ME")
    frame = pd.DataFrame({"month": dates, "load": np.random.default_rng(1).normal(size=n), "warmth": make_values(n)})
    # the load of this month is the surprise of the next
    frame.loc[1:, "warmth"] += 5 * frame["load"].to_numpy()[:-1]
    frame.to_csv(path, index=False, float_format="%.4f")
    return frame


@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns_and_predicts_from_its_folder(workdir, model):
    frame = write_series(workdir / "own.csv")
    options = {"horizon": 3, "hidden_size": 8, "steps": 60, "model": model}
    run = didact.train("forecast", data="own.csv", **options)
    assert evaluate(run)["test"] == pytest.approx(run.metadata["test"], rel=1e-4)
    (prediction,) = predict(run, ["own.csv"])
    assert prediction["dates"] == ["2021-01-31", "2021-02-28", "2021-03-31"] and len(prediction["warmth"]) == 3
    window = run.metadata["arguments"]["window"]
    values = ",".join(map(str, frame["warmth"].round(4)[-window:]))
    assert predict(run, [values])[0]["warmth"] == pytest.approx(prediction["warmth"], rel=1e-5)
    assert all(low < v < high for low, v, high in zip(*map(prediction.get, ("low", "warmth", "high")), strict=True))
    if model not in ("rnn", "lstm", "gru"):           # sixty steps are little for those
        assert run.metadata["test"]["skill"] > 0.4
        assert any(note.startswith("linear path: ridge regression") for note in run.metadata["notes"])


def test_intervals_are_those_of_the_validation_errors(workdir):
    write_series(workdir / "own.csv")
    run = didact.train("forecast", data="own.csv", horizon=6, model="nlinear", steps=1)
    (prediction,), scores = predict(run, ["own.csv"]), run.metadata["validation"]
    half = [(high - low) / 2 for low, high in zip(prediction["low"], prediction["high"], strict=True)]
    assert half[0] == pytest.approx(1.96 * scores["rmse_1_ahead"], rel=1e-4)
    assert half[5] == pytest.approx(1.96 * scores["rmse_6_ahead"], rel=1e-4)
    covered = 0
    objective, _ = load_model(run)
    test = with_horizon(
        load("own.csv", accepts=("series",)), window=run.metadata["arguments"]["window"], horizon=6
    ).test
    batch = test.batch(torch.arange(len(test)))
    with torch.no_grad():
        covered = (objective.forecast(batch) - batch["y"]).abs() < torch.tensor(half)
    assert 0.8 < float(covered.float().mean()) <= 1


def test_recurrent_layers_on_top_of_a_linear_path(workdir):
    write_series(workdir / "own.csv")
    run = didact.train("forecast", data="own.csv", model="gru", linear_path=True, hidden_size=8, steps=30)
    linear = didact.train("forecast", data="own.csv", model="mlp", hidden_size=8, steps=1, lr=1e-9)
    assert run.metadata["validation"]["rmse"] <= 1.05 * linear.metadata["validation"]["rmse"]
    (explanation,) = explain_run(run, [",".join(["1.0", "2.0"] * 200)])["explained"]
    assert set(explanation["methods"]) == {"gates", "memory"}
    with pytest.raises(UsageError, match=r"memory of recurrent layers, which .* has not; train with --model lstm"):
        explain_run(linear)


def test_linear_path_is_scikit_learns_ridge():
    data = build_series("own", make_values().tolist(), "v")
    data = with_horizon(data, window=13, horizon=2)
    scaler = make_scaler(data.encoder, log_transform=False)
    network = LinearForecaster(window=13, horizon=2, normalization="last", period=12)
    with torch.no_grad():
        penalty = float(fit_linear_path(network, data, scaler))
    x = (data.train.columns["x"][..., 0].double() - scaler.mean) / scaler.std
    y = (data.train.columns["y"].double() - scaler.mean) / scaler.std
    features, targets = (x - x[:, -1:]).numpy(), (y - x[:, -1:]).numpy()
    assert penalty in PENALTIES
    alpha = penalty * ((features - features.mean(0)) ** 2).mean() * len(features)
    reference = Ridge(alpha=alpha).fit(features, targets)
    np.testing.assert_allclose(network.linear.weight.detach().numpy(), reference.coef_, atol=1e-4)
    np.testing.assert_allclose(network.linear.bias.detach().numpy(), reference.intercept_, atol=1e-4)


def test_choice_sees_no_test_value():
    values = make_values()
    changed_values = np.concatenate([values[:204], 50 * np.random.default_rng(0).normal(size=36)])
    choices = []
    for series in (values, changed_values):
        data = build_series("own", series.tolist(), "v")
        choices.append(rank_linear_paths(data, horizon=2, windows=list_windows(data, data.encoder, 2)))
    assert choices[0] == choices[1] and choices[0][0].normalization != "none"


def test_members_have_the_weights_of_likelihoods():
    """n normal errors with the variance e have a likelihood of e^(−n/2), up to a factor."""
    mse = torch.tensor([0.5, 0.55, 2.0], dtype=torch.float64)
    likelihoods = mse ** (-10 / 2)
    torch.testing.assert_close(compute_weights(mse, 10), likelihoods / likelihoods.sum())
    for n, num_members in ((120, 2), (3000, 1)):      # of a short series several, of a long one the best
        data = build_series("own", make_values(n).tolist(), "v")
        choices = rank_linear_paths(data, horizon=1, windows=[12, 25])
        assert choices == sorted(choices, key=lambda choice: choice.mse)
        members = choose_members(choices)
        assert (len(members) >= num_members if num_members > 1 else len(members) <= 3) and members[0] == choices[0]
        assert len({member.log_transform for member in members}) == 1


def test_members_can_be_given(workdir):
    write_series(workdir / "own.csv")
    run = didact.train("forecast", data="own.csv", linear_members=("6:last", "13:seasonal"), steps=2, hidden_size=4)
    arguments, network = run.metadata["arguments"], load_model(run)[0].network
    assert (arguments["window"], arguments["normalization"]) == (13, "last")
    assert network.linear.windows == [6, 13] and float(network.linear.weights.sum()) == pytest.approx(1)
    assert evaluate(run)["test"] == pytest.approx(run.metadata["test"], rel=1e-4)


def test_logarithms_are_chosen_where_they_are_linear(workdir):
    """The logarithm is a wave, which two past values continue; the peaks of the series are no such thing."""
    t = np.arange(300)
    noise = np.random.default_rng(0).normal(size=300)
    pd.DataFrame({"sales": np.exp(3 * np.sin(2 * np.pi * t / 11.3) + 0.02 * noise)}).to_csv(
        workdir / "own.csv", index=False
    )
    options = {"data": "own.csv", "steps": 1, "hidden_size": 8, "normalization": "last", "window": 9}
    chosen, plain = (didact.train("forecast", **options, log_transform=choice) for choice in (None, False))
    assert chosen.metadata["arguments"]["log_transform"]
    assert chosen.metadata["test"]["rmse"] < 0.5 * plain.metadata["test"]["rmse"]


def test_covariates_are_read(workdir):
    write_series(workdir / "own.csv")
    alone, beside = (
        didact.train("forecast", data="own.csv", covariates=covariates, steps=30, hidden_size=8)
        for covariates in ((), ("load",))
    )
    assert beside.metadata["test"]["rmse"] < 0.4 * alone.metadata["test"]["rmse"]
    assert didact.train("forecast", data="own.csv", covariates="all", steps=1).metadata["arguments"]["covariates"] == [
        "load"
    ]
    assert len(predict(beside, ["own.csv"])[0]["warmth"]) == 1
    with pytest.raises(UsageError, match="expected a file with the columns warmth, load, got '1,2"):
        predict(beside, ["1,2"])


def test_one_model_over_many_series(workdir):
    """Series of different sizes; one that is forecast was never seen in training."""
    rows = [
        pd.DataFrame({"day": pd.date_range("2020-01-01", periods=150), "shop": name}).assign(
            sales=size * make_values(150, k)
        )
        for k, (name, size) in enumerate({"a": 1.0, "b": 1000.0, "c": 30.0}.items())
    ]
    pd.concat(rows).to_csv(workdir / "own.csv", index=False)
    run = didact.train("forecast", data="own.csv", horizon=2, steps=40, hidden_size=8)
    assert run.metadata["test"]["skill"] > 0.5 and evaluate(run)["test"] == pytest.approx(
        run.metadata["test"], rel=1e-4
    )
    predictions = predict(run, ["own.csv"])
    assert [p["input"] for p in predictions] == ["own.csv a", "own.csv b", "own.csv c"]
    assert all(p["dates"] == ["2020-05-30", "2020-05-31"] for p in predictions)
    rows[1].assign(shop="new", sales=rows[1]["sales"] * 7).to_csv(workdir / "new.csv", index=False)
    (new,) = predict(run, ["new.csv"])
    rows[1].drop(columns="shop").to_csv(workdir / "odd.csv", index=False)
    with pytest.raises(UsageError, match=r"odd\.csv has no column 'shop'"):
        predict(run, ["odd.csv"])
    assert new["sales"] == pytest.approx([7 * v for v in predictions[1]["sales"]], rel=0.1)


@pytest.mark.parametrize("n", [60, 100])
@pytest.mark.parametrize("horizon", [1, 4])
def test_short_series_are_learned(workdir, n, horizon):
    pd.DataFrame({"warmth": make_values(n)}).to_csv(workdir / "short.csv", index=False)
    run = didact.train("forecast", data="short.csv", horizon=horizon, steps=20, hidden_size=8)
    assert run.metadata["test"]["skill"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 40}, "'own' holds 40 values of 'warmth': too few .* needs at least 50"),
        ({"horizon": 40}, "the validation part of 'own' has 36 values, but each forecast takes 40"),
        ({"window": 168}, r"the training part of 'own' has 168 values, but a window takes 168 \+ 1"),
        ({"covariates": ("lod",)}, "'own' has no covariate 'lod'; did you mean 'load'"),
        ({"covariates": ("warmth",)}, "--covariates warmth is the target"),
        ({"covariates": ("load",), "model": "lstm"}, "add --linear-path, or choose --model mlp"),
        ({"normalization": "revin", "model": "rnn"}, "--normalization revin is for models with a linear path"),
        ({"normalization": "revin", "model": "nlinear"}, "nlinear subtracts the last value .* choose --model linear"),
        ({"normalization": "seasonal", "window": 5}, "needs a window of more than one period of 12 values"),
        ({"normalization": "seasonal", "window": 20, "period": 1}, "no period was found: give one with --period"),
        ({"log_transform": True, "target": "load"}, "--log-transform needs positive values"),
        ({"linear_members": "6last"}, "--linear-members expects a window and its .*, as 24:last, got '6last'"),
        ({"linear_members": "6:last", "window": 5}, "--window 5 is shorter than a member's of 6"),
        ({"linear_members": "6:last", "model": "gru"}, "--linear-members 6:last is for models with a linear path"),
        ({"model": "lstn"}, "--model cannot be 'lstn'; did you mean 'lstm'"),
    ],
)
def test_refusals_are_one_line(workdir, options, message):
    write_series(workdir / "own.csv", options.pop("n", 240))
    with pytest.raises(UsageError, match=message) as error:
        didact.train("forecast", data="own.csv", steps=1, **options)
    assert "\n" not in str(error.value)
