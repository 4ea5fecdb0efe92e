"""Offsets of numbers far from zero and near each other: no precision is lost, and outputs are in the original units."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import torch

import didact
from didact import recipes
from didact.api import resume
from didact.cli.main import main
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.tables.offsets import find_offset, format_exact, format_plain
from didact.data.tables.table import TableEncoder
from didact.inference.evaluate import evaluate
from didact.inference.sample_images import sample_images, save_rows
from didact.run import Run
from didact.training.interrupts import Interrupted
from didact.training.loop import Trainer

NOW_S = 1_700_000_000
DAY_S = 86_400


def write_timestamps(folder, n=300, span=1000, seed=0):
    """Moments within a span of seconds, the class of each (the latter half), and another moment that follows it."""
    rng = np.random.default_rng(seed)
    t = NOW_S + rng.integers(0, span, n)
    is_late, a = np.where(t > NOW_S + span / 2, "yes", "no"), rng.normal(size=n).round(3)
    frame = pd.DataFrame({"t": t, "a": a, "late": is_late, "next": 2 * t - NOW_S + 7})
    path = folder / "moments.csv"
    frame.to_csv(path, index=False)
    return path, frame


def concat_splits(data, column="x"):
    order = torch.cat([data.indices[part] for part in didact.data.core.SPLITS]).argsort()
    return torch.cat([data.split(part).columns[column] for part in didact.data.core.SPLITS])[order]


@pytest.mark.parametrize("span", [1000, DAY_S, 30 * DAY_S, 100 * DAY_S])
def test_offset_keeps_seconds_of_timestamps(tmp_path, span):
    path, frame = write_timestamps(tmp_path, span=span)
    data = load(str(path), target="late")
    column = data.encoder.columns[0]
    assert NOW_S <= column.offset < NOW_S + span
    assert column.offset in frame["t"].to_numpy()[data.indices["train"].numpy()]
    original_values = concat_splits(data)[:, 0].double().numpy() + column.offset
    np.testing.assert_array_equal(original_values, frame["t"].to_numpy())
    assert data.feature_names[0] == f"t − {column.offset:.0f}" and data.feature_names[1] == "a"
    assert any(note.startswith("column 't' lies so near 17") and "subtracted before" in note for note in data.notes)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1900, 2030),
        np.random.default_rng(0).normal(170, 10, 500).round(1),
        np.random.default_rng(0).normal(0, 1, 500),
        np.random.default_rng(0).normal(1013.25, 3, 500).round(2),
        np.random.default_rng(0).normal(288.15, 8, 500).round(2),
        np.random.default_rng(0).normal(140, 3, 500).round(1),
        np.random.default_rng(0).lognormal(12, 1, 500).round(2),
        np.full(50, 0.1),
        np.arange(2**24 - 100, 2**24),
        np.array([]),
        np.array([np.nan, np.inf]),
    ],
)
def test_find_offset_is_zero_for_ordinary_numbers(values):
    assert find_offset(np.asarray(values, dtype=np.float64)) == 0


def test_new_rows_are_read_with_the_offset_of_training(tmp_path):
    path, frame = write_timestamps(tmp_path)
    data = load(str(path), target="late")
    encoder = data_from_json(json.loads(json.dumps(data_to_json(data)))).encoder
    assert encoder == data.encoder
    typed_rows = (
        f"t={frame['t'][3]},a={frame['a'][3]},next={frame['next'][3]}",
        f'{{"t": {NOW_S + 1}, "a": 0, "next": 0}}',
    )
    _, batch = encoder.read([str(path), *typed_rows])
    torch.testing.assert_close(batch["x"][:300], concat_splits(data), rtol=0, atol=0)
    assert (
        torch.equal(batch["x"][300], batch["x"][3])
        and float(batch["x"][301, 0]) == NOW_S + 1 - encoder.columns[0].offset
    )
    assert torch.equal(concat_splits(reload_data(data, data.indices)), concat_splits(data))


def test_missing_timestamp_is_the_median(tmp_path):
    frame = pd.DataFrame({"t": [NOW_S + i for i in range(40)] + [None], "y": ["k", "l"] * 20 + ["k"]})
    encoder, x = TableEncoder.from_frame(frame, "y")
    assert encoder.feature_names == (f"t − {NOW_S + 20}", "t missing") and x[-1].tolist() == [-0.5, 1]


def test_mlp_learns_from_seconds_of_timestamps(tmp_path):
    path, _ = write_timestamps(tmp_path, n=600, span=60)
    run = didact.train(recipes.mlp, data=path, target="late", epochs=30, runs=str(tmp_path / "runs"))
    # moments rounded to 128 s are all the same
    assert run.metadata["test"]["accuracy"] > 0.9
    for t, label in ((NOW_S + 10, "no"), (NOW_S + 50, "yes")):
        assert didact.predict(run, f"t={t},a=0,next={2 * t - NOW_S + 7}")[0]["label"] == label
    from didact.explain.explain_run import explain_run

    explain_run(run, [f"t={NOW_S + 601},a=0,next={NOW_S}"], out_dir=tmp_path / "why")
    assert any(
        "1,700,000,601" in page.read_text()
        for page in (tmp_path / "why").rglob("*.*")
        if page.suffix in (".html", ".svg")
    )


@pytest.fixture(scope="module")
def timestamp_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("followed")
    path, frame = write_timestamps(folder, n=600)
    run = didact.train(recipes.mlp, data=path, target="next", epochs=40, dropout=0.05, runs=str(folder / "runs"))
    return run, path, frame


def test_large_target_is_predicted_in_its_own_units(timestamp_run, capsys):
    run, path, frame = timestamp_run
    assert run.metadata["data"]["target_offset"] in frame["next"].to_numpy() and run.metadata["test"]["r2"] > 0.95
    predictions = didact.predict(run, path, mc_passes=5, num_samples=2)
    error = np.array([row["next"] for row in predictions]) - frame["next"].to_numpy()
    # rounded to 128 s it would be off by 37 alone
    assert np.sqrt((error**2).mean()) < 0.25 * frame["next"].std()
    assert len({row["next"] for row in predictions}) > 300
    for row in predictions:
        assert row["low"] < row["next"] < row["high"] and abs(row["samples"][0] - NOW_S) < 1e4
    assert main(["predict", str(run.folder), f"t={NOW_S + 500},a=0,late=no"]) in (0, None)
    assert "next 1,700,00" in capsys.readouterr().out


def test_evaluation_and_report_use_the_target_offset(timestamp_run):
    from didact.report.page import write_report

    run, _, _ = timestamp_run
    assert evaluate(run)["test"]["rmse"] == pytest.approx(run.metadata["test"]["rmse"])
    page = write_report(run).read_text()
    offset = run.metadata["data"]["target_offset"]
    assert f"true − {offset:.0f}" in page and "1,700,00" in page


def write_pressures(folder, n=300):
    """Air pressures, latitudes of one town and temperatures in kelvin: ordinary numbers, if far from zero."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"p": rng.normal(1013.25, 3, n).round(2), "lat": rng.normal(52.52, 0.01, n).round(5)})
    frame["kelvin"] = (288.15 + (frame["p"] - 1013.25) + rng.normal(0, 0.1, n)).round(2)
    frame.to_csv(folder / "air.csv", index=False)
    return folder / "air.csv", "kelvin", "p=1013,lat=52.5"


