"""Splits in files of their own, --drop, --features, --sample-weight, and standard input."""

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression

import didact
from didact.cli.main import main
from didact.cli.recipes import load_recipes
from didact.data.core import SPLITS
from didact.data.load import READERS, load, reload_data
from didact.data.tables import table_file
from didact.data.tables.table_options import TableOptions
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.registry import RECIPES
from didact.run import Run
from didact.training.sweeps.sweep import sweep

RNG = np.random.default_rng(0)


def make_houses(n: int) -> pd.DataFrame:
    frame = pd.DataFrame({"area": RNG.normal(80, 20, n).round(1), "rooms": RNG.integers(1, 6, n)})
    frame["city"] = RNG.choice(["Gent", "Brugge"], n)
    frame["trust"] = RNG.choice([0.0, 0.5, 3.0], n)
    frame["price"] = (3 * frame.area + 20 * frame.rooms + RNG.normal(0, 5, n)).round(1)
    return frame


@pytest.fixture
def houses(workdir):
    frames = {name: make_houses(n) for name, n in (("train", 90), ("val", 20), ("test", 30))}
    for name, frame in frames.items():
        frame.to_csv(f"{name}.csv", index=False)
    frames["test"].to_excel("test.xlsx", index=False)
    return frames


def load_splits(**options):
    return load("train.csv", target="price", table=TableOptions(**options))


@pytest.mark.parametrize("test_file", ["test.csv", "test.xlsx"])
def test_files_are_splits_and_the_encoder_sees_training_rows_alone(houses, test_file):
    data = load_splits(test=test_file, validation="val.csv")
    assert [len(data.split(part)) for part in SPLITS] == [90, 20, 30]
    for part, name in zip(SPLITS, ("train", "val", "test"), strict=True):
        torch.testing.assert_close(data.split(part).columns["x"][:, 0], torch.tensor(houses[name].area).float())
        torch.testing.assert_close(data.split(part).columns["y"], torch.tensor(houses[name].price).float())
    assert float(data.mean[0]) == pytest.approx(houses["train"].area.mean(), rel=1e-5)
    assert data.locate_examples("test", [0, 29]) == [f"{test_file}, line 2", f"{test_file}, line 31"]
    assert data.locate_examples("train", [0]) == ["train.csv, line 2"]
    assert f"test: 30 rows of {test_file}" in data.notes and "validation: 20 rows of val.csv" in data.notes
    reloaded = reload_data(data, data.indices)
    assert all(torch.equal(reloaded.split(p).columns["x"], data.split(p).columns["x"]) for p in SPLITS)


def test_one_file_more_leaves_the_other_split_to_the_data(houses):
    data = load_splits(test="test.csv")
    assert [len(data.split(part)) for part in SPLITS] == [81, 9, 30]
    assert sorted(torch.cat([data.indices["train"], data.indices["validation"]]).tolist()) == list(range(90))
    data = load_splits(validation="val.csv")
    assert [len(data.split(part)) for part in SPLITS] == [76, 20, 14]
    assert data.indices["validation"].tolist() == list(range(90, 110))


def test_categories_and_classes_of_other_files(houses):
    """A category that only the test file has is unseen; a class that only it has is refused, one it lacks is noted."""
    houses["test"].assign(city="Aalst").to_csv("test.csv", index=False)
    data = load_splits(test="test.csv")
    assert data.feature_names[2:4] == ("city=Brugge", "city=Gent") and data.test.columns["x"][:, 2:4].sum() == 0
    pd.DataFrame({"x": range(30), "y": ["a", "b"] * 15}).to_csv("c.csv", index=False)
    pd.DataFrame({"x": range(6), "y": ["a", "z"] * 3}).to_csv("new.csv", index=False)
    with pytest.raises(UsageError, match="'c' has no training example of: z"):
        load("c.csv", table=TableOptions(test="new.csv"))
    pd.DataFrame({"x": range(6), "y": ["a"] * 6}).to_csv("few.csv", index=False)
    assert "no test example of: b" in load("c.csv", table=TableOptions(test="few.csv")).notes


def test_text_tables_have_split_files_and_weights(workdir):
    texts = pd.DataFrame({"body": ["good film", "bad film"] * 30, "w": [1, 3] * 30, "stars": ["yes", "no"] * 30})
    texts.to_json("t.jsonl", orient="records", lines=True)
    texts.assign(body="new words").iloc[:10].to_csv("test.csv", index=False)
    data = load("t.jsonl", text="body", target="stars", table=TableOptions(test="test.csv", sample_weight="w"))
    assert len(data.test) == 10 and not set("newrs") & set("".join(data.encoder.vocab))
    assert float(data.train.columns["weight"].mean()) == pytest.approx(1)
    assert reload_data(data, data.indices).fingerprint == data.fingerprint


