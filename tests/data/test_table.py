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
from didact.data.columns import Category, Number
from didact.data.core import SPLITS
from didact.data.delimited import read_csv
from didact.data.table import TableEncoder, load, targets
from didact.errors import UsageError


def write(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mixed(n=60, seed=0):
    """Numbers with gaps, categories with gaps, two classes."""
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


def test_encoding_equals_scikit_learn(tmp_path):
    frame = mixed()
    encoder, x = TableEncoder.from_frame(frame, "ill")
    reference = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), ["age"]),
        (OneHotEncoder(sparse_output=False), ["job"]),
        ("passthrough", ["height"]),
    ).fit_transform(frame.assign(job=frame.job.astype(object).where(frame.job.notna(), "~missing")))
    np.testing.assert_allclose(x.numpy(), reference.astype(np.float32))
    assert encoder.names == (
        "age", "age missing", "job=clerk", "job=cook", "job=smith", "job=(missing)", "height"
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    _, from_file = TableEncoder.from_frame(read_csv(path), "ill")
    torch.testing.assert_close(from_file, x)


def test_what_fills_and_encodes_is_learned_from_the_training_rows(tmp_path):
    frame = mixed(200)
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    data = load(path, seed=3)
    train = data.indices["train"].numpy()
    assert data.encoder.columns[0].median == np.nanmedian(frame.age.to_numpy()[train])
    assert data.task == "binary" and data.labels == ("no", "yes") and data.target == "ill"
    x = torch.cat([data.split(part).columns["x"] for part in SPLITS])
    assert x.shape == (200, 7) and x.isfinite().all()
    torch.testing.assert_close(data.mean, data.train.columns["x"].mean(0))
    torch.testing.assert_close(data.std, data.train.columns["x"].std(0, correction=0))
    y = data.test.columns["y"]
    assert [data.labels[k] for k in y.tolist()] == frame.ill.to_numpy()[data.indices["test"].numpy()].tolist()
    assert any("last column, 'ill'" in note for note in data.notes)


def test_rare_unseen_and_missing_categories():
    counts = {f"c{i:02}": 100 - i for i in range(60)}
    frame = pd.DataFrame({"c": [c for c, n in counts.items() for _ in range(n)]})
    frame["y"] = np.arange(len(frame)) % 2
    encoder, x = TableEncoder.from_frame(frame, "y")
    (column,) = encoder.columns
    assert column == Category("c", tuple(f"c{i:02}" for i in range(50)), other=True)
    assert (x.sum(1) == 1).all() and x[:, 50].sum() == sum(100 - i for i in range(50, 60))
    assert any("10 rarest" in note for note in encoder.notes)
    new = encoder.encode(pd.DataFrame({"c": ["c07", "never seen", None]}))
    assert new.argmax(1).tolist()[:2] == [7, 50] and new[0].sum() == 1
    plain = Category("c", ("a", "b")).encode(pd.Series(["b", "zzz", None, "A"]))
    assert plain.tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]  # case does not matter where no name needs it


def houses(folder, spoilt=(), name="houses.csv", n=200):
    """Areas with decimal commas; `spoilt` cells stand in the first rows."""
    areas = [*spoilt, *(f"{20 + i},{i % 100:02}" for i in range(len(spoilt), n))]
    return write(folder, "area;town;price\n" + "".join(f"{a};{'uvw'[i % 3]};{3 * i},5\n" for i, a in enumerate(areas)), name)


def test_one_bad_cell_of_a_decimal_comma_column_is_one_missing_value(tmp_path):
    encoder = TableEncoder.from_spec(json.loads(json.dumps(load(houses(tmp_path)).encoder.spec())))
    _, clean = encoder.read([str(tmp_path / "houses.csv")])
    assert clean["x"][7, 0] == torch.tensor(27.07)
    for cells in (["onbekend"], ["20.00"], ["20,00", "21,01 m2", "n.v.t."]):
        _, found = encoder.read([str(houses(tmp_path, cells, "new.csv", n=4))])
        wrong = [not cell.replace(",", ".").replace(".", "").isdigit() for cell in cells]
        expected = clean["x"][:4].clone()
        expected[: len(cells)][wrong, 0] = encoder.columns[0].median
        torch.testing.assert_close(found["x"], expected)
    spoilt = load(houses(tmp_path, ["onbekend"]))
    assert spoilt.names[0] == "area"
    assert any("'area' holds 1 cell not read as a number, first 'onbekend' in line 2: taken as missing" in note for note in spoilt.notes)
    with pytest.raises(UsageError, match=r"'area' of .*new.csv expects numbers, got '1,5 m2' in line 2"):
        encoder.read([str(houses(tmp_path, ["1,5 m2", "2,5 m2"], "new.csv", n=2))])


