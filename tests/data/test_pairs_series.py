"""Pairs of sentences and series of numbers: made ones, public ones, one's own."""

import json
from datetime import date, timedelta

import pytest
import torch

from beside import has_public
from didact.data.core import SPLITS
from didact.data.load import load, reload
from didact.data.pairs import LONGEST, PairEncoder, in_words, translated
from didact.data.series import SeriesEncoder, ahead, series
from didact.data.spec import from_spec, spec
from didact.data.tokens import BEGIN, END
from didact.errors import UsageError


def test_numbers_in_words():
    told = {0: "zero", 7: "seven", 13: "thirteen", 20: "twenty", 99: "ninety nine", 100: "one hundred", 110: "one hundred ten",
            1000: "one thousand", 342_007: "three hundred forty two thousand seven"}
    assert {n: in_words(n) for n in told} == told


def test_number_words_are_pairs():
    data = load("number_words")
    assert (data.kind, data.task) == ("pairs", "translation")
    batch = data.test.batch(torch.arange(5))
    for x, y in zip(batch["x"].tolist(), batch["y"].tolist(), strict=True):
        assert y[0] == BEGIN and END in y and END in x
        assert in_words(int(data.encoder.target.decode(y))) == data.encoder.source.decode(x)
    assert from_spec(json.loads(json.dumps(spec(data)))).encoder == data.encoder
    everyone = torch.cat([data.indices[part] for part in data.indices])
    assert len(everyone.unique()) == len(everyone) and reload(data, data.indices).fingerprint == data.fingerprint


