"""Numbers far from zero and near each other: what single precision would round away is kept, and comes out in its own units."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import torch

import didact
from didact import recipes
from didact.cli.main import main
from didact.data.centring import centre, exact, full
from didact.data.load import load, reload
from didact.data.spec import from_spec, spec
from didact.data.table import TableEncoder
from didact.run import Run
from didact.samplers.draw import draw, save_rows
from didact.train.interrupt import Interrupted
from didact.train.loop import Training
from didact.train.session import evaluate, resume

NOW = 1_700_000_000
DAY = 86_400


def table(folder, n=300, span=1000, seed=0):
    """Moments within a span of seconds, the class of each (the latter half), and another moment that follows it."""
    rng = np.random.default_rng(seed)
    t = NOW + rng.integers(0, span, n)
    late, a = np.where(t > NOW + span / 2, "yes", "no"), rng.normal(size=n).round(3)
    frame = pd.DataFrame({"t": t, "a": a, "late": late, "next": 2 * t - NOW + 7})
    path = folder / "moments.csv"
    frame.to_csv(path, index=False)
    return path, frame


def whole(data, column="x"):
    order = torch.cat([data.indices[part] for part in didact.data.core.SPLITS]).argsort()
    return torch.cat([data.split(part).columns[column] for part in didact.data.core.SPLITS])[order]


@pytest.mark.parametrize("span", [1000, DAY, 30 * DAY, 100 * DAY])
def test_seconds_are_not_lost(tmp_path, span):
    path, frame = table(tmp_path, span=span)
    data = load(str(path), target="late")
    column = data.encoder.columns[0]
    assert NOW <= column.shift < NOW + span and column.shift in frame["t"].to_numpy()[data.indices["train"].numpy()]
    back = whole(data)[:, 0].double().numpy() + column.shift
    np.testing.assert_array_equal(back, frame["t"].to_numpy())
    assert data.names[0] == f"t − {column.shift:.0f}" and data.names[1] == "a"
    assert any(note.startswith("column 't' lies so near 17") and "subtracted before" in note for note in data.notes)


@pytest.mark.parametrize("values", [
    np.arange(1900, 2030), np.random.default_rng(0).normal(170, 10, 500).round(1), np.random.default_rng(0).normal(0, 1, 500),
    np.random.default_rng(0).normal(1013.25, 3, 500).round(2), np.random.default_rng(0).normal(288.15, 8, 500).round(2),
    np.random.default_rng(0).normal(140, 3, 500).round(1), np.random.default_rng(0).lognormal(12, 1, 500).round(2),
    np.full(50, 0.1), np.arange(2**24 - 100, 2**24), np.array([]), np.array([np.nan, np.inf]),
])
def test_ordinary_numbers_stay_as_they_are(values):
    assert centre(np.asarray(values, dtype=np.float64)) == 0


def test_new_rows_are_read_as_training_was(tmp_path):
    path, frame = table(tmp_path)
    data = load(str(path), target="late")
    encoder = from_spec(json.loads(json.dumps(spec(data)))).encoder
    assert encoder == data.encoder
    typed = f"t={frame['t'][3]},a={frame['a'][3]},next={frame['next'][3]}", f'{{"t": {NOW + 1}, "a": 0, "next": 0}}'
    _, batch = encoder.read([str(path), *typed])
    torch.testing.assert_close(batch["x"][:300], whole(data), rtol=0, atol=0)
    assert torch.equal(batch["x"][300], batch["x"][3]) and float(batch["x"][301, 0]) == NOW + 1 - encoder.columns[0].shift
    assert torch.equal(whole(reload(data, data.indices)), whole(data))


def test_a_missing_moment_is_the_median(tmp_path):
    frame = pd.DataFrame({"t": [NOW + i for i in range(40)] + [None], "y": ["k", "l"] * 20 + ["k"]})
    encoder, x = TableEncoder.from_frame(frame, "y")
    assert encoder.names == (f"t − {NOW + 20}", "t missing") and x[-1].tolist() == [-0.5, 1]


def test_what_hangs_on_seconds_is_learned(tmp_path):
    path, _ = table(tmp_path, n=600, span=60)
    run = didact.train(recipes.mlp, data=path, target="late", epochs=30, runs=str(tmp_path / "runs"))
    assert run.facts["test"]["accuracy"] > 0.9                               # moments rounded to 128 s are all the same
    for t, label in ((NOW + 10, "no"), (NOW + 50, "yes")):
        assert didact.predict(run, f"t={t},a=0,next={2 * t - NOW + 7}")[0]["label"] == label
    from didact.explain.runs import explain

    explain(run, [f"t={NOW + 601},a=0,next={NOW}"], to=tmp_path / "why")
    assert any("1,700,000,601" in page.read_text() for page in (tmp_path / "why").rglob("*.*") if page.suffix in (".html", ".svg"))


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("followed")
    path, frame = table(folder, n=600)
    run = didact.train(recipes.mlp, data=path, target="next", epochs=40, dropout=0.05, runs=str(folder / "runs"))
    return run, path, frame


def test_a_large_target_is_answered_in_its_own_units(followed, capsys):
    run, path, frame = followed
    assert run.facts["data"]["target_shift"] in frame["next"].to_numpy() and run.facts["test"]["r2"] > 0.95
    said = didact.predict(run, path, passes=5, draws=2)
    error = np.array([row["next"] for row in said]) - frame["next"].to_numpy()
    assert np.sqrt((error**2).mean()) < 0.25 * frame["next"].std()           # rounded to 128 s it would be off by 37 alone
    assert len({row["next"] for row in said}) > 300
    for row in said:
        assert row["low"] < row["next"] < row["high"] and abs(row["draws"][0] - NOW) < 1e4
    assert main(["predict", str(run.folder), f"t={NOW + 500},a=0,late=no"]) in (0, None)
    assert "next 1,700,00" in capsys.readouterr().out


def test_evaluating_and_reporting_such_a_run(followed):
    from didact.report.page import write

    run, _, _ = followed
    assert evaluate(run)["test"]["rmse"] == pytest.approx(run.facts["test"]["rmse"])
    page = write(run).read_text()
    shift = run.facts["data"]["target_shift"]
    assert f"true − {shift:.0f}" in page and "1,700,00" in page


def pressures(folder, n=300):
    """Air pressures, latitudes of one town and temperatures in kelvin: ordinary numbers, if far from zero."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"p": rng.normal(1013.25, 3, n).round(2), "lat": rng.normal(52.52, 0.01, n).round(5)})
    frame["kelvin"] = (288.15 + (frame["p"] - 1013.25) + rng.normal(0, 0.1, n)).round(2)
    frame.to_csv(folder / "air.csv", index=False)
    return folder / "air.csv", "kelvin", "p=1013,lat=52.5"


