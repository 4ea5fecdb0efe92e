"""Every format of tables: files that other libraries wrote give the data of the CSV file, and runs that resume."""

import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

import didact
from didact.api import resume
from didact.cli.main import main
from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.tables.read_table import TABLE_READERS, read_table
from didact.data.tables.table_file import FORMAT_OF_SUFFIX, TABLE_SUFFIXES
from didact.errors import UsageError
from didact.run import Run
from didact.training.loop import Trainer

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({
    "area": RNG.normal(80, 20, 60).round(2), "rooms": RNG.integers(1, 6, 60),
    "city": RNG.choice(["Köln", "Liège", "Łódź"], 60), "sold": RNG.choice([True, False], 60),
    "kind": RNG.choice(["flat", "house"], 60),
})
TABLE.loc[::7, "area"] = np.nan
TABLE.loc[3, "city"] = None
SPREADSHEET = TABLE.assign(sold=TABLE.sold.astype(str))      # OpenDocument writes TRUE


def write_workbook(path: Path, frame: pd.DataFrame, engine: str) -> None:
    if path.suffix == ".xls":
        import xlwt

        book = xlwt.Workbook()
        sheet = book.add_sheet("houses")
        for j, name in enumerate(frame.columns):
            sheet.write(0, j, name)
            for i, value in enumerate(frame[name].astype(object)):
                if not pd.isna(value):
                    sheet.write(i + 1, j, value)
        book.save(str(path))
    else:
        frame.to_excel(path, index=False, engine=engine)


def write_arrow_file(path: Path) -> None:
    table = pyarrow.Table.from_pandas(TABLE)
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def write_arrow_stream(path: Path) -> None:
    table = pyarrow.Table.from_pandas(TABLE)
    with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def write_records(path: Path, key: str) -> None:
    path.write_text(json.dumps({"page": 1, key: json.loads(TABLE.to_json(orient="records"))}))


WRITERS = {
    "plain.csv": lambda path: TABLE.to_csv(path, index=False),
    "mark.csv": lambda path: TABLE.to_csv(path, index=False, encoding="utf-8-sig"),
    "utf16.csv": lambda path: TABLE.to_csv(path, index=False, encoding="utf-16"),
    "unmarked.csv": lambda path: TABLE.to_csv(path, index=False, encoding="utf-16-le"),
    "polish.csv": lambda path: TABLE.replace("Liège", "Liége").to_csv(path, index=False, encoding="cp1250"),
    "packed.csv.gz": lambda path: TABLE.to_csv(path, index=False),
    "packed.csv.xz": lambda path: TABLE.to_csv(path, index=False),
    "packed.csv.bz2": lambda path: TABLE.to_csv(path, index=False),
    "packed.csv.zip": lambda path: TABLE.to_csv(path, index=False),
    "tabs.tsv": lambda path: TABLE.to_csv(path, index=False, sep="\t"),
    "tabs.tsv.bz2": lambda path: TABLE.to_csv(path, index=False, sep="\t"),
    "records.json": lambda path: TABLE.to_json(path, orient="records"),
    "columns.json": lambda path: TABLE.to_json(path, orient="columns"),
    "index.json": lambda path: TABLE.to_json(path, orient="index"),
    "split.json": lambda path: TABLE.to_json(path, orient="split"),
    "table.json": lambda path: TABLE.to_json(path, orient="table", index=False),
    "lists.json": lambda path: path.write_text(json.dumps(
        {name: [None if pd.isna(v) else v for v in TABLE[name].astype(object)] for name in TABLE}
    )),
    "data.json": lambda path: write_records(path, "data"),
    "results.json": lambda path: write_records(path, "results"),
    "lines.json": lambda path: TABLE.to_json(path, orient="records", lines=True),
    "lines.jsonl": lambda path: TABLE.to_json(path, orient="records", lines=True),
    "lines.ndjson.gz": lambda path: TABLE.to_json(path, orient="records", lines=True),
    "book.xlsx": lambda path: write_workbook(path, TABLE, "openpyxl"),
    "book.xlsm": lambda path: write_workbook(path, TABLE, "openpyxl"),
    "book.xls": lambda path: write_workbook(path, TABLE, ""),
    "book.ods": lambda path: write_workbook(path, SPREADSHEET, "odf"),
    "file.parquet": lambda path: TABLE.to_parquet(path),
    "labels.parquet": lambda path: TABLE.set_index(pd.Index(range(7, 67))).to_parquet(path),
    "file.pq": lambda path: TABLE.to_parquet(path, compression="gzip"),
    "file.feather": lambda path: TABLE.to_feather(path),
    "file.arrow": write_arrow_file,
    "stream.arrow": write_arrow_stream,
}


