"""Time series from tables: wide and long, with covariates, dates, gaps."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.time_series import SeriesEncoder, read_series, with_horizon
from didact.errors import UsageError


def load_series(path, **options):
    return load(str(path), accepts=("series",), **options)


def make_frame(n=120, start="2021-03-01", freq="D"):
    t = np.arange(n)
    dates = pd.date_range(start, periods=n, freq=freq)
    return pd.DataFrame({"day": dates.strftime("%Y-%m-%d %H:%M"), "load": t % 5, "b": 100 + t, "a": t * 1.5})


def test_wide_table_has_a_target_and_covariates(tmp_path):
    path = tmp_path / "wide.csv"
    make_frame().to_csv(path, index=False)
    data = load_series(path, target="b")
    assert data.feature_names == ("b", "load", "a") and data.shape == (11, 3)
    assert data.train.columns["x"][2, -1].tolist() == [112, 2, 18] and data.train.columns["y"][2] == 113
    cut = with_horizon(data, window=4, horizon=2, covariates=("a",))
    batch = cut.test.batch(torch.tensor([0]))
    assert batch["x"][0].tolist() == [[100 + t, 1.5 * t] for t in range(98, 102)] and batch["y"][0].tolist() == [
        202, 203
    ]
    assert with_horizon(cut, window=3).validation.columns["x"].shape == (18, 3, 1)    # cut again, without it
    assert reload_data(data, data.indices).fingerprint == data.fingerprint


def test_several_targets_are_a_series_each(tmp_path):
    path = tmp_path / "wide.csv"
    make_frame().to_csv(path, index=False)
    data = load_series(path, target="a, b")
    assert list(data.encoder.statistics) == ["a", "b"] and data.encoder.columns == ("value",)
    batch = data.train.batch(torch.tensor([0, len(data.train) - 1]))
    assert batch["series"].tolist() == [0, 1] and batch["y"].tolist() == [16.5, 183]
    train = make_frame()["b"][:84]
    assert float(batch["location"][1]) == pytest.approx(train.mean()) and float(batch["scale"][1]) == pytest.approx(
        train.std(ddof=0)
    )
    assert reload_data(data, data.indices).fingerprint == data.fingerprint
    with pytest.raises(UsageError, match="no column 'c'; choose from: a, b, day, load"):
        load_series(path, target="a,c")


@pytest.mark.parametrize("order", ["by place", "by date", "shuffled"])
@pytest.mark.parametrize("has_number_names", [False, True])
def test_long_table_is_a_series_for_each_name(tmp_path, order, has_number_names):
    names = [11, 12, 13] if has_number_names else ["Ohio", "Utah", "Iowa"]
    parts = [make_frame().assign(place=name, a=lambda f, k=k: f["a"] + 1000 * k) for k, name in enumerate(names)]
    frame = pd.concat(parts)
    if order == "by date":
        frame = frame.sort_values("day", kind="stable")
    elif order == "shuffled":
        frame = frame.sample(frac=1, random_state=0)
    path = tmp_path / "long.csv"
    frame.drop(columns="b").to_csv(path, index=False)
    data = load_series(path, target="a")
    if has_number_names and order == "by date":      # these might be the hours of a day
        assert not data.encoder.has_many_series and any("share their date" in note for note in data.notes)
        return
    assert {name: s.lengths for name, s in data.encoder.statistics.items()} == dict.fromkeys(
        map(str, names), (84, 18, 18)
    )
    assert [len(data.split(part)) for part in SPLITS] == [3 * (84 - 11), 54, 54]
    for part in SPLITS:
        columns = data.split(part).columns
        assert torch.equal(columns["y"] - columns["x"][:, -1, 0], torch.full((len(columns["y"]),), 1.5))
        first_number = list(data.encoder.statistics)[int(columns["series"][0])]
        assert float(columns["y"][0]) // 1000 == list(map(str, names)).index(first_number)
    # a file with one of them, and one that was never seen
    parts[1].assign(place=[names[1]] * 100 + ["99" if has_number_names else "Guam"] * 20).to_csv(
        tmp_path / "new.csv", index=False
    )
    read_names, batch = data.encoder.read([str(tmp_path / "new.csv")])
    assert [name.rpartition(" ")[2] for name in read_names] == [str(names[1]), "99" if has_number_names else "Guam"]
    assert float(batch["location"][0, 0]) == pytest.approx(data.encoder.statistics[str(names[1])].mean[0])
    assert float(batch["location"][1, 0]) == pytest.approx(1000 + 1.5 * np.arange(100, 120).mean())


@pytest.mark.parametrize("freq", ["h", "D", "W-SAT", "MS", "ME", "QS-OCT", "YS-JAN", "15min", "B"])
def test_forecast_has_the_dates_that_follow(tmp_path, freq):
    dates = pd.date_range("2001-01-06", periods=130, freq=freq)
    path = tmp_path / "own.csv"
    pd.DataFrame({"day": dates[:120], "a": range(120)}).to_csv(path, index=False)
    encoder = SeriesEncoder("a", window=3, horizon=4)
    (forecast_dates,) = encoder.list_forecast_dates([str(path)])
    assert list(pd.to_datetime(forecast_dates)) == list(dates[120:124])
    assert not [note for note in read_series(path).notes if "gap" in note or "evenly" in note]
    # rows that are missing are counted, and do not hide the step
    pd.DataFrame({"day": dates[:120], "a": range(120)}).drop([40, 41, 90]).to_csv(path, index=False)
    (note,) = (note for note in read_series(path).notes if "gaps in time" in note)
    assert note.startswith("gaps in time: 3 of 120 dates in 'day' have no row, the first 20")
    assert encoder.list_forecast_dates([str(path)])[0] == forecast_dates
    assert encoder.list_forecast_dates(["1,2,3"]) == [None]


def test_uneven_dates_are_noted_and_not_continued(tmp_path):
    path = tmp_path / "own.csv"
    days = np.cumsum(np.random.default_rng(0).integers(1, 9, 120))
    pd.DataFrame({"day": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D"), "a": range(120)}).to_csv(
        path, index=False
    )
    assert "the dates in 'day' are not evenly spaced: the values are taken as if they were" in load_series(path).notes
    assert SeriesEncoder("a", window=3).list_forecast_dates([str(path)]) == [None]


def test_encoder_is_rebuilt_from_its_spec(tmp_path):
    path = tmp_path / "wide.csv"
    make_frame().to_csv(path, index=False)
    for options in {"target": "b"}, {"target": "a,b"}:
        data = with_horizon(load_series(path, **options), window=7, horizon=3)
        rebuilt = data_from_json(json.loads(json.dumps(data_to_json(data))))
        assert rebuilt.encoder == data.encoder and rebuilt.shape == (7, 1)
        # of a run without its data, the number of windows is known all the same
        for window, horizon in ((7, 3), (20, 1), (4, 9)):
            expected, cut = (with_horizon(d, window=window, horizon=horizon) for d in (data, rebuilt))
            assert [len(cut.split(part)) for part in SPLITS] == [len(expected.split(part)) for part in SPLITS]


def test_short_series_of_many_are_left_out(tmp_path):
    path = tmp_path / "long.csv"
    pd.concat([make_frame(n).assign(place=name) for name, n in (("x", 60), ("y", 19), ("z", 40))]).to_csv(
        path, index=False
    )
    data = load_series(path, target="a")
    assert list(data.encoder.statistics) == ["x", "z"]
    assert "1 of 3 series have fewer than 20 values: left out" in data.notes


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv.bz2"])
def test_series_are_read_from_every_plain_format(tmp_path: Path, suffix):
    path = tmp_path / f"own{suffix}"
    frame = make_frame()
    if suffix == ".csv.bz2":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=suffix == ".jsonl")
    data = load_series(path, target="a")
    assert data.train.columns["x"][0, :3, 0].tolist() == [0, 1.5, 3] and data.encoder.list_forecast_dates(
        [str(path)]
    ) == [["2021-06-29"]]


@pytest.mark.parametrize("target, message", [
    (",", r"has no column ','; choose from"), ("a,a", r"names a column twice"), ("a,,zz", r"has no column 'zz'"),
])  # fmt: skip
def test_targets_that_are_no_columns_are_refused(tmp_path, target, message):
    (tmp_path / "s.csv").write_text("a,b\n" + "".join(f"{i % 7},{i}\n" for i in range(80)))
    with pytest.raises(UsageError, match=message):
        load_series(tmp_path / "s.csv", target=target)