def moments(folder):
    return table(folder)[0], "next", f"t={NOW},a=0,late=no"


@pytest.mark.parametrize("made", [pressures, moments])
def test_a_run_that_was_kept_before_is_judged_and_resumed_as_it_was(tmp_path, monkeypatch, made):
    path, target, row = made(tmp_path)
    advance = Training.advance

    def stop(self, *words):
        advance(self, *words)
        if self.state.step == 3:
            self.save()
            raise Interrupted(self.run, 3, 6)

    how = {"data": path, "target": target, "steps": 6, "runs": str(tmp_path / "runs")}
    with monkeypatch.context() as old:                                       # as it was, when numbers were rounded at once
        for module in ("table", "columns"):
            old.setattr(f"didact.data.{module}.centre", lambda values: 0.0)
        whole = as_kept(didact.train(recipes.mlp, **how))
        old.setattr(Training, "advance", stop)
        with pytest.raises(Interrupted):
            didact.train(recipes.mlp, **how)
    assert evaluate(whole)["test"] == pytest.approx(whole.facts["test"])
    again = resume(as_kept(Run.open("mlp/latest", tmp_path / "runs")))
    assert again.facts["status"] == "finished" and again.facts["test"] == pytest.approx(whole.facts["test"])
    assert didact.predict(again, row)[0][target] == didact.predict(whole, row)[0][target]


