"""Dates unfolded, amounts and durations read, identifiers and leaking columns named."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

import didact
from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.tables.cell_readings import Duration, Quantity, infer_date_format, infer_quantity
from didact.data.tables.leakage import _compute_auc, _correlate
from didact.data.tables.table import TableEncoder
from didact.errors import UsageError
from didact.inference.evaluate import evaluate

RNG = np.random.default_rng(0)
AMOUNTS = RNG.integers(100, 9_999_999, 60)


def group_digits(value: float, separator: str) -> str:
    return f"{value:,}".replace(",", separator)


SPELLINGS = {
    "dollars": [f"${v:,}" for v in AMOUNTS],
    "dollars and cents": [f"$ {v / 100:,.2f}" for v in AMOUNTS],
    "dollars behind a sign": [f"-${v:,}" for v in AMOUNTS],
    "accounting": [f"({v:,})" for v in AMOUNTS],
    "euros with spaces": [group_digits(v, " ") + " €" for v in AMOUNTS],
    "narrow spaces": [group_digits(v, "\u202f") for v in AMOUNTS],
    "apostrophes": ["CHF " + group_digits(v, "'") for v in AMOUNTS],
    "points and a comma": [group_digits(v // 100, ".") + f",{v % 100:02} EUR" for v in AMOUNTS],
    "points alone": ["€" + group_digits(v, ".") for v in AMOUNTS],
    "decimal commas": [f"{v // 100},{v % 100:02}%" for v in AMOUNTS],
    "percent": [f"{v / 100} %" for v in AMOUNTS],
    "thousands in quotes": [f"{v:,}" for v in AMOUNTS],
    "kilograms": [f"{v} kg" for v in AMOUNTS],
    "millions": [f"€{v / 1000:.3f}M" for v in AMOUNTS],
}
EXPECTED = {
    "dollars and cents": AMOUNTS / 100, "dollars behind a sign": -AMOUNTS, "accounting": -AMOUNTS,
    "points and a comma": AMOUNTS / 100, "decimal commas": AMOUNTS / 100, "percent": AMOUNTS / 100,
    "millions": AMOUNTS * 1000,
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_amounts_are_read_as_numbers(workdir, case):
    expected = np.asarray(EXPECTED.get(case, AMOUNTS), dtype=np.float64)
    frame = pd.DataFrame({"amount": SPELLINGS[case], "k": ["a", "b"] * 30})
    frame.to_csv("t.csv", index=False)
    frame.to_json("t.json", orient="records")
    for name in ("t.csv", "t.json"):
        data = load(name, target="k")
        assert data.feature_names[0].startswith("amount") and data.num_features == 1, data.notes
        x = np.empty(60)
        offset = data.encoder.columns[0].offset
        for part in SPLITS:
            x[data.indices[part].numpy()] = data.split(part).columns["x"][:, 0].double().numpy() + offset
        np.testing.assert_allclose(x, expected, rtol=1e-6)
        restored = TableEncoder.from_spec(json.loads(json.dumps(data.encoder.spec())))
        assert restored == data.encoder
        row = restored.read([json.dumps({"amount": SPELLINGS[case][3]})])[1]["x"]
        np.testing.assert_allclose(float(row[0, 0]) + offset, expected[3], rtol=1e-6)
        assert reload_data(data, data.indices).fingerprint == data.fingerprint
    # and as a target
    frame["k"] = range(60)
    frame.to_csv("t.csv", index=False)
    data = load("t.csv", target="amount")
    y = np.concatenate([data.split(part).columns["y"].double().numpy() + data.target_offset for part in SPLITS])
    order = np.concatenate([data.indices[part].numpy() for part in SPLITS])
    assert data.task == "regression"
    np.testing.assert_allclose(y, expected[order], rtol=1e-6)


def test_thousands_are_those_of_pandas(workdir):
    frame = pd.DataFrame({"a": [f"{v:,}" for v in AMOUNTS], "k": ["a", "b"] * 30})
    frame.to_csv("t.csv", index=False)
    expected = pd.read_csv("t.csv", thousands=",").a
    quantity = infer_quantity(frame.a)
    assert quantity.to_numbers(frame.a).tolist() == expected.tolist()
    frame.a.str.replace(",", ".").to_csv("e.csv", index=False)
    european = pd.read_csv("e.csv", thousands=".", decimal=",").a
    assert european.tolist() == AMOUNTS.tolist()


@pytest.mark.parametrize("cells", [
    ["A1", "A2", "A3"] * 20, ["class 1", "class 2"] * 30, ["1st", "2nd", "3rd"] * 20, ["5 kg", "7 lb", "9 kg"] * 20,
    ["red", "green"] * 30, ["10-20", "20-30"] * 30, ["v1.2.3", "v1.2.4"] * 30, ["192.168.0.1", "10.0.0.1"] * 30,
    ["3 rooms", "4 rooms"] * 30, ["M", "L", "XL"] * 20,
])
def test_codes_and_categories_stay_words(cells):
    assert infer_quantity(pd.Series(cells, dtype=object)) is None
    assert infer_date_format(pd.Series(cells, dtype=object)) is None


def test_durations_are_read_in_their_smallest_unit():
    short = pd.Series(["1:30", "0:45", "12:05"], dtype=object)
    long = pd.Series(["1:02:03", "0:59", "26:00:00.5"], dtype=object)
    assert infer_quantity(short) == Duration(False) and Duration(False).to_numbers(short).tolist() == [90, 45, 725]
    assert infer_quantity(long) == Duration(True) and Duration(True).to_numbers(long).tolist() == [3723, 59, 93600.5]
    deltas = pd.Series(pd.to_timedelta([3723, 93600], unit="s")).astype(str)      # 0 days 01:02:03
    quantity = infer_quantity(deltas.astype(object))
    assert quantity.to_numbers(deltas.astype(object)).tolist() == [3723, 93600]


def test_cells_that_cannot_be_read_are_counted(workdir):
    cells = [*SPELLINGS["dollars"][:59], "ask us"]
    pd.DataFrame({"price": cells, "k": ["a", "b"] * 30}).to_csv("t.csv", index=False)
    data = load("t.csv", target="k")
    note = next(note for note in data.notes if "'price'" in note)
    assert note.endswith("; 1 not read, first 'ask us' in line 61: taken as missing") and "is read as" in note
    with pytest.raises(UsageError, match="column 'price' expects numbers, got 'cheap'"):
        data.encoder.read(["price=cheap"])


TIMES = pd.Series(pd.date_range("2019-11-03 05:17", periods=80, freq="11h27min"))
FORMATS = {
    "iso": "%Y-%m-%d %H:%M", "iso T": "%Y-%m-%dT%H:%M:%S", "zone": "%Y-%m-%dT%H:%M:%SZ", "slashes": "%d/%m/%Y %H:%M",
    "american": "%m/%d/%Y %H:%M", "points": "%d.%m.%Y %H:%M", "english": "%d %B %Y %H:%M", "short": "%b %d, %Y %H:%M",
    "twelve hours": "%m/%d/%Y %I:%M %p",
}


@pytest.mark.parametrize("name", FORMATS)
def test_dates_are_unfolded_as_by_pandas(workdir, name):
    cells = TIMES.dt.strftime(FORMATS[name])
    pd.DataFrame({"sold": cells, "k": ["a", "b"] * 40}).to_csv("t.csv", index=False)
    data = load("t.csv", target="k")
    parts = [name.removeprefix("sold (").split(")")[0] for name in data.feature_names]
    assert parts == ["days", "month", "month sin", "month cos", "weekday", "hour", "hour sin", "hour cos"], data.notes
    x = np.empty((80, len(parts)))
    for part in SPLITS:
        x[data.indices[part].numpy()] = data.split(part).columns["x"].double().numpy()
    x += [column.offset for column in data.encoder.columns]
    days = (TIMES - pd.Timestamp(0)) / pd.Timedelta(days=1)
    hour = TIMES.dt.hour + TIMES.dt.minute / 60
    np.testing.assert_allclose(x[:, 0], days, atol=2e-4)
    np.testing.assert_allclose(x[:, 1], TIMES.dt.month)
    np.testing.assert_allclose(x[:, 4], TIMES.dt.day_of_week)
    np.testing.assert_allclose(x[:, 5], hour, rtol=1e-6)
    np.testing.assert_allclose(np.arctan2(x[:, 6], x[:, 7]) % (2 * np.pi), hour / 24 * 2 * np.pi, atol=1e-5)
    row = data.encoder.read([json.dumps({"sold": cells[7]})])[1]["x"]
    offsets = torch.tensor([column.offset for column in data.encoder.columns])
    np.testing.assert_allclose(row[0].double() + offsets, x[7], atol=1e-3)


def test_day_and_month_that_may_be_either_are_said(workdir):
    cells = [f"{d}/{m}/2020" for d in range(1, 13) for m in range(1, 7)]
    pd.DataFrame({"day": cells, "k": ["a", "b"] * 36}).to_csv("t.csv", index=False)
    assert any("is read with the month first: write 2020-01-31 where that is wrong" in n for n in load("t.csv").notes)
    pd.DataFrame({"day": [c.replace("/", ".") for c in cells], "k": ["a", "b"] * 36}).to_csv("t.csv", index=False)
    assert any("is read with the day first" in note for note in load("t.csv").notes)


def test_constant_parts_and_missing_dates(workdir):
    days = pd.Series(pd.date_range("2020-01-06", periods=60, freq="7D").strftime("%Y-%m-%d"), dtype=object)
    days[[5, 9]] = None
    pd.DataFrame({"week": days, "whole": [20200131 + i % 2 * 70 for i in range(60)], "year": [1990 + i for i in
                  range(60)], "k": ["a", "b"] * 30}).to_csv("t.csv", index=False)
    data = load("t.csv")
    assert [n for n in data.feature_names if n.startswith("week")] == [
        "week (days)", "week (days) missing", "week (year)", "week (month)", "week (month sin)", "week (month cos)"
    ]
    assert "year" in data.feature_names and "whole (days)" not in data.feature_names       # two dates may be codes
    with pytest.raises(UsageError, match="column 'week' expects dates as in training, got 'soon'"):
        data.encoder.read(["week=soon,whole=1,year=1990"])
    pd.DataFrame({"when": [20200128 + i % 4 for i in range(60)], "k": ["a", "b"] * 30}).to_csv("t.csv", index=False)
    assert "when (days)" in load("t.csv").feature_names[0]


def test_run_on_dates_and_amounts_predicts_evaluates_and_resumes(workdir):
    frame = pd.DataFrame({
        "sold": TIMES.dt.strftime("%d.%m.%Y %H:%M"), "area": [f"{v % 100 + 20},5 m²" for v in range(80)],
        "took": [f"{v % 12}:{v % 60:02}" for v in range(80)], "price": [f"{3000 + 17 * v} €" for v in range(80)],
    })
    frame.to_csv("t.csv", index=False, sep=";")
    run = didact.train("mlp", data="t.csv", target="price", steps=3, hidden=(4,))
    assert evaluate(run, device="cpu")["test"] == pytest.approx(run.metadata["test"], rel=1e-5)
    names = run.metadata["data"]["feature_names"]
    assert "area" in names and "took" in names and "sold (hour sin)" in names
    predictions = didact.predict(run, "t.csv")
    # a workbook has dates and numbers of its own
    frame.assign(sold=TIMES.dt.floor("min")).to_excel("new.xlsx", index=False)
    from_workbook = didact.predict(run, "new.xlsx")
    assert [p["price"] for p in from_workbook] == pytest.approx([p["price"] for p in predictions], rel=1e-5)


def test_series_of_amounts(workdir):
    days = pd.date_range("2020-01-01", periods=200)
    pd.DataFrame({"day": days, "sales": [f"${1000 + 37 * (i % 7):,}" for i in range(200)]}).to_csv("s.csv", index=False)
    pd.DataFrame({"day": days, "sales": [1000 + 37 * (i % 7) for i in range(200)]}).to_csv("plain.csv", index=False)
    data = load("s.csv", accepts=("series",))
    assert data.fingerprint == load("plain.csv", accepts=("series",)).fingerprint
    assert any("'$1,000' is read as 1000" in note for note in data.notes)
    assert reload_data(data, data.indices).fingerprint == data.fingerprint


def test_sampled_rows_have_dates(workdir):
    days = pd.date_range("2019-11-03", periods=120).strftime("%Y-%m-%d")
    pd.DataFrame({"day": days, "x": RNG.normal(size=120)}).to_csv("t.csv", index=False)
    run = didact.train("vae", data="t.csv", steps=2, hidden=(8,), batch_size=16)
    from didact.inference.sample_images import sample_images, save_rows

    assert save_rows(run, sample_images(run, 20), Path("new.csv")) == ["day", "x"]
    new = pd.read_csv("new.csv", parse_dates=["day"])
    assert new.day.between("2019-11-03", "2020-03-01").all()


def test_identifiers_are_named(workdir):
    pd.DataFrame({"key": [f"u-{i:05}" for i in range(100)], "note": [f"person {i}" for i in range(100)],
                  "x": range(100), "k": ["a", "b"] * 50}).to_csv("t.csv", index=False)
    notes = " | ".join(load("t.csv").notes)
    assert "column 'key' holds identifiers, 70 different in 70 rows: left out" in notes
    assert "column 'note' holds free text" in notes


LEAKS = {
    "a copy": (lambda y: y, "accuracy 1.0000|AUC 1.0000|R² 1.0000"),
    "a multiple": (lambda y: -3 * y + 5, "AUC 1.0000|R² 1.0000|accuracy 1.0000"),
    "a code": (lambda y: np.char.add("code ", (2 * y).astype(int).astype(str)), "accuracy 1.0000|R² 1.0000"),
}


@pytest.mark.parametrize("task", ["binary", "multiclass", "few numbers", "numbers"])
@pytest.mark.parametrize("case", LEAKS)
def test_columns_that_tell_the_target_are_named(workdir, task, case):
    n = 400
    y = {"binary": RNG.integers(0, 2, n), "multiclass": RNG.integers(0, 4, n), "few numbers": RNG.integers(0, 9, n) / 2,
         "numbers": RNG.lognormal(0, 1, n)}[task]
    leak, measures = LEAKS[case]
    if case == "a code" and task == "numbers":
        leak, measures = (lambda y: np.exp(y)), "R² 1.0000"           # any monotone function
    fair = RNG.normal(size=n) + y
    pd.DataFrame({"fair": fair, "later": leak(y), "noise": RNG.normal(size=n), "y": y}).to_csv("t.csv", index=False)
    data = load("t.csv", task="number" if "numbers" in task else "classes")
    found = [note for note in data.notes if "tells the target" in note]
    assert len(found) == 1 and found[0].startswith("column 'later' (") and "--drop" in found[0]
    assert any(measure in found[0] for measure in measures.split("|"))
    pd.DataFrame({"fair": fair, "y": y}).to_csv("t.csv", index=False)
    assert not any("tell" in note for note in load("t.csv").notes)


def test_scores_of_columns_are_those_of_scikit_learn():
    x, y = RNG.normal(size=(200, 3)).round(1), RNG.integers(0, 2, 200).astype(float)
    x[:, 1] += y
    np.testing.assert_allclose(_compute_auc(x, y), [roc_auc_score(y, x[:, j]) for j in range(3)])
    np.testing.assert_allclose(_correlate(x, y), [np.corrcoef(x[:, j], y)[0, 1] ** 2 for j in range(3)])


@pytest.mark.parametrize("name", ["iris.csv", "wine.csv", "breast_cancer.csv", "diabetes.csv"])
def test_ordinary_tables_hold_no_leak(workdir, name):
    import sklearn.datasets

    getattr(sklearn.datasets, f"load_{name[:-4]}")(as_frame=True).frame.to_csv(name, index=False)
    assert not any("tell" in note or "dates" in note or "units" in note for note in load(name).notes)


def test_table_of_very_many_columns_loads_in_bounded_time(workdir):
    x = RNG.normal(size=(200, 5000)).round(3)
    pd.DataFrame(x).add_prefix("g").assign(y=np.where(x[:, 0] > 0, "a", "b")).to_csv("wide.csv", index=False)
    start = time.process_time()
    data = load("wide.csv")
    assert data.num_features == 5000 and time.process_time() - start < 15
    assert any("5,000 features" in note and "--features" in note for note in data.notes)


def test_quantity_of_unknown_units_is_not_read():
    assert np.isnan(Quantity().parse("5 apples")) and Quantity(unit="apples").parse("5 apples") == 5
    assert np.isnan(Quantity().parse("(5")) and np.isnan(Quantity().parse("")) and Quantity().parse("$1.5k") == 1500


ODD_CELLS = [
    "0000-00-00", "99999999", "20200101", "1e400", "$1e5", "1:99", "1:30", "1:02:03", "2 days 03:00:00", "NaT", "−5",
    "½", "$", "%", "12 %", "$1,200", "1.200,50 €", "1 200", "(350)", "()", "€3.5M", "75 kg", "31/12/2020", "Jan 5",
    "Jan 5, 2021", "2020-01-31T05:06:07Z", "9999-12-31", "0001-01-01", "1677-01-01", "", "NA", "inf", "true", "日本",
    "0x1F", "-0", "1..2", "1,2,3", "1.2.3.4", "\\", "=1+1", "5 PM", "Q1 2020", "2020", "3.5",
]


@pytest.mark.filterwarnings("error")
def test_tables_of_odd_cells_are_read_again_alike_or_refused_in_one_line(workdir):
    chance, num_read = random.Random(0), 0
    for _ in range(24):
        words = [chance.sample(ODD_CELLS, chance.choice([1, 2, 6])) for _ in range(3)]
        frame = pd.DataFrame({f"c{j}": [chance.choice(words[j]) for _ in range(40)] for j in range(3)})
        frame["old"] = [f"{chance.randrange(1, 29)}.5.{chance.randrange(1500, 2600)}" for _ in range(40)]
        frame["y"] = [chance.choice("ab") for _ in range(40)] if chance.random() < 0.7 else frame["c0"]
        frame.to_csv("t.csv", index=False, sep=chance.choice(",;"))
        try:
            data = load("t.csv", target="y")
            assert TableEncoder.from_spec(json.loads(json.dumps(data.encoder.spec()))) == data.encoder
            assert reload_data(data, data.indices).fingerprint == data.fingerprint
            assert len(data.encoder.read(["t.csv"])[0]) == 40
            assert len(data.encoder.describe_unseen_inputs(["t.csv"])) <= len(data.encoder.source_names)
            num_read += 1
        except UsageError as error:
            assert "\n" not in str(error)
    assert num_read > 8