BAD_OPTIONS = {
    "no file": ({"test": "tset.csv"}, "--test tset.csv: there is no such file"),
    "no target": ({"test": "untargeted.csv"}, "--test untargeted.csv lacks the target 'price'.*didact predict"),
    "no column": ({"validation": "renamed.csv"}, "renamed.csv lacks the column 'area'; did you mean 'areas'"),
    "nothing labeled": ({"test": "unlabeled.csv"}, "--test unlabeled.csv holds no row with a target"),
    "drop nothing": ({"drop": ("aera",)}, "--drop: train.csv has no column 'aera'; did you mean 'area'"),
    "drop the target": ({"drop": ("price",)}, "--drop price: it is the target"),
    "drop all": ({"drop": ("area", "rooms", "city", "trust", "zero", "debt", "gap")}, "only one column|learned from"),
    "unknown feature": ({"features": ("rom",)}, "--features: train.csv has no column 'rom'; did you mean 'rooms'"),
    "feature and target": ({"features": ("rooms", "price")}, "--features names the target, 'price'"),
    "both": ({"features": ("rooms",), "drop": ("area",)}, "leave one of them out"),
    "unknown weight": ({"sample_weight": "trusts"}, "train.csv has no column 'trusts'; did you mean 'trust'"),
    "words as weights": ({"sample_weight": "city"}, "expects numbers of at least 0, got 'Gent|expects .* got 'Brugge"),
    "weigh by the target": ({"sample_weight": "price"}, "--sample-weight price: it is the target"),
    "weights of 0": ({"sample_weight": "zero"}, "--sample-weight zero is 0 in every train row"),
    "negative weight": ({"sample_weight": "debt"}, "expects numbers of at least 0, got '-1' in line 2|got -1"),
    "missing weight": ({"sample_weight": "gap"}, "expects numbers of at least 0, got nothing in line 3"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(houses, case):
    options, message = BAD_OPTIONS[case]
    houses["test"].drop(columns="price").to_csv("untargeted.csv", index=False)
    houses["val"].rename(columns={"area": "areas"}).to_csv("renamed.csv", index=False)
    houses["test"].assign(price=np.nan).to_csv("unlabeled.csv", index=False)
    if "sample_weight" in options or case == "drop all":
        gaps = [1.0, np.nan, *[2.0] * 88]
        houses["train"].assign(zero=0, debt=-1, gap=gaps).to_csv("train.csv", index=False)
    with pytest.raises(UsageError, match=message) as error:
        load_splits(**options)
    assert "\n" not in str(error.value)


def test_drop_and_features_are_the_inputs_and_are_known_to_predict_and_resume(houses):
    for options in ({"drop": ("city", "trust")}, {"features": ("rooms", "area")}):
        run = didact.train("mlp", data="train.csv", target="price", steps=2, hidden=(4,), **options)
        metadata = run.metadata
        assert metadata["data"]["feature_names"] == ["area", "rooms"]
        assert evaluate(run, device="cpu")["test"] == pytest.approx(metadata["test"], rel=1e-5)
        prediction = didact.predict(run, "area=80,rooms=3")
        houses["test"][["rooms", "area"]].to_csv("new.csv", index=False)
        assert len(didact.predict(run, "new.csv")) == 30 and "price" in prediction[0]
        flag = "--drop city,trust" if "drop" in options else "--features rooms,area"
        assert flag in metadata["command_to_repeat"]
    # another recipe that learns from this run's data takes its inputs too
    assert Run.open("latest").metadata["data"]["source"]["features"] == ["rooms", "area"]


def list_recipes():
    load_recipes()
    return [recipe for recipe in RECIPES.values() if "table" in recipe.accepts]


QUICK = {"channels": 4, "num_couplings": 2, "num_samples": 2, "num_members": 2}


def test_every_recipe_of_tables_drops_columns_and_weighs_rows_or_refuses(houses):
    frame = houses["train"].assign(kind=RNG.choice(["flat", "house"], 90))
    frame.to_csv("own.csv", index=False)
    weighed = set()
    for recipe in list_recipes():
        target, dropped = "kind", ("city", "price")
        if recipe.tasks == ("regression",):
            target, dropped = "price", ("city", "kind")
        options = {name: value for name, value in QUICK.items() if name in recipe.options}
        if "hidden" in recipe.options and recipe.options["hidden"].is_list:
            options["hidden"] = (4,)
        options |= {"data": "own.csv", "target": target, "steps": 1, "drop": dropped}
        try:
            run = didact.train(recipe, **options, sample_weight="trust")
            weighed.add(recipe.name)
        except UsageError as error:
            if "weighs no examples" not in str(error):
                assert recipe.name in str(error) or "is for" in str(error), (recipe.name, error)
                continue
            assert f"but '{recipe.name}' weighs no examples; leave it out" in str(error)
            run = didact.train(recipe, **options)
        assert run.metadata["data"]["source"]["drop"] == list(dropped)
        names = run.metadata["data"]["feature_names"]
        assert not any("city" in name or (name == "trust" and recipe.name in weighed) for name in names)
    assert weighed >= {"mlp", "mlp_wide_deep", "bagging", "regularized_mlp", "dropout_weight_decay", "optimizers"}


def test_weighted_training_is_weighted_least_squares(workdir):
    """Of two lines the one with weight is learned, as by scikit-learn; the best weights are those of its loss."""
    x = RNG.normal(size=(300, 2))
    group = np.arange(300) % 2 == 0
    y = np.where(group, 3 * x[:, 0] - x[:, 1] + 1, -2 * x[:, 0] + 4)
    w = np.where(group, 5.0, 0.0)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "w": w, "y": y}).to_csv("w.csv", index=False)
    run = didact.train(
        "mlp", data="w.csv", target="y", sample_weight="w", hidden=(), dropout=0, weight_decay=0, optimizer="adamw",
        lr=0.05, batch_size=210, epochs=300, schedule="cosine",
    )
    data = load("w.csv", target="y", table=TableOptions(sample_weight="w"))
    rows = data.indices["train"].numpy()
    torch.testing.assert_close(
        data.train.columns["weight"].double(), torch.from_numpy(w[rows] / w[rows].mean()), rtol=1e-6, atol=0
    )
    reference = LinearRegression().fit(x[rows], y[rows], sample_weight=w[rows])
    predicted = [p["y"] for p in didact.predict(run, ["a=0,b=0", "a=1,b=0", "a=0,b=1"])]
    assert predicted == pytest.approx(reference.predict([[0, 0], [1, 0], [0, 1]]), abs=0.02)
    assert run.metadata["monitor"] == ["loss", "min"] and run.metadata["test"]["loss"] < 1e-3
    assert run.metadata["test"]["rmse"] > 0.5              # which counts every row