def write_timestamp_case(folder):
    return write_timestamps(folder)[0], "next", f"t={NOW_S},a=0,late=no"


@pytest.mark.parametrize("write_case", [write_pressures, write_timestamp_case])
def test_run_without_offsets_is_evaluated_and_resumed_unchanged(tmp_path, monkeypatch, write_case):
    path, target, row = write_case(tmp_path)
    train_round = Trainer.train_round

    def interrupt_at_step_3(self, *words):
        train_round(self, *words)
        if self.state.step == 3:
            self.save()
            raise Interrupted(self.run, 3, 6)

    arguments = {"data": path, "target": target, "steps": 6, "runs": str(tmp_path / "runs")}
    # as it was, when numbers were rounded at once
    with monkeypatch.context() as patch:
        for module in ("target", "columns"):
            patch.setattr(f"didact.data.tables.{module}.find_offset", lambda values: 0.0)
        uninterrupted_run = without_offsets(didact.train(recipes.mlp, **arguments))
        patch.setattr(Trainer, "train_round", interrupt_at_step_3)
        with pytest.raises(Interrupted):
            didact.train(recipes.mlp, **arguments)
    assert evaluate(uninterrupted_run)["test"] == pytest.approx(uninterrupted_run.metadata["test"])
    resumed_run = resume(without_offsets(Run.open("mlp/latest", tmp_path / "runs")))
    assert resumed_run.metadata["status"] == "finished" and resumed_run.metadata["test"] == pytest.approx(
        uninterrupted_run.metadata["test"]
    )
    assert didact.predict(resumed_run, row)[0][target] == didact.predict(uninterrupted_run, row)[0][target]