def test_new_rows_are_read_with_the_commas_of_the_training_file(tmp_path):
    path = write(tmp_path, "income\ty\n" + "".join(f"{37 * i:,}\t{'kl'[i % 2]}\n" for i in range(1, 200)), "us.tsv")
    data = load(path)
    assert any("'income' has commas between thousands" in note for note in data.notes)
    encoder = TableEncoder.from_spec(json.loads(json.dumps(data.encoder.spec())))
    new = write(tmp_path, "income\ty\n2,471\tk\n", "new.tsv")                  # alone, it could be either
    quoted = write(tmp_path, 'income,y\n"2,471",k\n', "new.csv")
    _, found = encoder.read([str(new), str(quoted), "income=2,471", "income=2471", '{"income": 2471}'])
    assert found["x"].tolist() == [[2471]] * 5
    decimal = load(houses(tmp_path)).encoder
    assert decimal.read(["area=120,50,town=u"])[1]["x"][0, 0] == decimal.read(["area=120.5,town=u"])[1]["x"][0, 0] == 120.5
    old = {"name": "area", "median": 1.0, "missing": False}                      # as runs kept it before commas had a meaning
    assert TableEncoder.from_spec({"target": "y", "columns": [old]}).columns == (Number("area", 1.0),)


def test_few_words_among_few_whole_numbers_are_missing_numbers(tmp_path):
    rooms = [str(1 + i % 7) for i in range(400)]
    rooms[5] = rooms[105] = rooms[305] = "n.v.t."
    path = write(tmp_path, "rooms,y\n" + "".join(f"{r},{i / 7}\n" for i, r in enumerate(rooms)))
    data = load(path)
    assert data.names == ("rooms", "rooms missing")
    assert any("'rooms' holds 3 cells not read as a number, first 'n.v.t.' in line 7" in note for note in data.notes)
    assert targets(read_csv(path), "rooms")[2] == (*"1234567", "n.v.t.")           # of a target they are a class
    assert isinstance(TableEncoder.from_frame(pd.DataFrame({"a": ["1", "2", "x", "y"] * 20, "y": 0}), "y")[0].columns[0], Category)


def test_a_category_that_is_a_number_is_compared_as_one():
    column = Category("rooms", ("1", "3", "n.v.t."))
    assert column.encode(pd.Series(["3.0", "03", "3.5", "N.V.T.", 1, 1.0])).argmax(1).tolist() == [1, 1, 0, 2, 0, 0]
    assert column.encode(pd.Series(["3.5"])).sum() == 0
    both = Category("code", ("3", "3.0")).encode(pd.Series(["3", "3.0"]))
    assert both.tolist() == [[1, 0], [0, 1]]                                     # a name that is known stays itself


@pytest.mark.parametrize("word", ["None", "NA", "null"])
def test_a_class_that_reads_as_missing_is_named(tmp_path, word):
    path = write(tmp_path, "x,y\n" + "".join(f"{i},{(word, 'mild')[i % 2]}\n" for i in range(40)))
    with pytest.raises(UsageError, match=f"missing in 20 of 40 rows, first in line 2 \\('{word}' is read as missing"):
        load(path, target="y")
    with pytest.raises(UsageError, match="first in line 3; fill it in"):
        load(write(tmp_path, "x,y\n1,a\n2,\n3,b\n"), target="y")


def test_numbers_that_float64_cannot_tell_apart_are_told(tmp_path):
    path = write(tmp_path, "t,a,y\n" + "".join(f"{17 * 10**17 + 2 * i},{i % 9},{'kl'[i % 2]}\n" for i in range(300)))
    told = [note for note in load(path).notes if "double precision" in note]
    assert len(told) == 1 and "'t' lies so near 1.7e+18" in told[0] and "steps of 256" in told[0]
    rng = np.random.default_rng(0)
    for spread, refused in ((300, True), (5e3, False)):
        path = write(tmp_path, "a,y\n" + "".join(f"{x:.3f},{10**18 + round(spread * x)}\n" for x in rng.normal(size=200)))
        if refused:
            with pytest.raises(UsageError, match=r"target 'y' lies so near .* rounds it to steps of 128; subtract"):
                load(path, target="y")
        else:
            assert any("target 'y'" in note and "steps of 128" in note for note in load(path, target="y").notes)
    path = write(tmp_path, "a,y\n" + "".join(f"{x:.3f},{10**18 + round(1e6 * x)}\n" for x in rng.normal(size=200)))
    assert not any("double precision" in note for note in load(path, target="y").notes)


