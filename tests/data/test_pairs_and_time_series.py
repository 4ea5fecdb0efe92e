"""Sentence pairs and time series: synthetic, public and from files."""

import json
from datetime import date, timedelta

import pytest
import torch

from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.text.parallel_texts import MAX_TOKENS, PairEncoder, build_pairs, number_to_words
from didact.data.text.tokenizers import BOS_ID, EOS_ID
from didact.data.time_series import SeriesEncoder, build_series, with_horizon
from didact.errors import UsageError
from helpers.public_data import has_public_data


def test_number_to_words_by_hand():
    words_by_number = {
        0: "zero",
        7: "seven",
        13: "thirteen",
        20: "twenty",
        99: "ninety nine",
        100: "one hundred",
        110: "one hundred ten",
        1000: "one thousand",
        342_007: "three hundred forty two thousand seven",
    }
    assert {n: number_to_words(n) for n in words_by_number} == words_by_number


def test_number_words_data_are_translation_pairs():
    data = load("number_words")
    assert (data.kind, data.task) == ("pairs", "translation")
    batch = data.test.batch(torch.arange(5))
    for x, y in zip(batch["x"].tolist(), batch["y"].tolist(), strict=True):
        assert y[0] == BOS_ID and EOS_ID in y and EOS_ID in x
        assert number_to_words(int(data.encoder.target.decode(y))) == data.encoder.source.decode(x)
    assert data_from_json(json.loads(json.dumps(data_to_json(data)))).encoder == data.encoder
    all_indices = torch.cat([data.indices[part] for part in data.indices])
    assert (
        len(all_indices.unique()) == len(all_indices)
        and reload_data(data, data.indices).fingerprint == data.fingerprint
    )


