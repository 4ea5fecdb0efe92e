import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import didact
from didact.data.core import SPLITS
from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.data.tables.read_table import read_table
from didact.data.tables.table import TableEncoder, load_table
from didact.data.tables.target import read_target
from didact.errors import UsageError


def write_file(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def make_mixed_frame(n=60, seed=0):
    """Numbers and categories with missing values, two classes."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "age": rng.integers(18, 90, n).astype(float),
        "job": rng.choice(["clerk", "cook", "smith"], n),
        "height": rng.normal(170, 10, n).round(1),
        "ill": rng.choice(["no", "yes"], n),
    })
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "job"] = None
    return frame


def test_table_encoder_equals_scikit_learn(tmp_path):
    frame = make_mixed_frame()
    encoder, x = TableEncoder.from_frame(frame, "ill")
    reference = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), ["age"]),
        (OneHotEncoder(sparse_output=False), ["job"]),
        ("passthrough", ["height"]),
    ).fit_transform(frame.assign(job=frame.job.astype(object).where(frame.job.notna(), "~missing")))
    np.testing.assert_allclose(x.numpy(), reference.astype(np.float32))
    assert encoder.feature_names == (
        "age", "age missing", "job=clerk", "job=cook", "job=smith", "job=(missing)", "height"
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    _, from_file = TableEncoder.from_frame(read_table(path), "ill")
    torch.testing.assert_close(from_file, x)


def test_table_encoder_is_fitted_on_training_rows(tmp_path):
    frame = make_mixed_frame(200)
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    data = load_table(path, seed=3)
    train = data.indices["train"].numpy()
    assert data.encoder.columns[0].median == np.nanmedian(frame.age.to_numpy()[train])
    assert data.task == "binary" and data.class_names == ("no", "yes") and data.target == "ill"
    x = torch.cat([data.split(part).columns["x"] for part in SPLITS])
    assert x.shape == (200, 7) and x.isfinite().all()
    torch.testing.assert_close(data.mean, data.train.columns["x"].mean(0))
    torch.testing.assert_close(data.std, data.train.columns["x"].std(0, correction=0))
    y = data.test.columns["y"]
    assert [data.class_names[k] for k in y.tolist()] == frame.ill.to_numpy()[data.indices["test"].numpy()].tolist()
    assert any("last column, 'ill'" in note for note in data.notes)


def test_categorical_column_encodes_rare_unseen_and_missing_values():
    counts = {f"c{i:02}": 100 - i for i in range(60)}
    frame = pd.DataFrame({"c": [c for c, n in counts.items() for _ in range(n)]})
    frame["y"] = np.arange(len(frame)) % 2
    encoder, x = TableEncoder.from_frame(frame, "y")
    (column,) = encoder.columns
    assert column == CategoricalColumn("c", tuple(f"c{i:02}" for i in range(50)), has_other=True)
    assert (x.sum(1) == 1).all() and x[:, 50].sum() == sum(100 - i for i in range(50, 60))
    assert any("10 rarest" in note for note in encoder.notes)
    new_codes = encoder.encode(pd.DataFrame({"c": ["c07", "never seen", None]}))
    assert new_codes.argmax(1).tolist()[:2] == [7, 50] and new_codes[0].sum() == 1
    plain_codes = CategoricalColumn("c", ("a", "b")).encode(pd.Series(["b", "zzz", None, "A"]))
    assert plain_codes.tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]  # case does not matter where no name needs it


def write_houses(folder, bad_cells=(), name="houses.csv", n=200):
    """Areas with decimal commas; `bad_cells` are in the first rows."""
    areas = [*bad_cells, *(f"{20 + i},{i % 100:02}" for i in range(len(bad_cells), n))]
    return write_file(
        folder, "area;town;price\n" + "".join(f"{a};{'uvw'[i % 3]};{3 * i},5\n" for i, a in enumerate(areas)), name
    )


def test_bad_cell_of_a_decimal_comma_column_is_one_missing_value(tmp_path):
    encoder = TableEncoder.from_spec(json.loads(json.dumps(load_table(write_houses(tmp_path)).encoder.spec())))
    _, clean_batch = encoder.read([str(tmp_path / "houses.csv")])
    assert clean_batch["x"][7, 0] == torch.tensor(27.07)
    for cells in (["onbekend"], ["20.00"], ["20,00", "21,01 m2", "n.v.t."]):
        _, batch = encoder.read([str(write_houses(tmp_path, cells, "new.csv", n=4))])
        is_bad = [not cell.replace(",", ".").replace(".", "").isdigit() for cell in cells]
        expected = clean_batch["x"][:4].clone()
        expected[: len(cells)][is_bad, 0] = encoder.columns[0].median
        torch.testing.assert_close(batch["x"], expected)
    data_with_bad_cell = load_table(write_houses(tmp_path, ["onbekend"]))
    assert data_with_bad_cell.feature_names[0] == "area"
    assert any(
        "'area' holds 1 cell not read as a number, first 'onbekend' in line 2: taken as missing" in note
        for note in data_with_bad_cell.notes
    )
    with pytest.raises(UsageError, match=r"'area' of .*new.csv expects numbers, got '1,5 m2' in line 2"):
        encoder.read([str(write_houses(tmp_path, ["1,5 m2", "2,5 m2"], "new.csv", n=2))])


def test_new_rows_are_read_with_the_comma_meaning_of_training(tmp_path):
    path = write_file(
        tmp_path, "income\ty\n" + "".join(f"{37 * i:,}\t{'kl'[i % 2]}\n" for i in range(1, 200)), "us.tsv"
    )
    data = load_table(path)
    assert any("'income' has commas between thousands" in note for note in data.notes)
    encoder = TableEncoder.from_spec(json.loads(json.dumps(data.encoder.spec())))
    new_path = write_file(tmp_path, "income\ty\n2,471\tk\n", "new.tsv")                  # alone, it could be either
    quoted_path = write_file(tmp_path, 'income,y\n"2,471",k\n', "new.csv")
    _, batch = encoder.read([str(new_path), str(quoted_path), "income=2,471", "income=2471", '{"income": 2471}'])
    assert batch["x"].tolist() == [[2471]] * 5
    decimal_encoder = load_table(write_houses(tmp_path)).encoder
    assert (
        decimal_encoder.read(["area=120,50,town=u"])[1]["x"][0, 0]
        == decimal_encoder.read(["area=120.5,town=u"])[1]["x"][0, 0]
        == 120.5
    )
    # as in runs of versions without comma meanings
    old_spec = {"name": "area", "median": 1.0, "missing": False}
    assert TableEncoder.from_spec({"target": "y", "columns": [old_spec]}).columns == (NumericColumn("area", 1.0),)


def test_rare_words_in_an_integer_column_are_missing_values(tmp_path):
    rooms = [str(1 + i % 7) for i in range(400)]
    rooms[5] = rooms[105] = rooms[305] = "n.v.t."
    path = write_file(tmp_path, "rooms,y\n" + "".join(f"{r},{i / 7}\n" for i, r in enumerate(rooms)))
    data = load_table(path)
    assert data.feature_names == ("rooms", "rooms missing")
    assert any("'rooms' holds 3 cells not read as a number, first 'n.v.t.' in line 7" in note for note in data.notes)
    assert read_target(read_table(path), "rooms")[2] == (*"1234567", "n.v.t.")  # in a target they are a class
    assert isinstance(
        TableEncoder.from_frame(pd.DataFrame({"a": ["1", "2", "x", "y"] * 20, "y": 0}), "y")[0].columns[0],
        CategoricalColumn,
    )


def test_numeric_categories_are_compared_as_numbers():
    column = CategoricalColumn("rooms", ("1", "3", "n.v.t."))
    assert column.encode(pd.Series(["3.0", "03", "3.5", "N.V.T.", 1, 1.0])).argmax(1).tolist() == [1, 1, 0, 2, 0, 0]
    assert column.encode(pd.Series(["3.5"])).sum() == 0
    codes = CategoricalColumn("code", ("3", "3.0")).encode(pd.Series(["3", "3.0"]))
    assert codes.tolist() == [[1, 0], [0, 1]]                                     # a known name stays


@pytest.mark.parametrize("word", ["None", "NA", "null"])
def test_class_named_like_a_missing_value_is_refused(tmp_path, word):
    path = write_file(tmp_path, "x,y\n" + "".join(f"{i},{(word, 'mild')[i % 2]}\n" for i in range(40)))
    with pytest.raises(UsageError, match=f"missing in 20 of 40 rows, first in line 2 \\('{word}' is read as missing"):
        load_table(path, target="y")
    with pytest.raises(UsageError, match="first in line 3; without them, 't' holds 2 examples"):
        load_table(write_file(tmp_path, "x,y\n1,a\n2,\n3,b\n"), target="y")


def test_numbers_rounded_by_float64_are_noted(tmp_path):
    path = write_file(
        tmp_path, "t,a,y\n" + "".join(f"{17 * 10**17 + 2 * i},{i % 9},{'kl'[i % 2]}\n" for i in range(300))
    )
    precision_notes = [note for note in load_table(path).notes if "double precision" in note]
    assert (
        len(precision_notes) == 1
        and "'t' lies so near 1.7e+18" in precision_notes[0]
        and "steps of 256" in precision_notes[0]
    )
    rng = np.random.default_rng(0)
    for spread, is_refused in ((300, True), (5e3, False)):
        path = write_file(
            tmp_path, "a,y\n" + "".join(f"{x:.3f},{10**18 + round(spread * x)}\n" for x in rng.normal(size=200))
        )
        if is_refused:
            with pytest.raises(UsageError, match=r"target 'y' lies so near .* rounds it to steps of 128; subtract"):
                load_table(path, target="y")
        else:
            assert any("target 'y'" in note and "steps of 128" in note for note in load_table(path, target="y").notes)
    path = write_file(tmp_path, "a,y\n" + "".join(f"{x:.3f},{10**18 + round(1e6 * x)}\n" for x in rng.normal(size=200)))
    assert not any("double precision" in note for note in load_table(path, target="y").notes)


def test_row_id_columns_are_noted(tmp_path):
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {
            "counter": np.arange(100, 100 + n),
            "customer_ID": rng.permutation(10 * n)[:n],
            "year": rng.permutation(10 * n)[:n],
            "width": rng.normal(size=n),
            "room id": np.arange(n) % 30,
            "y": ["k", "l"] * (n // 2),
        }
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    assert [note for note in load_table(path).notes if "row number or ID" in note] == [
        "column 'counter' is different in every row and counts up: leave it out if it is a row number or ID",
        "column 'customer_ID' is different in every row: leave it out if it is a row number or ID",
    ]


def test_unusable_columns_are_dropped_with_a_note(tmp_path):
    n = 120
    frame = make_mixed_frame(n)
    frame["name"] = [f"person {i}" for i in range(n)]
    frame["born"] = pd.date_range("1990-01-01", periods=n).strftime("%Y-%m-%d")
    frame["void"] = np.nan
    frame["same"] = 7
    frame["typo"] = [f"{i}.5" for i in range(n - 2)] + ["unknown", "?"]
    path = tmp_path / "t.csv"
    frame.to_csv(path)  # with pandas' row numbers in a column without name
    data = load_table(path, target="ill")
    assert not [n for n in data.feature_names if n.startswith(("name", "void", "column 1"))]
    assert "born (days)" in data.feature_names and "born (year)" not in data.feature_names
    notes = " | ".join(data.notes)
    for note_text in (
        "'name' holds free text",
        "--text name",
        "'born' holds dates, unfolded into days, month, month sin, month cos, weekday",
        "'void' is empty",
        "never change in training: same",
        "2 classes, read as binary",
    ):
        assert note_text in notes, note_text
    assert (
        NumericColumn("typo", data.encoder.columns[[c.name for c in data.encoder.columns].index("typo")].median, True)
        in data.encoder.columns
    )


@pytest.mark.parametrize(("values", "task", "labels"), [
    (["b", "a"] * 10, "binary", ("a", "b")),
    (["b", "a", "c"] * 10, "multiclass", ("a", "b", "c")),
    ([10, 2, 3] * 10, "multiclass", ("2", "3", "10")),
    ([0.0, 1.0] * 10, "binary", ("0", "1")),
    ([0.5, 1.5] * 10, "binary", ("0.5", "1.5")),
    ([True, False] * 10, "binary", ("False", "True")),
    ([0.5, 1.5, 2.5] * 10, "regression", ()),
    (list(range(21)) * 30, "regression", ()),
    (list(range(20)) * 30, "multiclass", tuple(map(str, range(20)))),
    (list(range(10)) * 3, "regression", ()),           # ten values in thirty rows are too many
    ([0, 1, 2] * 30 + [7], "regression", ()),          # one row is too few for a class
])
def test_read_target_infers_the_task(values, task, labels):
    inferred_task, y, class_names, note, offset = read_target(pd.DataFrame({"t": values}), "t")
    assert (inferred_task, class_names, offset) == (task, labels, 0) and task in note
    if labels:
        expected = [f"{v:g}" if isinstance(v, float | int) and not isinstance(v, bool) else str(v) for v in values]
        assert [class_names[k] for k in y.tolist()] == expected and y.dtype == torch.int64
    else:
        assert y.tolist() == values and y.dtype == torch.float32


BAD_TABLES = {
    "no value in target": ("a,y\n1,\n2,\n3,\n", "holds no value"),
    "missing target": ("a,y\n" + "1,0\n" * 10 + "3,\n4,\n", "missing in 2 of 12 rows, first in line 12; without"),
    "one class": ("a,y\n" + "1,k\n2,k\n" * 5, "'y' is 'k' in every row"),
    "constant number": ("a,y\n" + "1,3.5\n2,3.5\n" * 5, "'y' is '3.5' in every row"),
    "rare class": ("a,y\n" + "1,k\n2,l\n" * 5 + "1,m\n", r"too few of: 'm' \(1\)"),
    "infinite target": (
        "a,y\n" + "".join(f"1,{i}.5\n" for i in range(30)) + "2,inf\n",
        "must be finite, got 'inf' in line 32",
    ),
    "word in target": (
        "a,y\n" + "".join(f"1,{i}.5\n" for i in range(30)) + "2,many\n",
        "must be a number, got 'many' in line 32",
    ),
    "infinite input": ("a,y\n" + "1,k\n2,l\n" * 5 + "-inf,k\n", "'a' must hold finite numbers, got -inf in line 12"),
    "beyond float32": ("a,y\n" + "1,k\n2,l\n" * 5 + "1e300,k\n", "got 1e300 in line 12"),
    "two rows": ("a,y\n1,2.5\n2,3.5\n", "at least 3"),
    "names as target": ("a,y\n" + "".join(f"{i},n{i}\n" for i in range(50)), "neither classes nor numbers"),
    "nothing to learn from": ("a,y\n" + "".join(f"n{i},{'kl'[i % 2]}\n" for i in range(50)), "can be learned from"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_table_is_refused_in_one_line(tmp_path, case):
    content, message = BAD_TABLES[case]
    with pytest.raises(UsageError, match=message) as error:
        didact.recipes.mlp.check_data(load_table(write_file(tmp_path, content)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "case", ["no value in target", "missing target", "one class", "constant number", "rare class", "names as target"]
)
def test_table_without_a_usable_target_is_loaded_without_it(tmp_path, case):
    content, message = BAD_TABLES[case]
    data = load_table(write_file(tmp_path, content))
    assert (
        data.task == "none"
        and data.target == ""
        and re.search(message, data.notes[0])
        and data.encoder.columns[0].name == "a"
    )
    assert "y" not in data.train.columns and len(data.encoder.columns) == (
        1 if case in ("no value in target", "names as target") else 2
    )
    # as a run's data are loaded again
    reloaded_data = load_table(tmp_path / "t.csv", target="", indices=data.indices)
    assert reloaded_data.fingerprint == data.fingerprint
    with pytest.raises(UsageError, match=message):
        # a named target is refused with the reason
        load_table(tmp_path / "t.csv", target="y")


def test_single_column_table_has_no_target(tmp_path):
    data = load_table(write_file(tmp_path, "a\n" + "".join(f"{k}\n" for k in range(20))))
    assert (
        data.shape == (1,)
        and data.task == "none"
        and "only one column, 'a': expected columns separated by" in data.notes[0]
    )
    with pytest.raises(UsageError, match="only one column"):
        didact.recipes.mlp.check_data(data)


def test_misspelled_target_is_suggested(tmp_path):
    path = write_file(tmp_path, "age,income\n1,2\n")
    with pytest.raises(UsageError, match="no column 'incom' to be the target; did you mean 'income'"):
        load_table(path, target="incom")


def test_table_encoder_reads_new_rows(tmp_path):
    frame = make_mixed_frame(50)
    encoder, x = TableEncoder.from_frame(frame, "ill")
    restored_encoder = TableEncoder.from_spec(json.loads(json.dumps(encoder.spec())))
    assert restored_encoder == encoder
    for columns in (["age", "job", "height", "ill"], ["job", "height", "age"]):
        path = tmp_path / "new.csv"
        frame[columns].to_csv(path, index=False)
        names, batch = restored_encoder.read([str(path)])
        torch.testing.assert_close(batch["x"], x)
        assert names[:2] == [f"{path}:2", f"{path}:3"]
    row = frame.iloc[1]
    texts = [
        f"age={row.age},job={row.job},height={row.height}",
        json.dumps({"age": row.age, "job": row.job, "height": row.height}),
        f"job={row.job},height={row.height},age={row.age},ill=no",
    ]
    names, batch = restored_encoder.read(texts)
    assert names == texts
    torch.testing.assert_close(batch["x"], x[1:2].expand(3, -1))
    rows_with_gaps = restored_encoder.read(["age=?,job=,height=170", '{"age": null, "job": null, "height": 170}'])[1][
        "x"
    ]
    torch.testing.assert_close(rows_with_gaps[0], rows_with_gaps[1])
    assert rows_with_gaps[0].tolist() == [encoder.columns[0].median, 1, 0, 0, 0, 1, 170]


@pytest.mark.parametrize(("text", "message"), [
    ("age=1,job=cook", "lacks the column 'height'; an unknown value"),
    ("age=1,job=cook,hieght=3", "lacks the column 'height'; did you mean 'hieght'"),
    ("age=old,job=cook,height=3", "'age' expects a number, got 'old'"),
    ('{"age": true, "job": "cook", "height": 3}', "'age' expects a number, got True"),
    ('{"age": 1', "must be JSON"),
    ("hello", "expected a CSV file, a row as"),
    ("missing.csv", "cannot read missing.csv"),
    ("age=inf,job=cook,height=3", "finite"),
])
def test_table_encoder_refuses_wrong_rows(text, message):
    encoder, _ = TableEncoder.from_frame(make_mixed_frame(), "ill")
    with pytest.raises(UsageError, match=re.escape(message)):
        encoder.read([text])


def test_table_encoder_reads_numeric_and_typed_frames():
    encoder = TableEncoder.numeric(["a", "b"])
    assert encoder.feature_names == ("a", "b")
    assert encoder.read(["b=2,a=1"])[1]["x"].tolist() == [[1, 2]]
    frame = pd.DataFrame({
        "i": pd.array([1, None, 3, 4], dtype="Int64"), "b": [True, False, True, True],
        "c": pd.Categorical(["u", "v", "u", None]), "d": pd.date_range("2020-01-01", periods=4), "y": [0, 1, 0, 1],
    })
    encoder, x = TableEncoder.from_frame(frame, "y")
    names = ("i", "i missing", "b=False", "b=True", "c=u", "c=v", "c=(missing)", "d (days)", "d (weekday)")
    assert encoder.feature_names == names
    assert x.tolist()[1] == [3, 1, 1, 0, 0, 1, 0, 18263, 3]


def test_several_targets_are_multilabel(tmp_path):
    path = tmp_path / "films.csv"
    rows = [f"{i},{i % 5},{i % 2},{'yes' if i % 3 else 'no'},{i % 4 == 0}" for i in range(80)]
    path.write_text("length,stars,comedy,drama,old\n" + "\n".join(rows) + "\n")
    data = load_table(path, target="comedy,drama,old")
    assert (data.task, data.class_names, data.feature_names) == (
        "multilabel",
        ("comedy", "drama", "old"),
        ("length", "stars"),
    )
    all_targets = torch.cat([data.split(part).columns["y"] for part in ("train", "validation", "test")])
    order = torch.cat([data.indices[part] for part in ("train", "validation", "test")]).argsort()
    assert all_targets[order].tolist() == [[i % 2, float(i % 3 > 0), float(i % 4 == 0)] for i in range(80)]
    assert any("multi-label" in note for note in data.notes)
    messages_by_target = {
        "comedy,comedy": "names a column twice",
        "comedy,stars": "'stars' is '2' in line",
        "comedy,draama": "did you mean 'drama'",
    }
    for target, message in messages_by_target.items():
        with pytest.raises(UsageError, match=message):
            load_table(path, target=target)