def test_a_column_that_names_rows_is_told(tmp_path):
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame({
        "counter": np.arange(100, 100 + n), "customer_ID": rng.permutation(10 * n)[:n], "year": rng.permutation(10 * n)[:n],
        "width": rng.normal(size=n), "room id": np.arange(n) % 30, "y": ["k", "l"] * (n // 2),
    })
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    assert [note for note in load(path).notes if "names rows" in note] == [
        "column 'counter' is different in every row and counts up: leave it out if it names rows",
        "column 'customer_ID' is different in every row: leave it out if it names rows",
    ]


def test_columns_that_cannot_be_learned_from_are_left_out_and_said(tmp_path):
    n = 120
    frame = mixed(n)
    frame["name"] = [f"person {i}" for i in range(n)]
    frame["born"] = pd.date_range("1990-01-01", periods=n).strftime("%Y-%m-%d")
    frame["void"] = np.nan
    frame["same"] = 7
    frame["typo"] = [f"{i}.5" for i in range(n - 2)] + ["unknown", "?"]
    path = tmp_path / "t.csv"
    frame.to_csv(path)  # with pandas' row numbers in a column without name
    data = load(path, target="ill")
    assert not [n for n in data.names if n.startswith(("name", "born", "void", "column 1"))]
    told = " | ".join(data.notes)
    for words in ("'name' holds free text", "--text name", "'born' holds dates", "'void' is empty", "never change in training: same",
                  "2 classes, read as binary"):
        assert words in told, words
    assert Number("typo", data.encoder.columns[[c.name for c in data.encoder.columns].index("typo")].median, True) in data.encoder.columns


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
    (list(range(10)) * 3, "regression", ()),           # ten values in thirty rows: not few
    ([0, 1, 2] * 30 + [7], "regression", ()),          # one row is too few for a class
])
def test_the_task_is_inferred(values, task, labels):
    got, y, names, said, shift = targets(pd.DataFrame({"t": values}), "t")
    assert (got, names, shift) == (task, labels, 0) and task in said
    if labels:
        expected = [f"{v:g}" if isinstance(v, float | int) and not isinstance(v, bool) else str(v) for v in values]
        assert [names[k] for k in y.tolist()] == expected and y.dtype == torch.int64
    else:
        assert y.tolist() == values and y.dtype == torch.float32