def without_offsets(run):
    """The run as an older didact wrote it, without offsets."""
    facts = json.loads((run.folder / "run.json").read_text())
    del facts["data"]["target_offset"]
    assert "shift" not in json.dumps(facts["data"]["encoder"])
    (run.folder / "run.json").write_text(json.dumps(facts))
    return Run.open(run.folder)


@pytest.mark.parametrize("recipe", ["vae", "realnvp", "wgan"])
def test_generated_rows_lie_in_the_range_of_training(tmp_path, recipe):
    path, frame = write_timestamps(tmp_path, n=200)
    run = didact.train(getattr(recipes, recipe), data=path, target="next", epochs=2, runs=str(tmp_path / "runs"))
    assert isinstance(run, Run)
    save_rows(run, sample_images(run, 40, seed=1), tmp_path / "new.csv")
    generated_rows = list(csv.DictReader((tmp_path / "new.csv").read_text().splitlines()))
    for name in ("t", "next"):
        values = np.array([float(row[name]) for row in generated_rows])
        assert frame[name].min() <= values.min() <= values.max() <= frame[name].max()
        assert (values % 1 == 0).all() and len(set(values)) > 5, values


@pytest.mark.parametrize(
    ("value", "offset", "text"),
    [
        (1_700_000_000_250.0, 1.7e12, "1,700,000,000,250"),
        (1_700_000_000_250.345678, 1.7e12, "1,700,000,000,250.35"),
        (NOW_S + 250.345678, NOW_S, "1,700,000,250.346"),
        (1.7e9, 1.7e9, "1,700,000,000"),
        (1.7e15 + 33, 1.7e15, "1,700,000,000,000,033"),
        (52.52 + float(np.float32(0.0134)), 52.52, "52.5334"),
        (52.52, 52.52, "52.52"),
        (-1e9 - 7, -1e9, "-1,000,000,007"),
        (0.0, 1e9, "0"),
    ],
)
def test_format_exact_keeps_all_digits(value, offset, text):
    assert format_exact(value, offset) == text


def test_format_plain_writes_numbers_as_in_the_table():
    assert [format_plain(v) for v in (1.7e12, 1.7e15 + 1, 52.52, -3.0)] == [
        "1700000000000",
        "1700000000000001",
        "52.52",
        "-3",
    ]


def test_milliseconds_stay_distinct_everywhere(tmp_path, capsys):
    from didact.explain.explain_run import format_column_values
    from didact.explain.explained_model import ExplainedModel
    from didact.report.predictions import read_predictions

    rng = np.random.default_rng(0)
    t = 1000 * NOW_S + rng.integers(0, 50_000, 200)
    pd.DataFrame(
        {"t": t, "u": t + rng.random(200).round(3), "late": np.where(t > np.median(t), "yes", "no"), "next": t + 40}
    ).to_csv(tmp_path / "ms.csv", index=False)
    arguments = {"data": tmp_path / "ms.csv", "epochs": 2, "runs": str(tmp_path / "runs")}
    run = didact.train(recipes.mlp, target="next", **arguments)
    assert main(["predict", str(run.folder), str(tmp_path / "ms.csv")]) in (0, None)
    printed_values = [line.split("next ")[1].split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(set(printed_values)) > 150 and all(
        abs(float(v.replace(",", "")) - 1.7e12) < 1e6 and "e" not in v for v in printed_values
    )
    reported_values = [read_predictions(run.metadata, run.load("test")).describe(row)[0] for row in range(20)]
    assert set(reported_values) <= {f"{v + 40:,}" for v in t} and len(set(reported_values)) > 15
    vae_run = didact.train(recipes.vae, target="next", **arguments)
    save_rows(vae_run, sample_images(vae_run, 20, seed=1), tmp_path / "new.csv")
    generated_rows = list(csv.DictReader((tmp_path / "new.csv").read_text().splitlines()))
    assert all(
        len({row[name] for row in generated_rows}) > 5
        and all(row[name].startswith("1700000") for row in generated_rows)
        for name in ("t", "u", "next")
    )
    explained_model = ExplainedModel.from_run(didact.train(recipes.mlp, target="late", **arguments), "cpu")
    _, batch = explained_model.data.encoder.read([str(tmp_path / "ms.csv")])
    names, members = explained_model.get_parts(batch["x"][0])
    assert format_column_values(batch["x"][3], members, names, explained_model)[0] == f"{t[3]:,}"