def test_own_pairs_from_a_tsv(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("".join(f"a cat number {i}\tun chat {i}\n" for i in range(30)), encoding="utf-8")
    data = load(str(path), accepts=("pairs",))
    assert data.kind == "pairs" and data.source["kind"] == "pairs"
    assert reload(data, data.indices).encoder == data.encoder
    names, batch = data.encoder.read(["a cat"])
    assert names == ["a cat"] and batch["x"][0, -1] == END
    with pytest.raises(UsageError, match="expected a sentence, got ' '"):
        data.encoder.read([" "])
    for line, told in (("one side\t\n", "line 31 .* must be two sentences with a tab between, got 'one side"), ("no tab\n", "line 31")):
        path.write_text("".join(f"a b {i}\tc d\n" for i in range(30)) + line, encoding="utf-8")
        with pytest.raises(UsageError, match=told):
            load(str(path), accepts=("pairs",))
    path.write_text("a b\tc d\n")
    with pytest.raises(UsageError, match="holds 1 pairs; at least 10"):
        load(str(path), accepts=("pairs",))


def test_long_sentences_are_cut_and_it_is_said():
    data = translated("long", [("a " * 200 + str(i), "b") for i in range(20)])
    assert data.shape == (LONGEST,) and any("20 pairs" in note for note in data.notes)
    assert data.train.columns["x"][0, -1] == END and isinstance(data.encoder, PairEncoder)


@pytest.mark.skipif(not has_public("multi30k"), reason="DIDACT_DATA holds no multi30k")
def test_multi30k_keeps_its_own_splits():
    data = load("multi30k_fr")
    assert [len(data.split(part)) for part in ("train", "validation", "test")] == [29_000, 1_014, 1_000]
    y = data.test.batch(torch.tensor([0]))["y"][0].tolist()
    assert data.encoder.target.decode(y) == "Un homme avec un chapeau orange regardant quelque chose."


def test_windows_of_a_series_do_not_cross_the_borders_of_the_splits():
    data = series("count", list(range(200)), "n", window=5, horizon=2)
    x, y = data.train.columns["x"], data.train.columns["y"]
    assert torch.equal(x[3, :, 0], torch.arange(3.0, 8.0)) and y[3].tolist() == [8, 9]
    assert float(y.max()) == 139 and float(data.validation.columns["x"].min()) == 140 and float(data.test.columns["x"].min()) == 170
    assert data.task == "forecast" and series("count", list(range(400)), "n").task == "regression"
    assert data.mean.shape == (5, 1)
    with pytest.raises(UsageError, match="holds 50 values of 'n'; at least 70"):
        series("few", list(range(50)), "n", window=5, horizon=2)


def day(i, form="%Y-%m-%d"):
    return (date(2020, 1, 1) + timedelta(i)).strftime(form)


def test_own_series_from_a_csv(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("day,warmth,note\n" + "".join(f"{day(i)},{'' if i == 3 else i / 2},{'xy'[i % 2]}\n" for i in range(400)))
    data = load(str(path), accepts=("series",))
    assert (data.kind, data.target, data.task) == ("series", "warmth", "regression")
    assert data.train.columns["x"][0, :4, 0].tolist() == [0, 0.5, 1, 1]         # a gap keeps the value before it
    assert data.notes[1:2] == ("1 of 400 values of 'warmth' are missing: filled with the one before, and scored as if measured",)
    assert reload(data, data.indices).fingerprint == data.fingerprint
    encoder = SeriesEncoder.from_spec(json.loads(json.dumps(data.encoder.spec())))
    _, batch = encoder.read([",".join("1" * 30), str(path)])
    assert batch["x"].shape == (2, 30, 1) and batch["x"][1, -1, 0] == 199.5
    assert encoder.read([",".join(["12.345678901"] * 30)])[1]["x"].shape == (1, 30, 1)      # longer than the name of a file may be
    (tmp_path / "odd.csv").write_text("warmth\n" + "1\n" * 29 + "inf\n")
    for wrong, told in (
        ("1,2", "a window is 30 values of 'warmth', got 2"), ("warm", "expected a CSV file or values separated by commas"),
        ("no.csv", "cannot read no.csv .No such file"),
        ("1," * 29 + "nan", "the values of 'warmth' must be finite, but number 30 is nan in '1,"),
        ("1," * 29 + "-inf", "number 30 is -inf"), ("1," * 9 + "1e39" + ",1" * 20, "number 10 is 1e\\+39"),
        (str(tmp_path / "odd.csv"), "number 30 is inf in '.*odd.csv'; put it right"),
    ):
        with pytest.raises(UsageError, match=told):
            encoder.read([wrong])
    with pytest.raises(UsageError, match="no column 'warmt'; did you mean 'warmth'"):
        load(str(path), accepts=("series",), target="warmt")
    with pytest.raises(UsageError, match=r"column 'note' .* is not numbers"):
        load(str(path), accepts=("series",), target="note")
    assert load(str(path)).kind == "table"                                      # a table, where nothing else is wanted


ORDERS = {"rising": range(400), "falling": range(399, -1, -1), "shuffled": [i * 7 % 400 for i in range(400)]}
NEWEST, MIXED = "sorted by 'day': the file has the newest first", "sorted by 'day': the rows of the file are not in the order of time"
STAY = "stay in the order of the file"


@pytest.mark.parametrize(("form", "order", "told"), [
    ("%Y-%m-%d", "rising", ()), ("%Y-%m-%d", "falling", (NEWEST,)), ("%Y-%m-%d", "shuffled", (MIXED,)), ("%d/%m/%Y", "rising", ()),
    ("%m/%d/%Y", "rising", ()), ("%d.%m.%Y", "falling", (NEWEST,)), ("%d/%m/%Y", "shuffled", (MIXED,)), ("%b %d %Y", "falling", (NEWEST,)),
    ("%Y-%m-%dT%H:%M:%SZ", "shuffled", (MIXED,)), ("%Y%m%d", "falling", (NEWEST,)),
])
def test_a_series_is_read_from_the_oldest_to_the_newest(tmp_path, recwarn, form, order, told):
    path = tmp_path / "own.csv"
    path.write_text("place,day,warmth\n" + "".join(f"here,{day(i, form)},{i}\n" for i in ORDERS[order]))
    data = load(str(path), accepts=("series",))
    assert data.train.columns["x"][0, :, 0].tolist() == list(range(30)) and not recwarn.list
    assert data.encoder.read([str(path)])[1]["x"][0, -1, 0] == 399              # what is forecast lies behind the newest
    assert data.notes[1:] == told


def test_what_dates_leave_open_is_said(tmp_path):
    path = tmp_path / "own.csv"
    few = [i for i in range(600) if date.fromisoformat(day(i)).day < 13]
    for told, rows in {
        f"the dates in 'day' may have the day or the month first: the rows {STAY}; write them as 2020-01-31":
            [day(i, "%d/%m/%Y") for i in reversed(few[1::2])] + [day(i, "%d/%m/%Y") for i in few[::2]],
        f"1 of 300 rows have no date in 'day': all {STAY}": ["", *map(day, range(299, 0, -1))],
        f"600 of 600 rows share their date in 'day' with another: those {STAY}": [day(i // 2) for i in range(600)],
    }.items():
        path.write_text("day,warmth\n" + "".join(f"{when},{k}\n" for k, when in enumerate(rows)))
        data = load(str(path), accepts=("series",))
        assert data.notes[1] == told and data.train.columns["x"][0, :4, 0].tolist() == [0, 1, 2, 3]
    path.write_text("day,warmth\n" + "".join(f"{day((299 - k) // 2)},{k}\n" for k in range(300)))        # two a day, the newest first
    assert load(str(path), accepts=("series",)).train.columns["x"][0, :4, 0].tolist() == [299, 298, 297, 296]


def test_a_series_that_is_mostly_gaps_is_refused(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("day,warmth\n" + "".join(f"{day(i)},{i if i < 199 else ''}\n" for i in range(400)))
    with pytest.raises(UsageError, match=r"201 of 400 values of 'warmth' are missing in .*own.csv: a time series needs at least half"):
        load(str(path), accepts=("series",), target="warmth")


def test_a_short_series_is_cut_into_short_windows(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("warmth\n" + "".join(f"{i / 2}\n" for i in range(100)))
    data = load(str(path), accepts=("series",))
    assert data.encoder.window == 9 and reload(data, data.indices).fingerprint == data.fingerprint
    cut = ahead(data, window=5)
    assert cut.train.columns["x"][7, :3, 0].tolist() == [3.5, 4.0, 4.5] and [len(cut.split(p)) for p in SPLITS] == [65, 10, 10]
    assert len(ahead(data, window=12).validation) == 3
    with pytest.raises(UsageError, match=r"the validation part of 'short' has 15 values, but a window takes 30 \+ 1; choose"):
        ahead(data, window=30)
    path.write_text("warmth\n" + "".join(f"{i / 2}\n" for i in range(19)))
    with pytest.raises(UsageError, match="holds 19 values of 'warmth'; at least 20 make windows of 1"):
        load(str(path), accepts=("series",))


def test_a_series_may_be_the_only_column(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("warmth\n" + "".join(f"{i / 2}\n" for i in range(400)))
    data = load(str(path), accepts=("series",))
    assert (data.kind, data.target, len(data.train)) == ("series", "warmth", 280 - 30)
    assert data.train.columns["x"][7, :3, 0].tolist() == [3.5, 4.0, 4.5]
    assert reload(data, data.indices).fingerprint == data.fingerprint
    assert data.encoder.read([str(path)])[1]["x"][0, -1, 0] == 199.5
    assert load(str(path)).task == "none"                                      # a table needs something to predict from, a density does not
    path.write_text("".join(f"{i / 2}\n" for i in range(400)))
    with pytest.raises(UsageError, match=r"the first line of .* must name the columns, got numbers: 0.0"):
        load(str(path), accepts=("series",))
    path.write_text("day\n" + "monday\n" * 400)
    with pytest.raises(UsageError, match="has no column of numbers: a time series needs one"):
        load(str(path), accepts=("series",))


@pytest.mark.skipif(not has_public("temperatures"), reason="DIDACT_DATA holds no temperatures")
def test_daily_temperatures():
    data = load("temperatures")
    assert len(data.train) + 30 == int(0.7 * 3650) and data.train.columns["x"][0, 0, 0] == pytest.approx(20.7)