BAD = {
    "no value in target": ("a,y\n1,\n2,\n3,\n", "holds no value"),
    "missing target": ("a,y\n" + "1,0\n2,1\n" * 5 + "3,\n4,\n", "missing in 2 of 12 rows, first in line 12"),
    "one class": ("a,y\n" + "1,k\n2,k\n" * 5, "'y' is 'k' in every row"),
    "constant number": ("a,y\n" + "1,3.5\n2,3.5\n" * 5, "'y' is '3.5' in every row"),
    "rare class": ("a,y\n" + "1,k\n2,l\n" * 5 + "1,m\n", r"too few of: 'm' \(1\)"),
    "infinite target": ("a,y\n" + "".join(f"1,{i}.5\n" for i in range(30)) + "2,inf\n", "must be finite, got 'inf' in line 32"),
    "word in target": ("a,y\n" + "".join(f"1,{i}.5\n" for i in range(30)) + "2,many\n", "must be a number, got 'many' in line 32"),
    "infinite input": ("a,y\n" + "1,k\n2,l\n" * 5 + "-inf,k\n", "'a' must hold finite numbers, got -inf in line 12"),
    "beyond float32": ("a,y\n" + "1,k\n2,l\n" * 5 + "1e300,k\n", "got 1e300 in line 12"),
    "two rows": ("a,y\n1,2.5\n2,3.5\n", "at least 3"),
    "names as target": ("a,y\n" + "".join(f"{i},n{i}\n" for i in range(50)), "neither classes nor numbers"),
    "nothing to learn from": ("a,y\n" + "".join(f"n{i},{'kl'[i % 2]}\n" for i in range(50)), "can be learned from"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_in_one_line(tmp_path, case):
    content, words = BAD[case]
    with pytest.raises(UsageError, match=words) as error:
        didact.recipes.mlp.check(load(write(tmp_path, content)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", ["no value in target", "missing target", "one class", "constant number", "rare class", "names as target"])
def test_columns_that_have_no_target_are_still_columns(tmp_path, case):
    content, words = BAD[case]
    data = load(write(tmp_path, content))
    assert data.task == "none" and data.target == "" and re.search(words, data.notes[0]) and data.encoder.columns[0].name == "a"
    assert "y" not in data.train.columns and len(data.encoder.columns) == (1 if case in ("no value in target", "names as target") else 2)
    again = load(tmp_path / "t.csv", target="", indices=data.indices)                  # as a run's data are loaded again
    assert again.fingerprint == data.fingerprint
    with pytest.raises(UsageError, match=words):
        load(tmp_path / "t.csv", target="y")                                          # who names one is told what is wrong with it


def test_one_column_is_a_table_without_a_target(tmp_path):
    data = load(write(tmp_path, "a\n" + "".join(f"{k}\n" for k in range(20))))
    assert data.shape == (1,) and data.task == "none" and "only one column, 'a': expected columns separated by" in data.notes[0]
    with pytest.raises(UsageError, match="only one column"):
        didact.recipes.mlp.check(data)


def test_target_is_suggested(tmp_path):
    path = write(tmp_path, "age,income\n1,2\n")
    with pytest.raises(UsageError, match="no column 'incom' to be the target; did you mean 'income'"):
        load(path, target="incom")


def test_reading_new_inputs(tmp_path):
    frame = mixed(50)
    encoder, x = TableEncoder.from_frame(frame, "ill")
    rebuilt = TableEncoder.from_spec(json.loads(json.dumps(encoder.spec())))
    assert rebuilt == encoder
    for columns in (["age", "job", "height", "ill"], ["job", "height", "age"]):
        path = tmp_path / "new.csv"
        frame[columns].to_csv(path, index=False)
        names, batch = rebuilt.read([str(path)])
        torch.testing.assert_close(batch["x"], x)
        assert names[:2] == [f"{path}:2", f"{path}:3"]
    row = frame.iloc[1]
    texts = [f"age={row.age},job={row.job},height={row.height}", json.dumps({"age": row.age, "job": row.job, "height": row.height}),
             f"job={row.job},height={row.height},age={row.age},ill=no"]
    names, batch = rebuilt.read(texts)
    assert names == texts
    torch.testing.assert_close(batch["x"], x[1:2].expand(3, -1))
    gap = rebuilt.read(["age=?,job=,height=170", '{"age": null, "job": null, "height": 170}'])[1]["x"]
    torch.testing.assert_close(gap[0], gap[1])
    assert gap[0].tolist() == [encoder.columns[0].median, 1, 0, 0, 0, 1, 170]


@pytest.mark.parametrize(("text", "words"), [
    ("age=1,job=cook", "lacks the column 'height'; an unknown value"),
    ("age=1,job=cook,hieght=3", "lacks the column 'height'; did you mean 'hieght'"),
    ("age=old,job=cook,height=3", "'age' expects a number, got 'old'"),
    ('{"age": true, "job": "cook", "height": 3}', "'age' expects a number, got True"),
    ('{"age": 1', "must be JSON"),
    ("hello", "expected a CSV file, a row as"),
    ("missing.csv", "cannot read missing.csv"),
    ("age=inf,job=cook,height=3", "finite"),
])
def test_wrong_rows_to_predict(text, words):
    encoder, _ = TableEncoder.from_frame(mixed(), "ill")
    with pytest.raises(UsageError, match=re.escape(words)):
        encoder.read([text])


def test_numeric_and_typed_frames():
    encoder = TableEncoder.numeric(["a", "b"])
    assert encoder.names == ("a", "b")
    assert encoder.read(["b=2,a=1"])[1]["x"].tolist() == [[1, 2]]
    frame = pd.DataFrame({
        "i": pd.array([1, None, 3, 4], dtype="Int64"), "b": [True, False, True, True],
        "c": pd.Categorical(["u", "v", "u", None]), "d": pd.date_range("2020-01-01", periods=4), "y": [0, 1, 0, 1],
    })
    encoder, x = TableEncoder.from_frame(frame, "y")
    assert encoder.names == ("i", "i missing", "b=False", "b=True", "c=u", "c=v", "c=(missing)")
    assert x.tolist()[1] == [3, 1, 1, 0, 0, 1, 0]


def test_several_targets_are_labels_that_may_hold_together(tmp_path):
    path = tmp_path / "films.csv"
    rows = [f"{i},{i % 5},{i % 2},{'yes' if i % 3 else 'no'},{i % 4 == 0}" for i in range(80)]
    path.write_text("length,stars,comedy,drama,old\n" + "\n".join(rows) + "\n")
    data = load(path, target="comedy,drama,old")
    assert (data.task, data.labels, data.names) == ("multilabel", ("comedy", "drama", "old"), ("length", "stars"))
    whole = torch.cat([data.split(part).columns["y"] for part in ("train", "validation", "test")])
    order = torch.cat([data.indices[part] for part in ("train", "validation", "test")]).argsort()
    assert whole[order].tolist() == [[i % 2, float(i % 3 > 0), float(i % 4 == 0)] for i in range(80)]
    assert any("multi-label" in note for note in data.notes)
    wrong = {"comedy,comedy": "names a column twice", "comedy,stars": "'stars' is '2' in line", "comedy,draama": "did you mean 'drama'"}
    for target, words in wrong.items():
        with pytest.raises(UsageError, match=words):
            load(path, target=target)