@pytest.mark.parametrize("targets", ["price", "city", "rooms"])
def test_weighted_loss_is_numpys_average(houses, targets):
    data = load("train.csv", target=targets, table=TableOptions(sample_weight="trust"))
    likelihood = likelihood_for(data)
    objective = make_supervised(torch.nn.Linear(data.num_features, likelihood.num_outputs), likelihood)
    batch = data.train.batch(torch.arange(len(data.train)))
    losses = likelihood.loss(objective.network(batch["x"]), batch["y"]).detach()
    expected = np.average(losses, weights=houses["train"].trust[data.indices["train"].numpy()])
    assert float(objective.loss(batch)["loss"].detach()) == pytest.approx(expected, rel=1e-4)
    with torch.no_grad():
        outputs = objective.evaluate_batch(batch)
    assert objective.compute_metrics(outputs)["loss"] == pytest.approx(expected, rel=1e-4)


def test_weighted_loss_of_parts_of_a_batch_is_that_of_the_batch(workdir):
    make_houses(90).to_csv("h.csv", index=False)
    options = {"data": "h.csv", "target": "price", "sample_weight": "trust", "steps": 3, "hidden": (4,), "dropout": 0}
    whole = didact.train("mlp", **options, batch_size=60)
    parts = didact.train("mlp", **options, batch_size=60, accumulate=3)
    for name, weight in whole.load("model").items():
        torch.testing.assert_close(weight, parts.load("model")[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("balance", ["weights", "over", "under"])
def test_class_weights_and_row_weights_together(houses, balance):
    frame = houses["train"].assign(kind=np.where(np.arange(90) < 60, "flat", "house"))
    frame.to_csv("own.csv", index=False)
    run = didact.train(
        "mlp", data="own.csv", target="kind", sample_weight="trust", balance=balance, steps=2, hidden=(4,)
    )
    assert evaluate(run, device="cpu")["test"] == pytest.approx(run.metadata["test"], rel=1e-5)


def pipe(monkeypatch, raw: bytes) -> None:
    table_file.read_standard_input.cache_clear()
    stream = io.TextIOWrapper(io.BytesIO(raw))
    monkeypatch.setattr(sys, "stdin", stream)


@pytest.mark.parametrize(
    "suffix", [".csv", ".csv.gz", ".json", ".jsonl", ".xlsx", ".ods", ".xls", ".parquet", ".arrow"]
)
def test_standard_input_trains_resumes_and_predicts(houses, monkeypatch, capsys, suffix):
    frame, path = houses["train"], Path(f"in{suffix}")
    if suffix in (".csv", ".csv.gz"):
        frame.to_csv(path, index=False)
    elif suffix.startswith(".json"):
        frame.to_json(path, orient="records", lines=suffix == ".jsonl")
    elif suffix == ".xls":
        import xlwt

        book = xlwt.Workbook()
        sheet = book.add_sheet("s")
        for j, name in enumerate(frame.columns):
            for i, value in enumerate([name, *frame[name].astype(object)]):
                sheet.write(i, j, value)
        book.save(str(path))
    elif suffix in (".xlsx", ".ods"):
        frame.to_excel(path, index=False)
    else:
        (frame.to_parquet if suffix == ".parquet" else frame.to_feather)(path)
    raw = path.read_bytes()
    path.unlink()
    pipe(monkeypatch, raw)
    assert main(["train", "mlp", "--data", "-", "--target", "price", "--steps", "2", "--hidden", "4"]) == 0
    run = Run.open("latest")
    kept = Path(run.metadata["data"]["source"]["path"])
    assert kept.read_bytes() == (gzip.decompress(raw) if suffix == ".csv.gz" else raw) and kept.parent.name == "stdin"
    assert evaluate(run, device="cpu")["test"] == pytest.approx(run.metadata["test"], rel=1e-5)
    pipe(monkeypatch, raw)
    capsys.readouterr()
    assert main(["predict", "latest", "-"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 90


def test_a_sweep_reads_standard_input_once_and_knows_changed_split_files(houses, monkeypatch):
    load_recipes()
    raw = Path("train.csv").read_bytes()
    pipe(monkeypatch, raw)
    options = {"target": "price", "steps": 1, "hidden": (4,), "test": "test.csv"}
    folder, rows = sweep(RECIPES["mlp"], {"lr": [1e-3, 1e-2]}, data="-", **options)
    assert len(rows) == 2 and rows[0]["test"] != rows[1]["test"]
    pipe(monkeypatch, raw)
    assert sweep(RECIPES["mlp"], {"lr": [1e-3, 1e-2]}, data="-", **options)[0] == folder      # continues
    houses["val"].to_csv("test.csv", index=False)
    pipe(monkeypatch, raw)
    assert sweep(RECIPES["mlp"], {"lr": [1e-3, 1e-2]}, data="-", **options)[0] != folder


@pytest.mark.parametrize("words", ["train -", "train --data -", "compare - --recipes mlp --folds 2"])
def test_standard_input_where_no_recipe_is_named(houses, monkeypatch, capsys, words):
    pipe(monkeypatch, Path("train.csv").read_bytes())
    assert main([*words.split(), "--target", "price", "--steps", "2"]) == 0
    assert Run.open("latest").metadata["data"]["source"]["path"].endswith(".csv"), capsys.readouterr()


def test_standard_input_that_holds_nothing_is_refused(workdir, monkeypatch, capsys):
    for raw, message in ((b"", "which is empty"), (b" \n", "which is empty")):
        pipe(monkeypatch, raw)
        assert main(["train", "mlp", "--data", "-"]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    assert main(["train", "mlp", "--data", "-"]) == 2
    assert "pipe a table into it" in capsys.readouterr().err and not Path("runs").exists()


@pytest.mark.parametrize("option", ["drop", "features", "sample_weight", "validation", "test"])
def test_options_of_tables_are_refused_where_the_data_are_none(houses, capsys, option):
    from PIL import Image

    for k in "ab":
        Path("pics", k).mkdir(parents=True, exist_ok=True)
        for i in range(5):
            Image.new("L", (8, 8), 40 * i).save(Path("pics", k, f"{i}.png"))
    Path("book.txt").write_text("once upon a time " * 200)
    flag = f"--{option.replace('_', '-')}"
    for words in (["cnn", "--data", "pics"], ["char_rnn", "--data", "book.txt"], ["mlp", "--data", "iris"],
                  ["forecast", "--data", "train.csv", "--target", "price"]):
        value = "train.csv" if option in SPLITS else "area"
        assert main(["train", *words, flag, value, "--steps", "1"]) == 2
        error = capsys.readouterr().err
        assert f"{flag} does not apply" in error and error.count("\n") == 1, error
    assert {r.description for r in READERS if option in r.options} <= {"a table", "a table of images"}


def test_a_table_of_which_no_column_is_left_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    with pytest.raises(UsageError, match=r"t.csv has no target: no column is left"):
        load(str(path), table=TableOptions(drop=("a", "b")))