def test_load_pairs_reads_a_tsv(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("".join(f"a cat number {i}\tun chat {i}\n" for i in range(30)), encoding="utf-8")
    data = load(str(path), accepts=("pairs",))
    assert data.kind == "pairs" and data.source["kind"] == "pairs"
    assert reload_data(data, data.indices).encoder == data.encoder
    names, batch = data.encoder.read(["a cat"])
    assert names == ["a cat"] and batch["x"][0, -1] == EOS_ID
    with pytest.raises(UsageError, match="expected a sentence, got ' '"):
        data.encoder.read([" "])
    for line, message in (
        ("one side\t\n", "line 31 .* must be two sentences with a tab between, got 'one side"),
        ("no tab\n", "line 31"),
    ):
        path.write_text("".join(f"a b {i}\tc d\n" for i in range(30)) + line, encoding="utf-8")
        with pytest.raises(UsageError, match=message):
            load(str(path), accepts=("pairs",))
    path.write_text("a b\tc d\n")
    with pytest.raises(UsageError, match="holds 1 pairs; at least 10"):
        load(str(path), accepts=("pairs",))


def test_long_sentences_are_truncated_with_a_note():
    data = build_pairs("long", [("a " * 200 + str(i), "b") for i in range(20)])
    assert data.shape == (MAX_TOKENS,) and any("20 pairs" in note for note in data.notes)
    assert data.train.columns["x"][0, -1] == EOS_ID and isinstance(data.encoder, PairEncoder)


@pytest.mark.skipif(not has_public_data("multi30k"), reason="DIDACT_DATA holds no multi30k")
def test_multi30k_keeps_its_own_splits():
    data = load("multi30k_fr")
    assert [len(data.split(part)) for part in ("train", "validation", "test")] == [29_000, 1_014, 1_000]
    y = data.test.batch(torch.tensor([0]))["y"][0].tolist()
    assert data.encoder.target.decode(y) == "Un homme avec un chapeau orange regardant quelque chose."


def test_targets_do_not_cross_splits():
    """What is forecast lies in its part; the past values before it are known, and may lie in the part before."""
    data = build_series("count", list(range(200)), "n", window=5, horizon=2)
    x, y = data.train.columns["x"], data.train.columns["y"]
    assert torch.equal(x[3, :, 0], torch.arange(3.0, 8.0)) and y[3].tolist() == [8, 9]
    assert (
        float(y.max()) == 139
        and data.validation.columns["y"][0].tolist() == [140, 141]
        and data.validation.columns["x"][0, :, 0].tolist() == list(range(135, 140))
        and data.test.columns["y"][0].tolist() == [170, 171]
        and float(data.validation.columns["y"].max()) == 169
    )
    assert data.task == "forecast" and build_series("count", list(range(400)), "n").task == "regression"
    assert data.mean.shape == (5, 1)
    with pytest.raises(UsageError, match=r"'few' holds 40 values of 'n': too few .*needs at least 50"):
        build_series("few", list(range(40)), "n", window=5, horizon=2)


def format_day(i, date_format="%Y-%m-%d"):
    return (date(2020, 1, 1) + timedelta(i)).strftime(date_format)


def test_load_series_reads_a_csv(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "day,warmth,note\n" + "".join(f"{format_day(i)},{'' if i == 3 else i / 2},{'xy'[i % 2]}\n" for i in range(400))
    )
    data = load(str(path), accepts=("series",))
    assert (data.kind, data.target, data.task) == ("series", "warmth", "regression")
    assert data.train.columns["x"][0, :4, 0].tolist() == [0, 0.5, 1, 1]  # a missing value is the one before it
    assert data.notes[1:2] == (
        "1 of 400 values of 'warmth' are missing: filled with the one before, and scored as if measured",
    )
    assert reload_data(data, data.indices).fingerprint == data.fingerprint
    encoder = SeriesEncoder.from_spec(json.loads(json.dumps(data.encoder.spec())))
    _, batch = encoder.read([",".join("1" * 30), str(path)])
    assert batch["x"].shape == (2, 30, 1) and batch["x"][1, -1, 0] == 199.5
    # longer than the name of a file may be
    assert encoder.read([",".join(["12.345678901"] * 30)])[1]["x"].shape == (1, 30, 1)
    (tmp_path / "odd.csv").write_text("warmth\n" + "1\n" * 29 + "inf\n")
    for bad_input, message in (
        ("1,2", "a window is 30 values of 'warmth', got 2"),
        ("warm", "expected a file or values separated by commas"),
        ("no.csv", "cannot read no.csv .No such file"),
        ("1," * 29 + "nan", "the values of 'warmth' must be finite, but number 30 is nan in '1,"),
        ("1," * 29 + "-inf", "number 30 is -inf"),
        ("1," * 9 + "1e39" + ",1" * 20, "number 10 is 1e\\+39"),
        (str(tmp_path / "odd.csv"), "number 30 is inf in '.*odd.csv'; correct it"),
    ):
        with pytest.raises(UsageError, match=message):
            encoder.read([bad_input])
    with pytest.raises(UsageError, match="no column 'warmt'; did you mean 'warmth'"):
        load(str(path), accepts=("series",), target="warmt")
    with pytest.raises(UsageError, match=r"column 'note' .* is not numbers"):
        load(str(path), accepts=("series",), target="note")
    assert load(str(path)).kind == "table"                                      # a table, where nothing else is wanted


ROW_ORDERS = {"rising": range(400), "falling": range(399, -1, -1), "shuffled": [i * 7 % 400 for i in range(400)]}
NEWEST_FIRST_NOTE, UNSORTED_NOTE = (
    "sorted by 'day': the file has the newest first",
    "sorted by 'day': the rows of the file are not in the order of time",
)
KEEP_ORDER_NOTE = "stay in the order of the file"


@pytest.mark.parametrize(
    ("date_format", "order", "expected_notes"),
    [
        ("%Y-%m-%d", "rising", ()),
        ("%Y-%m-%d", "falling", (NEWEST_FIRST_NOTE,)),
        ("%Y-%m-%d", "shuffled", (UNSORTED_NOTE,)),
        ("%d/%m/%Y", "rising", ()),
        ("%m/%d/%Y", "rising", ()),
        ("%d.%m.%Y", "falling", (NEWEST_FIRST_NOTE,)),
        ("%d/%m/%Y", "shuffled", (UNSORTED_NOTE,)),
        ("%b %d %Y", "falling", (NEWEST_FIRST_NOTE,)),
        ("%Y-%m-%dT%H:%M:%SZ", "shuffled", (UNSORTED_NOTE,)),
        ("%Y%m%d", "falling", (NEWEST_FIRST_NOTE,)),
    ],
)
def test_series_is_sorted_by_time(tmp_path, recwarn, date_format, order, expected_notes):
    path = tmp_path / "own.csv"
    path.write_text(
        "place,day,warmth\n" + "".join(f"here,{format_day(i, date_format)},{i}\n" for i in ROW_ORDERS[order])
    )
    data = load(str(path), accepts=("series",))
    assert data.train.columns["x"][0, :, 0].tolist() == list(range(30)) and not recwarn.list
    # what is forecast lies behind the newest
    assert data.encoder.read([str(path)])[1]["x"][0, -1, 0] == 399
    assert data.notes[1:] == expected_notes


def test_ambiguous_dates_are_noted(tmp_path):
    path = tmp_path / "own.csv"
    ambiguous_days = [i for i in range(600) if date.fromisoformat(format_day(i)).day < 13]
    for expected_note, rows in {
        f"the dates in 'day' may have the day or the month first: the rows {KEEP_ORDER_NOTE}; write them as "
        "2020-01-31": [
            format_day(i, "%d/%m/%Y") for i in reversed(ambiguous_days[1::2])
        ]
        + [format_day(i, "%d/%m/%Y") for i in ambiguous_days[::2]],
        f"1 of 300 rows have no date in 'day': all {KEEP_ORDER_NOTE}": ["", *map(format_day, range(299, 0, -1))],
        f"600 of 600 rows share their date in 'day' with another: those {KEEP_ORDER_NOTE}": [
            format_day(i // 2) for i in range(600)
        ],
    }.items():
        path.write_text("day,warmth\n" + "".join(f"{date_text},{k}\n" for k, date_text in enumerate(rows)))
        data = load(str(path), accepts=("series",))
        assert data.notes[1] == expected_note and data.train.columns["x"][0, :4, 0].tolist() == [0, 1, 2, 3]
    # two a day, the newest first
    path.write_text("day,warmth\n" + "".join(f"{format_day((299 - k) // 2)},{k}\n" for k in range(300)))
    assert load(str(path), accepts=("series",)).train.columns["x"][0, :4, 0].tolist() == [299, 298, 297, 296]


def test_series_with_mostly_missing_values_is_refused(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("day,warmth\n" + "".join(f"{format_day(i)},{i if i < 199 else ''}\n" for i in range(400)))
    with pytest.raises(
        UsageError, match=r"201 of 400 values of 'warmth' are missing in .*own.csv: a time series needs at least half"
    ):
        load(str(path), accepts=("series",), target="warmth")


def test_short_series_has_short_windows(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("warmth\n" + "".join(f"{i / 2}\n" for i in range(100)))
    data = load(str(path), accepts=("series",))
    assert data.encoder.window == 9 and reload_data(data, data.indices).fingerprint == data.fingerprint
    windowed_data = with_horizon(data, window=5)
    assert windowed_data.train.columns["x"][7, :3, 0].tolist() == [3.5, 4.0, 4.5] and [
        len(windowed_data.split(p)) for p in SPLITS
    ] == [65, 15, 15]
    assert [len(with_horizon(data, window=30).split(p)) for p in SPLITS] == [40, 15, 15]
    with pytest.raises(
        UsageError, match=r"the training part of 'short' has 70 values, but a window takes 70 \+ 1; choose"
    ):
        with_horizon(data, window=70)
    with pytest.raises(
        UsageError, match=r"the validation part of 'short' has 15 values, but each forecast takes 16; choose a smaller"
    ):
        with_horizon(data, window=5, horizon=16)
    path.write_text("warmth\n" + "".join(f"{i / 2}\n" for i in range(19)))
    with pytest.raises(UsageError, match="'short' holds 19 values of 'warmth': too few to train"):
        load(str(path), accepts=("series",))


def test_series_may_be_the_only_column(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("warmth\n" + "".join(f"{i / 2}\n" for i in range(400)))
    data = load(str(path), accepts=("series",))
    assert (data.kind, data.target, len(data.train)) == ("series", "warmth", 280 - 30)
    assert data.train.columns["x"][7, :3, 0].tolist() == [3.5, 4.0, 4.5]
    assert reload_data(data, data.indices).fingerprint == data.fingerprint
    assert data.encoder.read([str(path)])[1]["x"][0, -1, 0] == 199.5
    # a table needs something to predict from, a density does not
    assert load(str(path)).task == "none"
    path.write_text("".join(f"{i / 2}\n" for i in range(400)))
    with pytest.raises(UsageError, match=r"the first line of .* must name the columns, got numbers: 0.0"):
        load(str(path), accepts=("series",))
    path.write_text("day\n" + "monday\n" * 400)
    with pytest.raises(UsageError, match="has no column of numbers: a time series needs one"):
        load(str(path), accepts=("series",))


@pytest.mark.skipif(not has_public_data("temperatures"), reason="DIDACT_DATA holds no temperatures")
def test_temperatures_are_the_melbourne_series():
    data = load("temperatures")
    assert len(data.train) + 30 == int(0.7 * 3650) and data.train.columns["x"][0, 0, 0] == pytest.approx(20.7)