def as_kept(run):
    """The run as an older didact wrote it: no word of shifts."""
    facts = json.loads((run.folder / "run.json").read_text())
    del facts["data"]["target_shift"]
    assert "shift" not in json.dumps(facts["data"]["encoder"])
    (run.folder / "run.json").write_text(json.dumps(facts))
    return Run.open(run.folder)


@pytest.mark.parametrize("recipe", ["vae", "realnvp", "wgan"])
def test_rows_that_are_drawn_are_of_the_same_days(tmp_path, recipe):
    path, frame = table(tmp_path, n=200)
    run = didact.train(getattr(recipes, recipe), data=path, target="next", epochs=2, runs=str(tmp_path / "runs"))
    assert isinstance(run, Run)
    save_rows(run, draw(run, 40, seed=1), tmp_path / "new.csv")
    drawn = list(csv.DictReader((tmp_path / "new.csv").read_text().splitlines()))
    for name in ("t", "next"):
        values = np.array([float(row[name]) for row in drawn])
        assert frame[name].min() <= values.min() <= values.max() <= frame[name].max()
        assert (values % 1 == 0).all() and len(set(values)) > 5, values


@pytest.mark.parametrize(("value", "shift", "words"), [
    (1_700_000_000_250.0, 1.7e12, "1,700,000,000,250"), (1_700_000_000_250.345678, 1.7e12, "1,700,000,000,250.35"),
    (NOW + 250.345678, NOW, "1,700,000,250.346"), (1.7e9, 1.7e9, "1,700,000,000"), (1.7e15 + 33, 1.7e15, "1,700,000,000,000,033"),
    (52.52 + float(np.float32(0.0134)), 52.52, "52.5334"), (52.52, 52.52, "52.52"), (-1e9 - 7, -1e9, "-1,000,000,007"), (0.0, 1e9, "0"),
])
def test_all_digits_are_told(value, shift, words):
    assert full(value, shift) == words


def test_a_number_is_told_as_it_stands_in_the_table():
    assert [exact(v) for v in (1.7e12, 1.7e15 + 1, 52.52, -3.0)] == ["1700000000000", "1700000000000001", "52.52", "-3"]


def test_milliseconds_are_told_apart_everywhere(tmp_path, capsys):
    from didact.explain.runs import values_of
    from didact.explain.subject import Subject
    from didact.report.answers import answers

    rng = np.random.default_rng(0)
    t = 1000 * NOW + rng.integers(0, 50_000, 200)
    pd.DataFrame({"t": t, "u": t + rng.random(200).round(3), "late": np.where(t > np.median(t), "yes", "no"), "next": t + 40}).to_csv(
        tmp_path / "ms.csv", index=False)
    how = {"data": tmp_path / "ms.csv", "epochs": 2, "runs": str(tmp_path / "runs")}
    run = didact.train(recipes.mlp, target="next", **how)
    assert main(["predict", str(run.folder), str(tmp_path / "ms.csv")]) in (0, None)
    said = [line.split("next ")[1].split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(set(said)) > 150 and all(abs(float(v.replace(",", "")) - 1.7e12) < 1e6 and "e" not in v for v in said)
    told = [answers(run.facts, run.load("test")).told(row)[0] for row in range(20)]
    assert set(told) <= {f"{v + 40:,}" for v in t} and len(set(told)) > 15
    drawn = didact.train(recipes.vae, target="next", **how)
    save_rows(drawn, draw(drawn, 20, seed=1), tmp_path / "new.csv")
    rows = list(csv.DictReader((tmp_path / "new.csv").read_text().splitlines()))
    assert all(len({row[name] for row in rows}) > 5 and all(row[name].startswith("1700000") for row in rows) for name in ("t", "u", "next"))
    classes = Subject.of(didact.train(recipes.mlp, target="late", **how), "cpu")
    _, batch = classes.data.encoder.read([str(tmp_path / "ms.csv")])
    names, members = classes.parts(batch["x"][0])
    assert values_of(batch["x"][3], members, names, classes)[0] == f"{t[3]:,}"