@pytest.fixture(scope="module")
def csv_run(tmp_path_factory):
    """The data, the weights and the predictions of the CSV file."""
    folder = tmp_path_factory.mktemp("csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        WRITERS["plain.csv"](folder / "plain.csv")
        run = didact.train("mlp", data="plain.csv", target="kind", steps=4, hidden=(4,))
        return load("plain.csv", target="kind"), run.load("model"), didact.predict(run, Path("plain.csv"))


def test_every_format_and_suffix_has_a_file():
    suffixes = {name[name.index(".") :] for name in WRITERS}
    assert {suffix.removesuffix(".gz") for suffix in suffixes} >= set(FORMAT_OF_SUFFIX) - {".ndjson"}
    assert suffixes <= set(TABLE_SUFFIXES)
    assert {FORMAT_OF_SUFFIX["." + name.split(".")[1]] for name in WRITERS} == set(TABLE_READERS)
    assert {".gz", ".xz", ".bz2", ".zip"} == {f".{name.split('.')[2]}" for name in WRITERS if name.count(".") > 1}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_trains_resumes_and_predicts_as_csv(workdir, csv_run, name):
    expected, weights, predictions = csv_run
    WRITERS[name](workdir / name)
    data = load(name, target="kind")
    if name != "polish.csv":                               # which has another name for a city
        for part in SPLITS:
            assert torch.equal(data.split(part).columns["x"], expected.split(part).columns["x"])
            assert torch.equal(data.split(part).columns["y"], expected.split(part).columns["y"])
        assert data.feature_names == expected.feature_names and data.class_names == expected.class_names
    train_round = Trainer.train_round

    def die_at_step(self, stored, rows):
        if self.state.step == 2:
            raise SystemError("killed")
        train_round(self, stored, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_round", die_at_step)
        with pytest.raises(SystemError):
            didact.train("mlp", data=name, target="kind", steps=4, hidden=(4,))
    run = resume(Run.open("mlp/latest"))
    assert all(torch.equal(weight, run.load("model")[key]) for key, weight in weights.items())
    new_predictions = didact.predict(run, name)             # by its name alone
    assert [p["label"] for p in new_predictions] == [p["label"] for p in predictions]


@pytest.mark.parametrize("name", ["book.xlsx", "lines.jsonl", "file.parquet"])
def test_texts_series_and_pairs_are_read_from_every_format(workdir, name):
    texts = pd.DataFrame({"body": ["good film", "bad film"] * 30, "stars": ["yes", "no"] * 30})
    series = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=400), "sales": np.arange(400) % 7 + 0.5})
    pairs = pd.DataFrame({"en": [f"a cat {i}" for i in range(30)], "fr": [f"un chat {i}" for i in range(30)]})
    for kind, frame in (("texts", texts), ("series", series), ("pairs", pairs)):
        path = workdir / f"{kind}.{name.split('.')[1]}"
        if path.suffix == ".xlsx":
            frame.to_excel(path, index=False)
        elif path.suffix == ".jsonl":
            frame.to_json(path, orient="records", lines=True, date_format="iso")
        else:
            frame.to_parquet(path)
        frame.to_csv(path.with_suffix(".tsv" if kind == "pairs" else ".csv"), index=False, sep="\t")
        options = {"text": "body", "target": "stars"} if kind == "texts" else {}
        accepts = () if kind == "texts" else (kind,)
        data = load(str(path), accepts=accepts, **options)
        csv_data = load(str(path.with_suffix(".tsv" if kind == "pairs" else ".csv")), accepts=accepts, **options)
        assert data.kind == csv_data.kind and data.fingerprint == csv_data.fingerprint
        assert reload_data(data, data.indices).fingerprint == data.fingerprint
        assert data.encoder.read([path])[1]["x"].shape == csv_data.encoder.read([path])[1]["x"].shape


def test_cells_of_workbooks_keep_their_type(workdir):
    """Dates, times, large numbers, text that looks like a number, formulas' values, empty columns, blank rows."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([])
    sheet.append(["when", "at", "big", "code", None, "x"])
    for i in range(3):
        dates = pd.Timestamp(2020, 1, 1 + i), pd.Timestamp(2020, 1, 1, 12, 30 + i)
        sheet.append([*dates, 10**17 + 1, f"00{i}", None, i])
    sheet.append([])
    sheet.append([None, None, 5, "N/A", None, 2.5])
    book.create_sheet("empty")
    book.create_sheet("other").append(["a", "b"])
    book["other"].append([1, 2])
    book.save("b.xlsx")
    frame = read_table(Path("b.xlsx"))
    assert frame["when"].tolist()[:3] == ["2020-01-01", "2020-01-02", "2020-01-03"] and frame.when.isna().tolist()[3]
    assert frame["at"].tolist()[0] == "2020-01-01 12:30:00" and frame.big.tolist() == [str(10**17)] * 3 + ["5"]
    assert frame.code.tolist()[:3] == ["000", "001", "002"] and frame.code.isna().tolist() == [False] * 3 + [True]
    assert frame.x.tolist() == [0, 1, 2, 2.5] and list(frame.columns) == ["when", "at", "big", "code", "x"]
    assert frame.index.tolist() == [3, 4, 5, 7]             # the rows of the sheet
    assert frame.attrs["notes"] == ["read the sheet 'Sheet'; b.xlsx:SHEET reads another: 'empty', 'other'"]
    assert read_table(Path("b.xlsx:other")).values.tolist() == [[1, 2]]


def test_nested_records_and_lists_of_json(workdir):
    Path("n.json").write_text(json.dumps([{"a": {"b": i, "c": {"d": "k"}}, "tags": [1, 2], "y": i} for i in range(3)]))
    frame = read_table(Path("n.json"))
    assert list(frame.columns) == ["a.b", "a.c.d", "tags", "y"] and frame["a.b"].tolist() == [0, 1, 2]
    assert frame.tags.tolist() == ["[1, 2]"] * 3


def test_encodings_are_said(workdir):
    for encoding, name in (("utf-16", "UTF-16"), ("cp1252", "Windows-1252"), ("shift_jis", "Shift JIS")):
        cities = ["東京", "大阪"] if encoding == "shift_jis" else ["Köln", "Liège"]
        frame = pd.DataFrame({"city": cities * 10, "y": range(20)})
        frame.to_csv("e.csv", index=False, encoding=encoding)
        data = load("e.csv")
        assert f"the file is in {name}, not in UTF-8: read as such" in data.notes
        assert data.feature_names == tuple(f"city={city}" for city in sorted(cities))
    frame.to_csv("e.csv", index=False)
    assert not any("UTF-8" in note for note in load("e.csv").notes)


BAD_FILES = {
    "noise.xlsx": (b"PK\x03\x04rest", "noise.xlsx is damaged, or not an Excel workbook"),
    "noise.xls": (b"\xd0\xcf\x11\xe0rest", "noise.xls is damaged, or not an Excel workbook of before 2007"),
    "noise.ods": (b"PK\x03\x04rest", "noise.ods is damaged, or not an OpenDocument spreadsheet"),
    "noise.parquet": (b"PAR1rest", "noise.parquet is damaged, or not a Parquet file"),
    "noise.arrow": (b"ARROW1rest", "noise.arrow is damaged, or not an Arrow file"),
    "noise.json": (b"{", "noise.json is not JSON"),
    "deep.json": (b"[" * 100_000, "deep.json is not JSON"),
    "word.json": (b'"word"', "word.json expects a list of records, .* got str"),
    "object.json": (b'{"a": 1, "b": [2]}', "object.json expects a list of records, .* got an object with a, b"),
    "empty.json": (b"[]", "empty.json expects a list of records, .* got list"),
    "noise.jsonl": (b'{"a": 1}\n{"a"\n', "line 2 of noise.jsonl is not JSON"),
    "list.jsonl": (b"[1]\n", "line 1 of list.jsonl expects a record"),
    "cut.csv.bz2": (b"BZh91AY&SYrest", "cut.csv.bz2 is damaged or cut short"),
    "cut.csv.zip": (b"PK\x03\x04rest", "cut.csv.zip is damaged or cut short"),
    "noise.csv": (bytes(range(1, 256)) * 4, "noise.csv is not a text file, or in no common encoding"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_damaged_files_are_refused_in_one_line(workdir, name):
    content, message = BAD_FILES[name]
    Path(name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as error:
        load(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["book.xlsx", "book.ods", "file.parquet", "file.feather", "packed.csv.bz2"])
def test_files_cut_anywhere_are_refused_in_one_line(workdir, name):
    WRITERS[name](workdir / name)
    whole = Path(name).read_bytes()
    for share in (0.1, 0.5, 0.9):
        Path(name).write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(UsageError, match=f"{name} is ") as error:
            load(name)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["packed.csv.zip", "book.xlsx", "book.xls", "file.parquet", "file.arrow", "split.json"]
)
def test_files_with_changed_bytes_are_read_or_refused_in_one_line(workdir, capfd, name):
    """Where a reader crashes, as on the offsets of a damaged Arrow file, the test run ends."""
    WRITERS[name](workdir / name)
    whole, chance = Path(name).read_bytes(), random.Random(0)
    for _ in range(40):
        raw = bytearray(whole)
        for _ in range(chance.choice([1, 3, 30])):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        Path(name).write_bytes(bytes(raw))
        try:
            load(name, target="kind")
        except UsageError as error:
            assert "\n" not in str(error)
    assert capfd.readouterr() == ("", "")


def test_sheets_and_members_that_are_not_there(workdir, capsys):
    TABLE.to_excel("b.xlsx", index=False, sheet_name="houses")
    with pytest.raises(UsageError, match=r"b.xlsx has no sheet 'house'; did you mean 'houses'\?"):
        load("b.xlsx:house")
    with zipfile.ZipFile("two.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
        archive.writestr("b.csv", "a,b\n1,2\n")
        archive.writestr("__MACOSX/._a.csv", "")
    with pytest.raises(UsageError, match=r"two.csv.zip holds 2 files, a.csv, b.csv: expected one table"):
        load("two.csv.zip")
    Path("book.csv").write_bytes(Path("b.xlsx").read_bytes())
    with pytest.raises(UsageError, match=r"book.csv is a workbook, not what its name says: rename it to book.xlsx"):
        load("book.csv")
    with zipfile.ZipFile("bomb.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"0" * 10**7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIDACT_UNPACKED_BYTES", "1000000")
        with pytest.raises(UsageError, match="unpacks to more than 1,000,000 bytes"):
            load("bomb.csv.zip")
    assert main(["train", "mlp", "--data", "b.xlsx:nowhere", "--target", "kind"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("name", "library"), [
    ("book.xlsx", "openpyxl"), ("book.ods", "odf"), ("book.xls", "xlrd"), ("file.parquet", "pyarrow"),
    ("file.feather", "pyarrow"),
])
def test_missing_library_is_said_in_one_line(workdir, monkeypatch, name, library):
    WRITERS[name](workdir / name)
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(UsageError, match=r"not installed; pip install 'didact\[tables\]', or save the table as CSV"):
        load(name)


def test_rows_without_a_target_are_left_out_and_counted(workdir):
    frame = TABLE.assign(price=TABLE.rooms * 3.5)
    frame.loc[[4, 9], "price"] = np.nan
    for name in ("p.csv", "p.xlsx"):
        (frame.to_csv if name.endswith("csv") else frame.to_excel)(name, index=False)
        data = load(name, target="price")
        unit = "line" if name.endswith("csv") else "row"
        note = f"the target 'price' is missing in 2 of 60 rows, first in {unit} 6: left out; target 'price': 5"
        assert any(text.startswith(note) for text in data.notes), data.notes
        complete = frame.dropna(subset=["price"])
        complete.to_csv("complete.csv", index=False)
        assert data.fingerprint == load("complete.csv", target="price").fingerprint
        assert reload_data(data, data.indices).fingerprint == data.fingerprint
        rows = torch.cat([data.indices[part] for part in SPLITS])
        located = {place for part in SPLITS for place in data.locate_examples(part, range(len(data.split(part))))}
        assert len(rows) == 58 and f"{name}, {unit} 6" not in located and f"{name}, {unit} 7" in located
    labels = TABLE.assign(comedy=RNG.integers(0, 2, 60), drama=RNG.integers(0, 2, 60).astype(object))
    labels.loc[2, "drama"] = None
    labels.to_csv("l.csv", index=False)
    data = load("l.csv", target="comedy,drama")
    assert data.task == "multilabel" and sum(len(data.split(part)) for part in SPLITS) == 59
    texts = pd.DataFrame({"body": ["good film", "bad film"] * 30, "stars": ["yes", "no", None] * 20})
    texts.to_csv("t.csv", index=False)
    data = load("t.csv", text="body", target="stars")
    assert sum(len(data.split(part)) for part in SPLITS) == 40 and any("missing in 20 of 60" in n for n in data.notes)


def test_a_last_column_with_gaps_is_an_input_where_no_target_is_needed(workdir):
    frame = TABLE[["rooms", "area"]]
    frame.to_csv("g.csv", index=False)
    assert load("g.csv", allow_unlabeled=True).feature_names == ("rooms", "area", "area missing")
    data = load("g.csv")
    assert data.target == "area" and sum(len(data.split(part)) for part in SPLITS) == int(frame.area.notna().sum())
